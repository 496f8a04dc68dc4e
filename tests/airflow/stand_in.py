"""Stands in for spark-submit and a job behind it: notes what it was told, does as the environment says, writes a report.

STAND_IN_EXIT: the exit code. STAND_IN_SECONDS: how long it works, looking for a stop request as jobs do.
STAND_IN_STUBBORN: "asked" ignores the stop request, "terminated" ignores SIGTERM as well.
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
    stubborn = os.environ.get("STAND_IN_STUBBORN", "")
    if stubborn == "terminated":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note({"argv": arguments, "pid": os.getpid(), "group": os.getpgid(0)})
    told = dict(itertools.pairwise(arguments))
    stage = next((Path(word).stem for word in arguments if word.endswith(".py")), "")
    print("WARNING: Using incubator modules: jdk.incubator.vector", flush=True)
    print(f"the {stage} job starts", flush=True)
    if os.environ.get("STAND_IN_SECONDS"):
        work(float(os.environ["STAND_IN_SECONDS"]), told, stubborn)
    code = int(os.environ.get("STAND_IN_EXIT", "0"))
    if code:
        print("sluice: There is no table 'hart_rate'. Did you mean 'heart_rate'?", flush=True)
        sys.exit(code)
    flow = {"flow": "device_day", "rows_out": 2, "deliveries": 1, "version_before": 3, "version_after": 4}
    report = {"run": told.get("--run-id"), "stage": stage, "flows": [flow]}
    if "--report" in told:
        Path(told["--report"]).write_text(json.dumps(report))
    print(json.dumps(report), flush=True)


def work(seconds, told, stubborn):
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])  # as the JVM has one
    note({"pid": child.pid})
    requests = Path(os.environ["SLUICE_LAKE"]) / told.get("--pipeline", "gym") / "_sluice" / "stop_requests"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not stubborn and (requests / told.get("--run-id", "")).is_file():
            time.sleep(float(os.environ.get("STAND_IN_BATCH_SECONDS", "0")))
            note({"stopped": "on request"})
            child.kill()
            print("sluice: stopped on request", flush=True)
            sys.exit(1)
        time.sleep(0.05)


def note(entry):
    with Path(os.environ["STAND_IN_RECORDS"]).open("a") as records:
        records.write(json.dumps(entry) + "\n")


main()
