"""Gives a job the secrets that Airflow alone knows: those of its secret back end.

They are files that only their owner can read, in a folder that is removed afterwards. A secret's variable is `sluice_secret_` and the secret's
name with _ for everything but letters and digits: sluice_secret_pseudonym_key. It is looked up if SLUICE_SECRETS has no such file. The value goes
into no argument, no variable, no template field and no XCom.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

from orchestration.airflow_line import airflow_line
from orchestration.spark_submit.secret_back_ends import require_answers
from sluice.declare.assembly import subjects
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.durable_files import PRIVATE
from sluice.pipeline_records import PipelineRecords

log = logging.getLogger(__name__)

SECRETS_VARIABLE = "SLUICE_SECRETS_GIVEN"
_FOLDER = "sluice-given-"


def secret_variable_name(name: str) -> str:
    """The Airflow variable of a secret."""
    return "sluice_secret_" + re.sub("[^a-z0-9]", "_", name)


@contextlib.contextmanager
def give_secrets_to_job(records: PipelineRecords) -> Iterator[dict[str, str]]:
    """The variables by which a job finds those secrets of its pipeline that are no files; empty if there are none."""
    _remove_abandoned_secret_folders()
    found = {
        name: value for name in _find_missing_secrets(records) if (value := _ask_airflow_variable(secret_variable_name(name)))
    }
    if not found:
        yield {}
        return
    # mkdtemp makes it with mode 0700; the process's number says whose it is.
    with tempfile.TemporaryDirectory(
        prefix=f"{_FOLDER}{os.getpid()}-", dir=_memory_folder(), ignore_cleanup_errors=True
    ) as folder:
        for name, value in found.items():
            with os.fdopen(os.open(Path(folder) / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE), "w") as file:
                file.write(value)
        log.info("Given to the job by Airflow's variables: %s.", ", ".join(map(secret_variable_name, found)))
        yield {SECRETS_VARIABLE: folder}


def _find_missing_secrets(records: PipelineRecords) -> list[str]:
    """The secrets that the pipeline needs and SLUICE_SECRETS lacks."""
    try:
        needed = subjects.find_needed_secrets(load_declaration_graph(records.settings, records.pipeline))
    except Exception:  # the job reports wrong declarations
        return []
    return [name for name in needed if not records.settings.secret(name).is_file()]


def _ask_airflow_variable(name: str) -> str | None:
    """A variable's value from any of this Airflow's back ends; None if there is none. Raises what `require_answers` raises."""
    if airflow_line() == 3:
        from airflow.sdk import Variable

        found = Variable.get(name, default=None)
    else:
        from airflow.models import Variable as Variable2

        found = Variable2.get(name, default_var=None)  # noqa: AIR311  # of the other line
    if not found:
        require_answers("variable", name)  # or the job makes a key of its own, which hides the real one from then on
    return str(found) if found else None


def _memory_folder() -> str | None:
    """A folder in memory, if this machine has one."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None


def _remove_abandoned_secret_folders() -> None:
    """Remove the folders of tasks that were killed before they could. The job of a killed task may live, and then needs its folder."""
    folders = list(Path(_memory_folder() or tempfile.gettempdir()).glob(f"{_FOLDER}*-*"))
    needed = _list_folders_of_living_jobs() if folders else set()
    for folder in folders:
        owner = folder.name.removeprefix(_FOLDER).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and str(folder) not in needed:
            with contextlib.suppress(FileNotFoundError):  # another task removed it
                if folder.stat().st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)


def _list_folders_of_living_jobs() -> set[str]:
    # Others' processes, which this one may not look into, have no folder of this user's.
    return {one.info["environ"].get(SECRETS_VARIABLE, "") for one in psutil.process_iter(["environ"]) if one.info["environ"]}
