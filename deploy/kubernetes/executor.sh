#!/usr/bin/env bash
# Starts an executor in its pod. Spark tells it by variables what to start, and as its argument `executor`.
set -eu
options=()
while IFS= read -r name; do options+=("${!name}"); done < <(compgen -v | grep -E '^SPARK_JAVA_OPT_[0-9]+$' | sort -t_ -k4n)
exec java ${options[@]+"${options[@]}"} "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*:$SPARK_DIST_CLASSPATH" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
