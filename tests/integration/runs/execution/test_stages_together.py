"""A pipeline that wants its stages together: one job brings all layers up to date, and the run ledger has them apart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT

from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

pytestmark = pytest.mark.spark

PIPELINE = """
from sluice.declare import Pipeline
PIPELINE = Pipeline(name="shop", description="s", owner="t", stages="together",
                    layers=("pipelines.shop.bronze", "pipelines.shop.silver", "pipelines.shop.gold"))
"""
LAYERS = {
    "bronze": 'from sluice.declare import Source\norders = Source(name="orders", format="csv", path="orders", pattern="*.csv")\n',
    "silver": (
        "from sluice.declare import table\n\n\n"
        '@table(keys="id", reads="orders")\ndef order(rows):\n    return rows.select("id", "amount")\n'
    ),
    "gold": (
        "from sluice.declare import F, materialized_view\n\n\n"
        '@materialized_view(keys="amount", reads="order")\ndef counted(rows):\n'
        '    return rows.groupBy("amount").agg(F.count("id").alias("n"))\n'
    ),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project's code with the pipeline beside it, and one delivery."""
    (tmp_path / "include").mkdir()
    for package in ("sluice", "residue"):
        (tmp_path / "include" / package).symlink_to(ROOT / "include" / package)
    for folder in ("spark_jobs", "environments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shop = tmp_path / "include" / "pipelines" / "shop"
    shop.mkdir(parents=True)
    for name, text in {"__init__": "", "pipeline": PIPELINE, **LAYERS}.items():
        (shop / f"{name}.py").write_text(text)
    (tmp_path / ".sluice").mkdir()
    (tmp_path / ".sluice" / "jars").symlink_to(ROOT / ".sluice" / "jars")
    return tmp_path


def deliver(settings: Settings, name: str, text: str) -> None:
    folder = settings.landing / "shop" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def run_layers_job(checkout: Path, run: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any] | None]:
    """The job that the DAG's task `layers` submits, and the report that it leaves."""
    report = checkout / f"{run}.json"
    command = [sys.executable, "spark_jobs/layers.py", "--pipeline", "shop", "--run-id", run, "--report", str(report)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "SPARK_", "AIRFLOW"))}
    environment = {**kept, "PYTHONPATH": str(checkout / "include"), "SLUICE_ROOT": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return done, json.loads(report.read_text()) if report.exists() else None


def recorded_flows(settings: Settings, run: str) -> list[tuple[str, str, str]]:
    rows = run_ledger.read_run_ledger(PipelineRecords(settings, "shop"))
    return [(row["stage"], row["flow"], row["state"]) for row in rows if row["run"] == run]


def test_one_job_runs_all_layers_and_records_each_also_where_one_failed_before(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLUICE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLUICE_ROOT", str(checkout))
    settings = Settings.current()

    # A layer that fails leaves those below it done and recorded; the next run goes on from there.
    gold = checkout / "include/pipelines/shop/gold.py"
    shutil.copy(gold, checkout / "kept")
    gold.write_text(gold.read_text().replace('F.count("id")', 'F.sum(F.raise_error(F.lit("no")).cast("int"))'))
    deliver(settings, "1.csv", "id,amount\n1,5\n2,5\n")
    done, report = run_layers_job(checkout, "one")
    assert done.returncode == 1 and "sluice layers: Flow 'counted'" in done.stderr
    assert report is not None and [flow["flow"] for flow in report["flows"]] == ["orders", "order", "counted"], "for alerts"
    assert recorded_flows(settings, "one") == [
        ("bronze", "orders", "done"),
        ("silver", "order", "done"),
        ("gold", "counted", "failed"),
    ]
    assert "shop silver, increment, run one" in done.stdout, "what is done is told before the next stage begins"

    shutil.copy(checkout / "kept", gold)
    deliver(settings, "2.csv", "id,amount\n3,5\n")
    done, report = run_layers_job(checkout, "two")
    assert done.returncode == 0, done.stderr
    assert report is not None and (report["stage"], report["run"], report["committed"]) == ("layers", "two", True)
    told = [("bronze", "orders"), ("silver", "order"), ("gold", "counted")]
    assert [(flow["layer"], flow["flow"]) for flow in report["flows"]] == told
    assert json.loads(done.stdout.splitlines()[-1]) == report
    assert recorded_flows(settings, "two") == [(*one, "done") for one in told]
    assert run_ledger.read_table_rows(PipelineRecords(settings, "shop"), "counted") == [{"amount": 5, "n": 3}]
