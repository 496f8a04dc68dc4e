"""One home of Airflow, prepared once in a session of tests, and copied to each checkout: to prepare one takes two starts of Airflow.

That a home is prepared from nothing, by whoever needs it first, is shown by airflow/test_lines.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from orchestration.server.home import local_airflow_home, prepare_local_airflow
from sluice.settings import Settings

LOOKS_OFTEN = "[scheduler]\nscheduler_idle_sleep_time = 0.3\n"
"""Airflow's own configuration in these homes: the scheduler sees the end of a task sooner than within its second."""
ROOT = Path(__file__).resolve().parents[1]


def copy_prepared_home(settings: Settings, folder_of_test: Path) -> None:
    """Give a checkout its home. folder_of_test: a folder that pytest has made; all processes of its session share one home beside it."""
    beside = folder_of_test.parent.parent if "PYTEST_XDIST_WORKER" in os.environ else folder_of_test.parent
    made = beside / "prepared_home"
    made.mkdir(exist_ok=True)
    with (made / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "include").exists():
            (made / "include").symlink_to(ROOT / "include")
        of_all = local_airflow_home(replace(settings, root=made))
        prepare_local_airflow(replace(settings, root=made))  # which does nothing the second time
    home = local_airflow_home(settings)
    # Airflow writes paths of its home into its configuration where it has none.
    shutil.copytree(of_all, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("logs", "airflow.cfg"))
    (home / "airflow.cfg").write_text(LOOKS_OFTEN)
    stamp = home / "prepared.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "folder": str(home)}))
