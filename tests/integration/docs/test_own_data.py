"""The README's way from a folder of strange CSV files to a gold table, in a checkout of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project's code with the set-up of this one."""
    for folder in ("include", "spark_jobs", "dags", "environments"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (tmp_path / ".sluice").mkdir()
    (tmp_path / ".sluice" / "jars").symlink_to(ROOT / ".sluice" / "jars")
    return tmp_path


def sluice(checkout: Path, *arguments: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "SPARK_", "AIRFLOW"))}
    environment = {**kept, "PYTHONPATH": str(checkout / "include"), "SLUICE_ROOT": str(checkout)}
    command = [sys.executable, "-m", "sluice.cli", *arguments]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_from_strange_files_to_a_gold_table(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "from elsewhere" / "orders"
    folder.mkdir(parents=True)
    (folder / "Januar (1).csv").write_bytes(
        "Bestell-Nr;Kunde;Größe;Datum\n1;Ü, Inc;2,5;2026-01-01\n2;b;3;2026-01-01\n".encode("cp1252")
    )
    (folder / "Februar [neu].csv").write_bytes(
        "Datum;Bestell-Nr;Kunde;Größe;\n2026-02-01;3;c;1;x\n2026-02-02;4;d\n".encode("cp1252")
    )
    sluice(checkout, "new", "pipeline", "shop", "--from", str(folder))
    assert "ok" in sluice(checkout, "check", "shop")
    sluice(checkout, "run", "shop")
    status = sluice(checkout, "status", "shop")
    gold = next(line.split() for line in status.splitlines() if "gold" in line.split())
    assert "orders_by" in " ".join(gold)
    assert "2026-01-01" in sluice(
        checkout, "sql", f"SELECT * FROM shop.{next(word for word in gold if word.startswith('orders_by'))}"
    )
    assert sluice(checkout, "sql", "SELECT count(*) AS n, max(`Kunde`) AS k FROM shop.orders_files").count("Ü, Inc") == 1
    assert "another number of fields" in " ".join(sluice(checkout, "quarantine", "list", "shop").split())
