"""Stands in for spark-submit and a job behind it: notes what it was told, does as the environment says, writes a report.

STAND_IN_EXIT: the exit code.
STAND_IN_REPORTS: a report is written although it fails. STAND_IN_SAYS: more fields of the report, as JSON.
STAND_IN_SECONDS: how long it works, looking for a stop request as jobs do.
STAND_IN_UNTIL: a file; once it is there, the work is done.
STAND_IN_LOOKS_AFTER: for how many seconds it does not look.
STAND_IN_STUBBORN: "asked" ignores the stop request, "terminated" ignores SIGTERM as well.
STAND_IN_ORDERS: a JSON file with variables for this, which a test may change while Airflow runs.
In cluster mode it starts its job as a process of its own, the driver, whose variables are those that the properties give it, and ends.
STAND_IN_ROWS: how many rows gold/device_day then has; a new number is a new version. Without it no table is written.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main():
    arguments = sys.argv[1:]
    orders = Path(os.environ.get("STAND_IN_ORDERS", ""))
    if orders.is_file():
        os.environ.update(json.loads(orders.read_text()))
    stubborn = os.environ.get("STAND_IN_STUBBORN", "")
    if stubborn == "terminated":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note({
        "argv": arguments,
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "environment": sorted(os.environ),
        "given": given(),
        "spark": {name: os.environ.get(name) for name in ("SLUICE_SPARK_MASTER", "SLUICE_SPARK_PROFILE", "PYSPARK_PYTHON")},
        "input": "nothing" if os.path.samestat(os.fstat(0), Path(os.devnull).stat()) else "something",
    })
    told = dict(itertools.pairwise(arguments))
    if told.get("--deploy-mode") == "cluster":
        submit_driver(arguments)
        return
    stage = next((Path(word).stem for word in arguments if word.endswith(".py")), "")
    print("WARNING: Using incubator modules: jdk.incubator.vector", flush=True)
    print(f"the {stage} job starts", flush=True)
    if os.environ.get("STAND_IN_SECONDS"):
        work(float(os.environ["STAND_IN_SECONDS"]), told, stubborn)
    code = int(os.environ.get("STAND_IN_EXIT", "0"))
    flow = {"flow": "device_day", "rows_out": 2, "deliveries": 1, "version_before": 3, "version_after": 4}
    flow |= {"rules": {"plausible_heart_rate": 7}, "quarantined": 2}
    if not code and stage in ("gold", "optimize") and "STAND_IN_ROWS" in os.environ:
        write(stage, told.get("--pipeline", "gym"), int(os.environ["STAND_IN_ROWS"]))
    report = {"run": told.get("--run-id"), "stage": stage, "flows": [flow]} | json.loads(os.environ.get("STAND_IN_SAYS", "{}"))
    if "--report" in told and (not code or "STAND_IN_REPORTS" in os.environ):
        Path(told["--report"]).write_text(json.dumps(report))
    if code:
        print("sluice: There is no table 'hart_rate'. Did you mean 'heart_rate'?", flush=True)
        sys.exit(code)
    print(json.dumps(report), flush=True)


def submit_driver(arguments):
    if os.environ.get("STAND_IN_REFUSES"):
        print('Exception in thread "main" org.apache.spark.SparkException: no such queue', flush=True)
        print("\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)", flush=True)
        sys.exit(1)
    prefix = "spark.yarn.appMasterEnv."
    pairs = (word.removeprefix(prefix).split("=", 1) for word in arguments if word.startswith(prefix))
    own = {name: value for name, value in os.environ.items() if name.startswith("STAND_IN")}
    subprocess.Popen(
        [sys.executable, __file__, "driver", *arguments],
        env={**own, **dict(pairs)},
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    print("Submitted application application_17_0001", flush=True)


def drive(arguments):
    from sluice.runs.followed_job import JobEnd, tell_follower

    told = dict(itertools.pairwise(arguments))
    note({"driver": os.getpid(), "variables": {name: value for name, value in os.environ.items() if "STAND_IN" not in name}})
    if os.environ.get("STAND_IN_SILENT"):
        return
    with tell_follower(told["--followed-at"], beat_seconds=0.1) as tell_end:
        code = int(os.environ.get("STAND_IN_EXIT", "0"))
        try:
            work(float(os.environ.get("STAND_IN_SECONDS", "0.3")), told, "")
        except SystemExit:
            code = 1
        if code:
            did = {"flows": [{"flow": "device_day", "rules": {}, "quarantined": 2}]} if "STAND_IN_REPORTS" in os.environ else None
            tell_end(JobEnd(code, "sluice: There is no table 'hart_rate'. Did you mean 'heart_rate'?", did))
        else:
            tell_end(JobEnd(0, report={"run": told["--run-id"], "stage": "silver", "flows": []}))


def given():
    """What the secrets were that were given, and who may read them."""
    folder = Path(os.environ.get("SLUICE_SECRETS_GIVEN", "/none"))
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    modes = sorted({oct(path.stat().st_mode & 0o777) for path in (folder, *files)}) if files else []
    return {"folder": str(folder), "modes": modes, "files": {path.name: path.read_text() for path in files}}


def work(seconds, told, stubborn):
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])  # as the JVM has one
    note({"pid": child.pid})
    done = Path(os.environ.get("STAND_IN_UNTIL", "/none"))
    requests = Path(os.environ["SLUICE_LAKE"]) / told.get("--pipeline", "gym") / "_sluice" / "stop_requests"
    deadline = time.monotonic() + seconds
    time.sleep(float(os.environ.get("STAND_IN_LOOKS_AFTER", "0")))  # a batch, in which nobody looks
    while time.monotonic() < deadline:
        if done.exists():
            child.kill()
            return
        if not stubborn and (requests / told.get("--run-id", "")).is_file():
            time.sleep(float(os.environ.get("STAND_IN_BATCH_SECONDS", "0")))
            note({"stopped": "on request"})
            child.kill()
            print("sluice: stopped on request", flush=True)
            sys.exit(1)
        time.sleep(0.05)


def write(stage, pipeline, rows):
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    path = f"{os.environ['SLUICE_LAKE']}/{pipeline}/gold/device_day"
    if stage == "optimize":
        DeltaTable(path).optimize.compact()
        DeltaTable(path).alter.set_table_properties({"optimized": str(time.time())}, False)  # a commit without data at each run
        return
    there = DeltaTable(path).count() if DeltaTable.is_deltatable(path) else None
    if there != rows:
        write_deltalake(path, pa.table({"device_id": list(range(rows))}), mode="overwrite")


def note(entry):
    with Path(os.environ["STAND_IN_RECORDS"]).open("a") as records:
        records.write(json.dumps(entry) + "\n")


drive(sys.argv[2:]) if sys.argv[1:2] == ["driver"] else main()
