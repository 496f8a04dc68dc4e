"""A pipeline that wants its stages together: one job brings all layers up to date, and the run ledger has them apart."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
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


def layers_job(checkout: Path, run: str) -> list[str]:
    """The script that the DAG's task `layers` submits, and its arguments."""
    return ["spark_jobs/layers.py", "--pipeline", "shop", "--run-id", run, "--report", str(report_of(checkout, run))]


def report_of(checkout: Path, run: str) -> Path:
    return checkout / f"{run}.json"


def run_layers_job_here(
    checkout: Path, run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Runs that job in this process, which forgets the pipeline's modules then. Returns the exit code and what it printed."""
    job = layers_job(checkout, run)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(checkout / "include"))
        patch.setattr(sys, "argv", job)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(checkout / job[0]), run_name="__main__")
    for name in [name for name in sys.modules if name.startswith("pipelines.shop")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def run_layers_job(checkout: Path, run: str) -> subprocess.CompletedProcess[str]:
    """Runs that job as it is submitted, in a process of its own."""
    command = [sys.executable, *layers_job(checkout, run)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "SPARK_", "AIRFLOW"))}
    environment = {**kept, "PYTHONPATH": str(checkout / "include"), "SLUICE_ROOT": str(checkout)}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=900, check=False)


def recorded_flows(settings: Settings, run: str) -> list[tuple[str, str, str]]:
    rows = run_ledger.read_run_ledger(PipelineRecords(settings, "shop"))
    return [(row["stage"], row["flow"], row["state"]) for row in rows if row["run"] == run]


def test_one_job_runs_all_layers_and_records_each_also_where_one_failed_before(
    checkout: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    code, out, err = run_layers_job_here(checkout, "one", monkeypatch, capsys)
    assert code == 1 and "sluice layers: Flow 'counted'" in err
    report = json.loads(report_of(checkout, "one").read_text())
    assert [flow["flow"] for flow in report["flows"]] == ["orders", "order", "counted"], "for alerts"
    assert recorded_flows(settings, "one") == [
        ("bronze", "orders", "done"),
        ("silver", "order", "done"),
        ("gold", "counted", "failed"),
    ]
    assert "shop silver, increment, run one" in out, "what is done is told before the next stage begins"

    shutil.copy(checkout / "kept", gold)
    deliver(settings, "2.csv", "id,amount\n3,5\n")
    done = run_layers_job(checkout, "two")
    assert done.returncode == 0, done.stderr
    report = json.loads(report_of(checkout, "two").read_text())
    assert (report["stage"], report["run"], report["committed"]) == ("layers", "two", True)
    told = [("bronze", "orders"), ("silver", "order"), ("gold", "counted")]
    assert [(flow["layer"], flow["flow"]) for flow in report["flows"]] == told
    assert json.loads(done.stdout.splitlines()[-1]) == report
    assert recorded_flows(settings, "two") == [(*one, "done") for one in told]
    assert run_ledger.read_table_rows(PipelineRecords(settings, "shop"), "counted") == [{"amount": 5, "n": 3}]
