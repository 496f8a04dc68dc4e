"""Two tasks whose drivers a cluster starts, each of a DAG of its own."""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from orchestration.medallion import trigger_form_fields
from orchestration.server.home import airflow_pool_name
from orchestration.spark_submit.operator import SluiceSparkSubmitOperator
from sluice.pipeline_stages import SILVER

for name in ("ends", "lasts"):
    with DAG(dag_id=name, schedule=None, params=trigger_form_fields()) as dag:
        SluiceSparkSubmitOperator(
            task_id="silver",
            pipeline="gym",
            stage=SILVER,
            pool=airflow_pool_name("gym"),
            execution_timeout=timedelta(minutes=5),
        )
    globals()[name] = dag
