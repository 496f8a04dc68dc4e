#!/usr/bin/env bash
# Starts a driver in its pod, in cluster mode. Spark tells it as arguments what to start, the first one being `driver`.
set -eu
shift
exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
