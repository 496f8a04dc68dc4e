"""The page docs/operate.md: its commands are run as they stand there, in order, on a real Airflow with real Spark."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.system.browser import missing
from tests.system.pictures import Picture, taken
from tests.system.running import ROOT, make_checkout
from tests.waiting import until, wait_past_schedule

from demonstrations.tour_report import compare_with_truth
from orchestration.airflow_line import airflow_line
from orchestration.local import find_running_airflow, local_airflow_client, stop_running_airflow
from orchestration.rest.client import OPEN_STATES
from orchestration.server.free_ports import find_free_port
from sluice.declare.assembly import loading
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.airflow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(airflow_line() != 3, reason="the page's commands are Airflow 3's"),
]

PAGE = ROOT / "docs" / "operate.md"
IMAGES = ROOT / "docs" / "images"
KEEP_IMAGES = os.environ.get("SLUICE_KEEP_IMAGES") == "1"
ERASED, DEVICE = 7_000_000_001, 4_200_000_001
"""The member whom the page erases, and the device that nobody else ever wore."""


def blocks(language: str) -> list[str]:
    """The page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The commands to run, one a line, without their comments."""
    return [line.partition("   #")[0].partition("  #")[0].strip() for block in blocks("bash") for line in block.splitlines()]


class Shell:
    """A bash that keeps running, so that a command finds the variables that an earlier one set."""

    def __init__(self, folder: Path) -> None:
        self._output, self._code = folder / ".output", folder / ".code"
        self._bash = subprocess.Popen(["bash"], cwd=folder, stdin=subprocess.PIPE, text=True, start_new_session=True)

    def run(self, command: str, seconds: float = 400) -> tuple[int, str]:
        """Run a command. Returns its exit code and what it printed."""
        self._code.unlink(missing_ok=True)
        assert self._bash.stdin
        written = f"{{ {command}\n}} >{self._output} 2>&1 </dev/null; echo $? >{self._code}.partial; mv {self._code}.partial {self._code}\n"
        self._bash.stdin.write(written)
        self._bash.stdin.flush()
        until(self._code.exists, seconds, f"'{command}'")
        return int(self._code.read_text()), self._output.read_text(errors="replace")

    def end(self) -> None:
        assert self._bash.stdin
        self._bash.stdin.close()
        self._bash.wait(120)


@dataclass
class Operated:
    """The result of the page's commands. told: each command with its output. runs, tasks: what Airflow had before it was stopped."""

    settings: Settings
    told: list[tuple[str, str]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    tasks: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)

    def __getitem__(self, start: str) -> str:
        """What the first command that starts so printed, in single spaces."""
        return self.all(start)[0]

    def all(self, start: str) -> list[str]:
        """What each command that starts so printed, in single spaces."""
        return [re.sub(r"[ \t]+", " ", text) for command, text in self.told if command.startswith(start)]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The runs of a type, by their dates."""
        return sorted((run for run in self.runs if run["run_type"] == kind), key=lambda run: str(run["logical_date"]))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """The page, run as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        root = tmp_path_factory.mktemp("operate")
        made = Operated(make_checkout(root, patch, {"gym.py": ROOT / "dags" / "gym.py"}, stand_in=False).settings)
        (root / "airflow").symlink_to(ROOT / "airflow")
        (root / ".venv").symlink_to(sys.prefix)
        patch.setenv("SLUICE_AIRFLOW_PORT", str(find_free_port()))
        shell = Shell(root)
        wait_past_schedule(minutes=20)
        try:
            # What these targets do once all is set up.
            shell.run('make() { .venv/bin/python -m sluice.cli "$1"; }')
            for command in commands():
                if command == "make down":
                    look(made)
                began = time.monotonic()
                code, text = shell.run(command)
                print(f"{time.monotonic() - began:6.1f} s  {command}")
                assert code == 0, f"{command}: exit code {code}\n{text}"
                made.told.append((command, text))
            yield made
        finally:
            shell.end()
            stop_running_airflow(made.settings)
            shutil.rmtree(root, ignore_errors=True)


def look(made: Operated) -> None:
    """Note what Airflow has once nothing is running, and take the pictures."""
    running = find_running_airflow(made.settings)
    assert running
    airflow = local_airflow_client(made.settings, running[1])
    until(lambda: not airflow.runs("gym", *OPEN_STATES), 400, "the end of the runs")
    made.runs = airflow.runs("gym")
    made.tasks = {run["dag_run_id"]: airflow.tasks("gym", run["dag_run_id"]) for run in made.runs}
    if missing() is None:
        made.pictures = taken(airflow, "gym")


def test_all_commands_are_marked() -> None:
    assert set(re.findall(r"^```(.+)$", PAGE.read_text(), re.MULTILINE)) == {"bash", "text"}
    assert len(commands()) > 40
    assert not [command for command in commands() if "AIRFLOW=2" in command or "docker" in command]


