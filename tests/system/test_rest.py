"""The page docs/rest.md: its commands are run as they stand there, against a real Airflow with a stand-in for Spark."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.checkout import ROOT, Checkout

from orchestration.local import LocalAirflow, airflow_line, local_airflow_home, stop_running_airflow

pytestmark = [pytest.mark.system, pytest.mark.airflow, pytest.mark.filterwarnings("default")]

PAGE = ROOT / "docs" / "rest.md"
THIS_LINE = airflow_line()
ENVIRONMENT = {2: ".venv-airflow2", 3: ".venv"}[THIS_LINE]


def sections() -> dict[str, str]:
    """The commands below each heading of the page; what is before the first belongs to the first."""
    found: dict[str, list[str]] = {}
    heading, waiting = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            found[heading] = waiting
            waiting = []
        elif line.startswith("    "):
            (found[heading] if heading else waiting).append(line.removeprefix("    "))
    return {heading: "\n".join(lines) for heading, lines in found.items()}


@pytest.fixture
def here(checkout: Checkout) -> Iterator[Path]:
    """A folder in which `./airflow` and what `make up` starts are those of the checkout."""
    for tool in ("bash", "curl", "jq"):
        if shutil.which(tool) is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{tool} is missing; the page needs it")
    root = checkout.settings.root
    for name, target in {"airflow": ROOT / "airflow", ENVIRONMENT: Path(sys.prefix)}.items():
        if not (root / name).exists():
            (root / name).symlink_to(target)
    yield root
    stop_running_airflow(checkout.settings)


def run(here: Path, chosen: dict[str, str]) -> dict[str, str]:
    """Run the commands of these sections in one shell. Returns what each section printed."""
    outputs = here / "outputs"
    shutil.rmtree(outputs, ignore_errors=True)
    outputs.mkdir()
    lines = ["set -euo pipefail"]
    for number, commands in enumerate(chosen.values()):
        lines += [f"exec >{outputs}/{number} 2>&1", commands]
    text = "\n".join(lines).replace(":8080", f":{os.environ['SLUICE_AIRFLOW_PORT']}")
    # What these targets do once all is set up.
    text = re.sub(r"make (up|down)( AIRFLOW=2)?", rf"{ENVIRONMENT}/bin/python -m sluice.cli \1", text)
    done = subprocess.run(["bash", "-c", text], cwd=here, check=False, timeout=1500, stdin=subprocess.DEVNULL)
    printed = {name: path.read_text() for number, name in enumerate(chosen) if (path := outputs / str(number)).exists()}
    assert done.returncode == 0, json.dumps(printed, indent=1)
    return printed


@pytest.mark.skipif(THIS_LINE != 3, reason="these commands are Airflow 3's")
def test_the_page_on_airflow_3(here: Path) -> None:
    told = run(here, {name: text for name, text in sections().items() if name != "On Airflow 2"})
    version, lifetime, anonymous = told["A token: making it, its lifetime, its end"].splitlines()[-3:]
    assert version.startswith("3.")
    assert re.fullmatch(r"from \S+Z to \S+Z", lifetime)
    assert anonymous == "401"
    assert '{"dag_id":"gym","is_paused":false}' in told["Trigger"]
    assert '{"dag_run_id":"report-42","state":"queued"}' in told["Trigger"]
    assert told["Trigger"].splitlines()[-1].endswith("refused") and "everything" in told["Trigger"]
    assert '"state":"success"' in told["Watch"]
    assert re.search(r"^gold  success  [0-9.]+ s$", told["Watch"], re.MULTILINE)
    assert '"flow":"device_day"' in told["Watch"]
    assert '{"dag_run_id":"january","state":"queued"}' in told["Backfill"]
    assert re.search(r'"from_date":"2026-01-01T00:00:00Z","to_date":"2026-01-02T23:59:59Z","completed_at":null', told["Backfill"])
    assert len(re.findall(r"^2026-01-0[12]T\S+  (?:queued|running|success)$", told["Backfill"], re.MULTILINE)) == 2
    assert '"completed_at":true' in told["Backfill"]
    assert told["The end of a token"].splitlines()[-1].endswith("this token has ended")
    by_hand = told["The same by the command line"]
    assert "by-hand" in by_hand and re.search(r"gold +\| +success", by_hand), by_hand
    assert re.findall(r"Created backfill Dag run.*DateTime\(2026, 1, (\d+),", by_hand) == ["5", "6"]
    assert by_hand.splitlines()[-1] == "Airflow has stopped."


@pytest.mark.skipif(THIS_LINE != 2, reason="these commands are Airflow 2's")
def test_the_page_on_airflow_2(here: Path) -> None:
    told = run(here, {"it": sections()["On Airflow 2"]})["it"]
    assert "\n403\n" in told
    assert '{"dag_id":"gym","is_paused":false}' in told
    assert '{"dag_run_id":"report-42","state":"queued"}' in told
    assert re.search(r"^gold  success  [0-9.]+ s$", told, re.MULTILINE)
    assert '"flow":"device_day"' in told
    assert "2026-01-05" in told and "2026-01-06" in told
    assert told.splitlines()[-1] == "Airflow has stopped."


@pytest.mark.skipif(THIS_LINE != 3, reason="Airflow 2 has no tokens")
def test_a_token_ends_by_itself_after_its_lifetime(here: Path, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_EXPIRATION_TIME", "10")  # an answer may take seconds
    with LocalAirflow(checkout.settings, idle_schedule=True) as airflow:
        password = json.loads((local_airflow_home(checkout.settings) / "passwords.json").read_text())["admin"]
        airflow.client.request("GET", "/dags")  # the first answer may take longer than the token lives
        answer = airflow.client.send("POST", "/auth/token", {"username": "admin", "password": password})
        token = answer["access_token"]
        claims = token.split(".")[1]
        told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        assert told["exp"] - told["iat"] == 10
        assert airflow.client.send("GET", "/api/v2/dags", authorization=f"Bearer {token}")["dags"] is not None
        deadline = time.monotonic() + 300  # Airflow allows clocks that differ by 10 s
        with pytest.raises(urllib.error.HTTPError, match="401"):
            while time.monotonic() < deadline:
                airflow.client.send("GET", "/api/v2/dags", authorization=f"Bearer {token}")
                time.sleep(0.5)
        assert airflow.client.request("GET", "/dags")["dags"] is not None  # the client's own has ended too; it makes a new one
