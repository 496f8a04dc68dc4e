"""The line of Airflow that is installed here: 2 or 3. Code that differs between them asks this module. Imports no Airflow."""

from __future__ import annotations

import importlib.metadata

from sluice.errors import SluiceError

LINES = (2, 3)


def airflow_version() -> str:
    """The installed Airflow's version. Raises SluiceError if none is installed."""
    try:
        return importlib.metadata.version("apache-airflow")
    except importlib.metadata.PackageNotFoundError:
        raise SluiceError("No Airflow is installed in this environment. Run: make setup") from None


def airflow_line() -> int:
    """The first number of the installed Airflow's version. Raises SluiceError for a line that Sluice does not know."""
    version = airflow_version()
    line = int(version.partition(".")[0])
    if line not in LINES:
        raise SluiceError(f"Airflow {version} is installed; Sluice runs on the lines 2 and 3. Run: make setup")
    return line
