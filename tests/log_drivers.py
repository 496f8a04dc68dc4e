"""A driver that commits to a Delta log as fast as it can: python log_drivers.py KIND URL NAME COUNT, in a process of its own.

KIND: spark, the log store of Spark's sessions in a JVM of its own; or delta-rs. Each commit holds the transaction NAME-N. It prints a
JSON object: the transactions that were acknowledged, and those whose outcome the driver was not told.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMPATIENT_DELTA_RS = {"backoff_config.init_backoff": "20ms", "backoff_config.max_backoff": "100ms", "retry_timeout": "20s"}
IMPATIENT_S3A = {"fs.s3a.retry.interval": "20ms", "fs.s3a.retry.throttle.interval": "20ms", "fs.s3a.attempts.maximum": "3"}
"""Both wait for long before they ask a store again; here, what matters is what they do then."""


def start_jvm() -> Any:
    """A JVM with Hadoop, S3A and Sluice's log store, without Spark. It ends with this process."""
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    folders = [Path(pyspark.__file__).parent / "jars", *(ROOT / ".sluice" / name for name in ("jars", "log-store", "store-jars"))]
    logging = f"-Dlog4j2.configurationFile=file:{ROOT}/spark_jobs/conf/log4j2.properties"
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", logging]
    port, token = launch_gateway(
        classpath=":".join(f"{folder}/*" for folder in folders),
        javaopts=options,
        die_on_exit=True,
        enable_auth=True,
        return_proc=False,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)).jvm


def hadoop_conf(jvm: Any) -> Any:
    """The settings of a session whose lake is on s3a://."""
    conf = jvm.org.apache.hadoop.conf.Configuration()
    for line in (ROOT / "spark_jobs" / "conf" / "stores" / "s3a.conf").read_text().splitlines():
        if line.startswith("spark.hadoop."):
            name, value = line.removeprefix("spark.hadoop.").split(None, 1)
            conf.set(name, value)
    for name, value in IMPATIENT_S3A.items():
        conf.set(name, value)
    return conf


def commit_text(transaction: str) -> str:
    """The actions of a commit that adds nothing but a transaction."""
    now = int(time.time() * 1000)
    info = {"commitInfo": {"timestamp": now, "operation": "WRITE", "operationParameters": {}, "txnId": str(uuid.uuid4())}}
    return f"{json.dumps(info)}\n" + json.dumps({"txn": {"appId": transaction, "version": 1, "lastUpdated": now}})


def commit_by_spark(url: str, transactions: list[str]) -> tuple[list[str], list[str]]:
    from py4j.protocol import Py4JJavaError

    jvm = start_jvm()
    conf, path = hadoop_conf(jvm), jvm.org.apache.hadoop.fs.Path
    store = jvm.sluice.ConditionalPutLogStore(conf)
    log = f"{url.replace('s3://', 's3a://')}/_delta_log"
    acknowledged, unknown, taken = [], [], 0
    for transaction in transactions:
        lines = jvm.java.util.ArrayList()
        for line in commit_text(transaction).splitlines():
            lines.add(line)
        while True:
            listed = store.listFrom(path(f"{log}/{taken:020d}.json"), conf)
            while listed.hasNext():
                name = listed.next().getPath().getName()
                if name.endswith(".json"):
                    taken = max(taken, int(name[:20]))
            try:
                store.write(path(f"{log}/{taken + 1:020d}.json"), lines.iterator(), False, conf)
                acknowledged.append(transaction)
                break
            except Py4JJavaError as error:
                if "FileAlreadyExistsException" not in error.java_exception.getClass().getName():
                    unknown.append(transaction)
                    break
                taken += 1
    return acknowledged, unknown


def commit_by_delta_rs(url: str, transactions: list[str]) -> tuple[list[str], list[str]]:
    import pyarrow as pa
    from deltalake import DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    from sluice.stores.commit_settling import settle_store_commit, store_commit_properties
    from sluice.stores.opening import delta_rs_storage_options

    table = DeltaTable(url, storage_options=delta_rs_storage_options(url) | IMPATIENT_DELTA_RS)
    acknowledged, unknown = [], []
    for transaction in transactions:
        while True:
            try:
                table.update_incremental()
                properties = store_commit_properties(url, transactions=[Transaction(transaction, 1)])
                with settle_store_commit(url, table, properties):
                    write_deltalake(table, pa.table({"a": [1]}), mode="append", commit_properties=properties)
                acknowledged.append(transaction)
                break
            except CommitFailedError:  # another was faster, and this was not committed
                continue
            except (DeltaError, OSError):
                unknown.append(transaction)
                break
    return acknowledged, unknown


def main(kind: str, url: str, name: str, count: str) -> None:
    """Commit `count` transactions, and print what became of them."""
    commit = {"spark": commit_by_spark, "delta-rs": commit_by_delta_rs}[kind]
    acknowledged, unknown = commit(url, [f"{name}-{number}" for number in range(int(count))])
    print(json.dumps({"acknowledged": acknowledged, "unknown": unknown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