def test_commands_in_the_text_are_there() -> None:
    """What stands in the text and is not run has the names and options that the command line knows."""
    import typer

    from sluice.cli import app

    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    group = typer.main.get_command(app)
    found = [shlex.split(line)[1:] for line in re.findall(r"`(?:SLUICE_\w+=\w+ )?(sluice [^`]+)`", text)]
    assert len(found) > 10
    for words in found:
        command: Any = group
        while hasattr(command, "commands"):
            assert words and words[0] in command.commands, words
            command, words = command.get_command(None, words[0]), words[1:]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options | {"--help"}, words


def test_it_starts(page: Operated) -> None:
    assert [re.findall(r"Landed (\d+) files", text) for text in page.all("sluice land")] == [["18"], ["9"]]
    first = page["sluice plan gym"]
    assert re.search(r"readings ingest 10 ", first), first
    assert "log in as" in page["make up"] and "log files" in page["make up"]
    assert [run["state"] for run in page.of_type("scheduled")] == ["success"]


def test_half_a_form_fails_at_its_first_task_without_a_retry(page: Operated) -> None:
    (run,) = [run for run in page.runs if run["dag_run_id"] == "half-a-form"]
    tasks = page.tasks["half-a-form"]
    assert run["state"] == "failed"
    assert (tasks["bronze"]["state"], tasks["bronze"]["try_number"]) == ("failed", 1)
    assert tasks["silver"]["state"] == "upstream_failed"
    assert re.search(r"bronze \| failed", page["./airflow tasks states-for-dag-run gym half-a-form"])
    assert "half-a-form" in page["./airflow dags list-runs gym"]


def test_backfills_say_what_they_will_do_and_what_they_did(page: Operated) -> None:
    days = "--from 2026-11-01 --to 2026-11-02"
    assert "a backfill of 2026-11-01 to 2026-11-02" in page[f"sluice plan gym {days}"]
    assert "Nothing was started." in page[f"sluice backfill gym {days} --dry-run"]
    whole = page.all(f"sluice backfill gym {days}")[1]
    assert re.search(r"2026-11-01 to 2026-11-02 success", whole), whole
    daily = page[f"sluice backfill gym {days} --table heart_rate --per-interval"]
    assert re.search(r"2026-11-01 success.*\n.* 2026-11-02 success", daily), daily
    assert page["sluice backfill gym --cancel"] == "Nothing to end.\n"
    first, last = page.of_type("backfill")
    assert [run["conf"]["tables"] for run in (first, last)] == [["heart_rate"]] * 2
    for stage in ("optimize", "vacuum", "verify"):
        assert [page.tasks[run["dag_run_id"]][stage]["state"] for run in (first, last)] == ["skipped", "success"]
    for command in ("./airflow backfill create", "./airflow dags backfill"):
        planned = re.findall(r"^\| (20\S+) ", page[command], re.MULTILINE)
        assert planned == ["2026-11-01", "2026-11-02"], page[command]
    assert len(page.of_type("backfill")) == 2, "a dry run makes none"


def test_a_cleared_task_runs_again_and_no_other(page: Operated) -> None:
    tasks = page.tasks[page.of_type("backfill")[-1]["dag_run_id"]]
    assert {name: task["try_number"] for name, task in tasks.items() if not name.startswith("publish_")} == {
        **dict.fromkeys(["bronze", "silver", "gold", "propagate_deletions", "optimize", "verify"], 1),
        "vacuum": 2,
    }


def test_tables_are_compared_with_their_recompute(page: Operated) -> None:
    told = page["sluice verify gym"]
    assert re.search(r"^device_day \d+ equal 0 0 0 ", told, re.MULTILINE), told
    assert re.search(r"^heart_rate \d+ equal 0 0 0 ", told, re.MULTILINE), told


