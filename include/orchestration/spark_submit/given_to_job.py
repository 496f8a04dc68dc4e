"""Gives a job what Airflow alone knows: the secrets of its secret back end, and the runs above it, for OpenLineage.

Secrets are files that only their owner can read, in a folder that is removed afterwards. A secret's variable is `sluice_secret_` and the secret's
name with _ for everything but letters and digits: sluice_secret_pseudonym_key. It is looked up if SLUICE_SECRETS has no such file. The value goes
into no argument, no variable, no template field and no XCom.

The ids of runs are those by which Airflow's OpenLineage provider reports them, made in the same way from the same parts, so that the provider is
not needed here. It would add them itself if `[openlineage] spark_inject_parent_job_info` is set, but only after our hook has its configuration.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]  # it ships no types
from airflow.providers.common.compat.sdk import conf

from orchestration.airflow_line import airflow_line
from sluice.declare.assembly import subjects
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.durable_files import PRIVATE
from sluice.pipeline_records import PipelineRecords
from sluice.settings import LINEAGE_PARENT, LINEAGE_ROOT, Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


log = logging.getLogger(__name__)

SECRETS_VARIABLE = "SLUICE_SECRETS_GIVEN"
_FOLDER = "sluice-given-"


def secret_variable_name(name: str) -> str:
    """The Airflow variable of a secret."""
    return "sluice_secret_" + re.sub("[^a-z0-9]", "_", name)


@contextlib.contextmanager
def secrets_given_to_job(records: PipelineRecords) -> Iterator[dict[str, str]]:
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
    """A variable's value from any of this Airflow's back ends; None if there is none."""
    if airflow_line() == 3:
        from airflow.sdk import Variable

        found = Variable.get(name, default=None)
    else:
        from airflow.models import Variable as Variable2

        found = Variable2.get(name, default_var=None)  # noqa: AIR311  # of the other line
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


def name_parent_runs(settings: Settings, context: Context) -> dict[str, str]:
    """What a job's configuration says of the runs above it; nothing if it sends no events."""
    if not settings.sends_lineage or find_spec("openlineage") is None:
        return {}
    task, run = context["ti"], context["dag_run"]
    namespace = conf.get("openlineage", "namespace", fallback="") or os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    at = run.logical_date or run.run_after  # Airflow 3 has runs without a logical date
    above = _make_run_id(at, namespace, task.dag_id, task.task_id, task.try_number, task.map_index)
    top = _make_run_id(at, namespace, run.dag_id, run.clear_number)
    return {
        **dict(zip(LINEAGE_PARENT, (above, namespace, f"{task.dag_id}.{task.task_id}"), strict=True)),
        **dict(zip(LINEAGE_ROOT, (top, namespace, run.dag_id), strict=True)),
    }


def name_parent_runs_in_environment(conf: Mapping[str, str]) -> dict[str, str]:
    """The same runs as variables, for a process that has no such configuration."""
    found = {}
    for variable, names in (("OPENLINEAGE_PARENT_ID", LINEAGE_PARENT), ("OPENLINEAGE_ROOT_PARENT_ID", LINEAGE_ROOT)):
        if all(name in conf for name in names):
            run, namespace, name = (conf[one] for one in names)
            found[variable] = f"{namespace}/{name}/{run}"
    return found


def _make_run_id(at: datetime, *parts: object) -> str:
    from openlineage.client.uuid import generate_static_uuid

    return str(generate_static_uuid(at, ".".join(map(str, parts)).encode()))
