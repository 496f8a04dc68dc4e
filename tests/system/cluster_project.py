"""A copy of the code and a day's deliveries, whose job runs on one machine and on clusters: all must give the same tables."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.airflow.test_spark_submit import context

from sluice.locations import locate
from sluice.open_tables import open_delta_table
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import LAYERS, Stage
from sluice.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = {
    "MOST_BYTES_IN_PROCESS = 32_000_000": "MOST_BYTES_IN_PROCESS = 0",
    "MOST_BYTES_IN_PLAN = 1_000_000": "MOST_BYTES_IN_PLAN = 0",
}
"""Made so small, all files are read by executors, and all records wait for them on the shared disk."""
LEFT_OUT = {
    "silver": ("fanned_out", "completed_workouts", "members", "members_for_coaches", "member_bins", "visits"),
    "gold": ("workout_heart_rate", "workout_summary", "gym_stats", "device_counts", "workout_heart_rate_stream"),
}
"""What another table shows as well, by layer. What stays: tables that are merged and quarantine, a restricted one with pseudonyms, a history
of changes, a stream with state and a view. What is left out runs on the cluster of test_topology.py."""
FEWER_TASKS = """
spark.sql.shuffle.partitions                              4
spark.sql.sources.parallelPartitionDiscovery.parallelism  4
"""
"""Added to the profile of a cluster with four cores: each partition of a stream's state is a folder with files of its own."""
DECLARED = {
    '    owner="sluice",\n': '    owner="sluice",\n    stages="together",\n',
    'publishes=("device_day", "workout_summary", "gym_stats")': 'publishes=("device_day",)',
    '    roles={"coach": "whom they train; no surname, no birthday"},\n': "",
}
"""What the project's pipeline declares instead: all layers are one task, and nothing names what is left out."""
OF_THE_RUN = {"_ingested_at", "quarantined_at"}
"""Columns that tell when a run was."""


LOCAL = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"}}


@dataclass(frozen=True)
class Project:
    """A copy of the code, deliveries and secrets; and lakes, one for each Spark that the same job runs on."""

    root: Path
    folder: Path

    def locate_root(self, lake: str, name: str) -> str:
        """Where a lake's tables, its restricted ones and what was released are. A lake may be a URL."""
        if "://" in lake and name != "released":
            return f"{lake}/{name}"
        return str(self.folder / lake.rpartition("/")[2] / name)

    @contextmanager
    def over(self, lake: str, connection: dict[str, Any], landing: str = "") -> Iterator[Settings]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLUICE_ROOT", str(self.root))
            patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
            patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            for name in ("landing", "secrets", "truth", "vault"):
                patch.setenv(f"SLUICE_{name.upper()}", str(self.folder / name))
            for name in ("lake", "restricted", "released"):
                patch.setenv(f"SLUICE_{name.upper()}", self.locate_root(lake, name))
            if landing:
                patch.setenv("SLUICE_LANDING", landing)
            for name in ("SLUICE_SPARK_MASTER", "SLUICE_SPARK_PROFILE", "PYTHONPATH"):
                patch.delenv(name, raising=False)
            if connection is LOCAL:  # to which no code is shipped
                patch.setenv("PYTHONPATH", str(self.root / "include"))
            yield Settings.current()

    def run(
        self, lake: str, connection: dict[str, Any], landing: str = "", attempt: int = 1, stage: Stage = LAYERS, **options: Any
    ) -> dict[str, Any]:
        """Run all layers, or one, as a task of Airflow does; the job's report. options: of the operator."""
        from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

        with self.over(lake, connection, landing):
            operator = SluiceSparkSubmitOperator(task_id="layers", pipeline="gym", stage=stage, **options)
            report: dict[str, Any] = operator.execute({**context(), "ti": SimpleNamespace(try_number=attempt)})
        return report

    def tables(self, lake: str) -> dict[str, list[str]]:
        """The rows of all tables, as sorted texts, by path."""
        found = {}
        for root in ("lake", "restricted"):
            location = locate(self.locate_root(lake, root))
            for log in sorted(location.glob("*/*/*/_delta_log")):
                if "_sluice" in log.parts:
                    continue
                table = open_delta_table(str(log.parent)).to_pyarrow_table()
                kept = table.select([name for name in table.column_names if name not in OF_THE_RUN])
                found[f"{root}/{log.parent.relative_to(location)}"] = sorted(map(repr, kept.to_pylist()))
        return found

    def staged(self, lake: str) -> list[Path]:
        with self.over(lake, LOCAL) as settings:
            return list(Path(PipelineRecords(settings, "gym").bookkeeping("staging")).glob("*"))


def make_project(folder: Path) -> Project:
    """A project whose deliveries have landed; of a part of the pipeline gym, with all its layers in one task."""
    root = folder / "code"
    for name in ("include", "spark_jobs", "environments", "dags"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (root / ".sluice").mkdir()
    for name in ("jars", "log-store", "store-jars"):
        (root / ".sluice" / name).symlink_to(ROOT / ".sluice" / name)
    replace_in_code(root / "include" / "sluice" / "ingest" / "reading" / "records.py", AT_ONCE)
    make_gym_smaller(root)
    with (root / "spark_jobs" / "conf" / "standalone.conf").open("a") as profile:
        profile.write(FEWER_TASKS)
    made = Project(root, folder)
    with made.over("land", LOCAL):
        subprocess.run([ROOT / ".venv" / "bin" / "sluice", "land", "gym", "--days", "1", "--scale", "0.1"], check=True)
    return made


def make_gym_smaller(root: Path) -> None:
    """Leave out what another table shows as well, in a copy of the code."""
    gym = root / "include" / "pipelines" / "gym"
    for layer, names in LEFT_OUT.items():
        leave_out(gym / f"{layer}.py", names)
    replace_in_code(gym / "pipeline.py", DECLARED)


def replace_in_code(module: Path, texts: Mapping[str, str]) -> None:
    """Let a module say something else. texts: what it is to say, by what it says."""
    text = module.read_text()
    for said, instead in texts.items():
        assert said in text
        text = text.replace(said, instead)
    module.write_text(text)


def leave_out(module: Path, names: Collection[str]) -> None:
    """Take these declarations out of a layer's module."""
    tree = ast.parse(module.read_text())
    named = {id(node): _find_declared_name(node) for node in tree.body}
    assert {*names} <= {*named.values()}, f"{module.stem} declares {sorted(named.values())}"
    tree.body = [node for node in tree.body if named[id(node)] not in names]
    module.write_text(ast.unparse(tree))


def _find_declared_name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else []
    return targets[0].id if targets and isinstance(targets[0], ast.Name) else ""


def land_on_store(project: Project, landing: Any) -> Path:
    """Copy what has landed to a location on a store, oldest first. Returns where the files were, in a folder that is now called otherwise."""
    landed = project.folder / "landing"
    for file in sorted((path for path in landed.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime):
        landing.joinpath(file.relative_to(landed)).write_bytes(file.read_bytes())
    return landed.rename(landed.with_name("landing-away"))