def test_exit_codes(page: Operated) -> None:
    assert page["make down"] == "Airflow has stopped.\n"
    refused = page["sluice backfill gym --from 2026-11-02 --to 2026-11-02 ||"]
    assert refused.endswith("exit code 1\n") and "--local" in refused
    wrong = page["sluice run gim"]
    assert wrong.endswith("exit code 2\n") and "Did you mean 'gym'?" in wrong
    with (Path(PipelineRecords(page.settings, "gym").bookkeeping()) / "lease.lock").open("r+b") as lease:
        fcntl.lockf(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = subprocess.run(
            [sys.executable, "-m", "sluice.cli", "run", "gym", "--stage", "vacuum"], capture_output=True, text=True, check=False
        )
    assert held.returncode == 3 and "is being written by" in held.stderr, held


def test_without_airflow(page: Operated) -> None:
    local = page["sluice backfill gym --from 2026-11-02 --to 2026-11-02 --local"]
    assert re.search(r"2026-11-02 success", local), local
    assert page["sluice stop gym"] == "Nothing runs on 'gym'.\n"
    assert re.search(r"device_day (recompute|refresh)\w*", page["sluice plan gym --mode refresh"])
    assert "gym gold, refresh, run" in page["sluice run gym --mode refresh"]


def test_what_there_is(page: Operated) -> None:
    status, at_the_end = page.all("sluice status gym")
    for table in ("bronze readings", "silver heart_rate", "gold device_day"):
        assert table in status
    waiting = status.partition("Waiting")[2]
    assert re.search(r"readings 5 \d", waiting), "five files have not been discovered"
    for found in (status, at_the_end):
        assert "Freshness" in found and re.search(r"readings [\d,]+ [\d,]+ .*OK", found.partition("Records")[2]), found
    assert "Waiting" not in at_the_end
    assert "replay" in page["sluice runs gym"] and "refresh" in page["sluice runs gym"]
    assert page["sluice ledger gym"].count("ingested") == 18
    assert "MERGE" in page["sluice history gym.heart_rate"]
    assert str(DEVICE) in page["sluice show gym.device_day"]
    assert re.search(r"\d{3}", page["sluice sql"])


def test_a_checkpoint_is_given_up(page: Operated) -> None:
    shown = page["sluice checkpoint show gym"]
    assert {"gym.bronze_readings", "gym.silver_heart_rate", "gym.gold_device_day"} <= set(shown.split())
    assert "is reset" in page["sluice checkpoint reset gym.device_day"]
    after = page.all("sluice plan gym")[-1]
    assert re.search(r"device_day recompute", after), after


def test_quarantine_and_erasure(page: Operated) -> None:
    assert re.search(r"^readings the line is no JSON object 3 3 ?$", page["sluice quarantine list gym"], re.MULTILINE)
    assert "positive_heart_rate" in page["sluice quarantine show gym heart_rate"]
    assert page["echo "] == page["rm people.txt"] == "", "the file that the request reads"
    assert "Request" in page["sluice erase request gym"]
    listed = page["sluice erase list gym"]
    assert re.search(r"user_id 1 logically erased 20\S+ 20\S+ 20\S+ 20\S+", listed), listed
    assert str(ERASED) not in page["sluice erase request gym"] + page["sluice erase run gym"] + listed


def test_the_tables_are_the_truth_without_the_erased(page: Operated) -> None:
    maker = loading.load_delivery_maker(loading.load_pipeline_declaration(page.settings, "gym"))
    expected = maker.expected(page.settings.truth / "gym")
    for name, layer in {"heart_rate": "silver", "device_day": "gold"}.items():
        rows = [row for row in expected[name] if row["device_id"] != DEVICE]
        found = DeltaTable(PipelineRecords(page.settings, "gym").table_path(layer, name)).to_pyarrow_table().to_pylist()
        assert rows and compare_with_truth(name, rows, found).equal


@pytest.fixture
def pictures(page: Operated) -> dict[str, Picture]:
    """The pictures of this run."""
    if lacking := missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{lacking} is missing; the pictures need it")
    if KEEP_IMAGES:
        IMAGES.mkdir(exist_ok=True)
        for name, picture in page.pictures.items():
            (IMAGES / name).write_bytes(picture.png)
    return page.pictures


def test_the_pictures_show_the_grid_and_the_form(pictures: dict[str, Picture]) -> None:
    assert {name: picture.size for name, picture in pictures.items()} == {
        "grid.png": (1400, 900),
        "trigger-form.png": (1000, 1230),
        "report.png": (1280, 1000),
    }
    for picture in pictures.values():
        assert 30_000 < len(picture.png) < 300_000, "an empty page has less"
    grid, form = pictures["grid.png"].text, pictures["trigger-form.png"].text
    groups, tasks = ("layers", "publish", "upkeep"), ("Silver: clean and typed", "Publish device_day", "Optimize")
    for word in (*groups, *tasks, "Scheduled", "Manual", "Backfill", "Success", "Failed", "half-a-form"):
        assert word in grid
    for word in ("Mode", "From", "To", "Tables", "increment: what is new since the last run", "replay: the first day (UTC)."):
        assert word in form
    for word in ("last run", "CPU seconds", "device_day", "rows", "old"):
        assert word in pictures["report.png"].text


def test_the_page_has_its_pictures() -> None:
    named = re.findall(r"\]\((images/\S+)\)", PAGE.read_text())
    assert sorted(named) == ["images/grid.png", "images/trigger-form.png"]
    for name in named:
        kept = Picture((PAGE.parent / name).read_bytes(), "")
        assert kept.size[0] >= 1000 and 30_000 < len(kept.png) < 300_000
