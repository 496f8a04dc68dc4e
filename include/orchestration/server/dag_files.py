"""What a DAG file of this checkout holds, as the installed Airflow parses it: an Airflow that runs does not tell of a file without a DAG."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from orchestration.server.home import local_airflow_environment
from sluice.settings import Settings

_PARSE_SECONDS = 300
"""As long as Airflow itself may take to import a file (`DAGBAG_IMPORT_TIMEOUT`)."""

_PARSE = """
import json, sys
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2
    from airflow.models.dagbag import DagBag
found = DagBag(sys.argv[1])
print("\\n" + json.dumps({"dags": sorted(found.dags), "failed": bool(found.import_errors)}))
"""


def list_dags_of_file(settings: Settings, file: Path) -> list[str] | None:
    """Parses a file once, in a process of its own. Returns the ids of its DAGs; None if Airflow cannot import it here, and tells why itself."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PARSE, str(file)],
            env=os.environ | local_airflow_environment(settings),
            cwd=settings.root,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PARSE_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    return None if found["failed"] else list(found["dags"])
