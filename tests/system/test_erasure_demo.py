"""`make demo-erasure`: one made-up member is erased, and the certificate says PASS."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.running import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.system]


def test_the_demonstration_ends_with_a_certificate(tmp_path: Path) -> None:
    for folder in ("include", "spark_jobs", "environments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / ".sluice").mkdir()
    (tmp_path / ".sluice" / "jars").symlink_to(ROOT / ".sluice" / "jars")
    told = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "AIRFLOW"))}
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "demo-erasure"],
        env={**told, "SLUICE_ROOT": str(tmp_path), "PYTHONPATH": str(ROOT / "include")},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    said = done.stdout
    assert "logically erased, physical due on" in said and "certified" in said
    assert re.search(r"verdict +PASS", said)
    folder = tmp_path / ".sluice" / "demo-erasure"
    (certificate,) = (folder / "lake" / "gym" / "_sluice" / "certificates").glob("*.json")
    record = json.loads(certificate.read_text())
    assert certificate.with_suffix(".html").is_file() and str(certificate.with_suffix(".html")) in said
    assert record["control"]["before"] and all(record["control"]["before"].values()) and record["control"]["after"] == 0
    assert record["stamps"]["physical"]["found"] == 0
    # What is printed and kept names nobody; only the vault does.
    (kept,) = (folder / "vault").rglob("*.json")
    for _, value in json.loads(kept.read_text())["identifiers"]:
        for text in (said, done.stderr, certificate.read_text(), certificate.with_suffix(".html").read_text()):
            assert not re.search(rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])", text)


def test_it_is_a_target_of_make_and_keeps_to_its_own_folder(tmp_path: Path) -> None:
    told = subprocess.run(["make", "-n", "demo-erasure"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "sluice.cli demo-erasure" in told
