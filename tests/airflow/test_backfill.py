"""What `./airflow` makes of a backfill's arguments, which intervals a schedule has, and the same by spark-submit alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkout import ROOT
from tests.commands import Call, call_command

from orchestration.airflow_line import airflow_line
from orchestration.backfill import arguments as backfill_arguments
from orchestration.backfill import checks, through_airflow
from orchestration.backfill.arguments import translate_airflow_arguments
from orchestration.backfill.through_airflow import BackfillRequest, find_failure_reason
from orchestration.rest.client import DagMissing
from sluice.declare.interval import Interval
from sluice.declare.schedule_intervals import data_intervals_starting_within, whole_days_replayed
from sluice.errors import SluiceError, StopRequested, UsageError

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

LAST = "2026-02-01T02:00:00+00:00"
"""When the last interval of gym's January ends: its schedule is 02:00."""


@pytest.fixture(params=[2, 3])
def line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(backfill_arguments, "airflow_line", lambda: request.param)
    return int(request.param)


@pytest.fixture
def line_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_arguments, "airflow_line", lambda: 3)


@pytest.fixture
def line_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_arguments, "airflow_line", lambda: 2)


def options(arguments: list[str]) -> dict[str, Any]:
    """Every option with its value; True for a flag."""
    found: dict[str, Any] = {}
    for word, following in pairwise([*arguments, "--"]):
        if word.startswith("--"):
            found[word] = True if following.startswith("--") else following
    return found


def of_3(arguments: str) -> dict[str, Any]:
    given = translate_airflow_arguments(["dags", "backfill", *arguments.split()])
    assert given[:2] == ["backfill", "create"]
    return options(given)


@pytest.mark.parametrize(
    "arguments", ["dags list", "dags trigger gym -c {}", "tasks clear gym -s 2026-01-01", "db migrate", "version", ""]
)
def test_everything_else_passes_unchanged(checkout: Checkout, line: int, arguments: str) -> None:
    assert translate_airflow_arguments(arguments.split()) == arguments.split()


def test_the_old_command_is_handed_to_the_new_one(checkout: Checkout, line_3: None) -> None:
    assert of_3("gym -s 2026-01-01 -e 2026-01-31 -y") == {
        "--dag-id": "gym",
        "--from-date": "2026-01-01",
        "--to-date": "2026-01-31T23:59:59",
        "--reprocess-behavior": "completed",
        "--max-active-runs": "1",
        "--dag-run-conf": json.dumps({"upkeep_from": LAST}),
    }


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("--rerun-failed-tasks", {"--reprocess-behavior": "failed"}),
        ("--reset-dagruns", {"--reprocess-behavior": "completed"}),
        ("--max-active-runs 3", {"--max-active-runs": "3"}),
        ("--dry-run", {"--dry-run": True}),
        ("-n", {"--dry-run": True}),
        ('-c {"tables":["x"]}', {"--dag-run-conf": json.dumps({"tables": ["x"], "upkeep_from": LAST})}),
        ('--conf={"upkeep_from":null}', {"--dag-run-conf": json.dumps({"upkeep_from": None})}),
        ("-B", {"--run-backwards": True, "--dag-run-conf": "{}"}),
        ("-x -I --continue-on-failures -v", {}),
    ],
)
def test_options_that_have_a_counterpart(checkout: Checkout, line_3: None, more: str, expected: dict[str, Any]) -> None:
    plain = of_3("gym -s 2026-01-01 -e 2026-01-31")
    assert of_3(f"gym --start-date 2026-01-01 --end-date=2026-01-31 {more}") == plain | expected


def test_one_date_is_one_day_and_an_instant_stays(checkout: Checkout, line_3: None) -> None:
    for one in ("-s 2026-01-05", "-e 2026-01-05"):
        given = of_3(f"gym {one}")
        assert (given["--from-date"], given["--to-date"]) == ("2026-01-05", "2026-01-05T23:59:59")
    for day in ("20260105", "2026-W02-1"):
        assert of_3(f"gym -s 2026-01-05 -e {day}")["--to-date"] == "2026-01-05T23:59:59"
    assert of_3("gym -s 2026-01-05 -e 2026-01-06T02:00")["--to-date"] == "2026-01-06T02:00"


@pytest.mark.parametrize(
    "option",
    ["-t bronze", "-i", "-m", "-l", "--disable-retry", "-S dags", "--pool p", "--delay-on-limit 1", "--treat-dag-id-as-regex"],
)
def test_options_without_a_counterpart_are_refused_with_what_to_do(checkout: Checkout, line_3: None, option: str) -> None:
    with pytest.raises(UsageError, match=r"has no counterpart on Airflow 3\. [A-Z]"):
        of_3(f"gym -s 2026-01-01 {option}")


@pytest.mark.parametrize("option", ["--treat-dag-as-regex", "--treat-dag-id-as-regex"])
def test_airflow_2_gets_no_pattern_either_whose_schedules_nobody_holds(checkout: Checkout, line_2: None, option: str) -> None:
    with pytest.raises(UsageError, match="one DAG after the other"):
        translate_airflow_arguments(["dags", "backfill", "g.m", "-s", "2026-01-01", option])


def test_backfill_create_gets_what_is_missing_and_keeps_what_is_given(checkout: Checkout, line_3: None) -> None:
    plain = ["backfill", "create", "--dag-id", "gym", "--from-date", "2026-01-01", "--to-date", "2026-01-31"]
    given = options(translate_airflow_arguments(plain))
    assert given["--to-date"] == "2026-01-31T23:59:59"
    assert (given["--reprocess-behavior"], given["--max-active-runs"]) == ("completed", "1")
    assert json.loads(given["--dag-run-conf"]) == {"upkeep_from": LAST}
    kept = options(
        translate_airflow_arguments([
            *plain,
            "--reprocess-behavior",
            "none",
            "--max-active-runs",
            "2",
            "--no-run-on-latest-version",
        ])
    )
    assert (kept["--reprocess-behavior"], kept["--max-active-runs"], kept["--no-run-on-latest-version"]) == ("none", "2", True)
    incomplete = ["backfill", "create", "--dag-id", "gym"]
    assert translate_airflow_arguments(incomplete) == incomplete, "Airflow says what is missing"


def test_upkeep_is_in_the_last_run_that_there_will_be(checkout: Checkout, line_3: None) -> None:
    before = datetime.now(UTC)
    given = of_3(f"gym -s {before.date() - timedelta(days=5)} -e {before.date() + timedelta(days=5)}")
    since = datetime.fromisoformat(json.loads(given["--dag-run-conf"])["upkeep_from"])
    assert before - timedelta(days=1) < since <= datetime.now(UTC), "Airflow leaves out intervals that are not over"


def test_on_airflow_2_days_that_ran_are_taken_again(checkout: Checkout, line_2: None) -> None:
    given = translate_airflow_arguments(["dags", "backfill", "gym", "-s", "2026-01-01", "-e", "2026-01-31", "--pool", "p", "-B"])
    assert given[:3] == ["dags", "backfill", "gym"]
    assert options(given) == {
        "--start-date": "2026-01-01",
        "--end-date": "2026-01-31T23:59:59",
        "--conf": "{}",
        "--pool": "p",
        "--run-backwards": True,
        "--reset-dagruns": True,
        "--yes": True,
    }
    conf = options(translate_airflow_arguments(["dags", "backfill", "gym", "-s", "2026-01-01", "-e", "2026-01-31"]))["--conf"]
    assert json.loads(conf) == {"upkeep_from": LAST}
    failed = options(translate_airflow_arguments(["dags", "backfill", "gym", "-s", "2026-01-01", "--rerun-failed-tasks"]))
    assert "--reset-dagruns" not in failed and "--yes" not in failed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("gym", "needs its days"),
        ("gym -s 2026-02-01 -e 2026-01-01", "lies after its end"),
        ("gym -s 2026-02-31", "is no date"),
        ("gym -s soon", "is no date"),
        ("gym -s 2026-01-01 -c [1]", "is no JSON object"),
        ("gym -s 2026-01-01 -c {", "is no JSON object"),
        ("gym -s 2026-01-01 --what", "unrecognized arguments: --what"),
        ("", "required: dag_id"),
    ],
)
def test_wrong_arguments_are_refused(checkout: Checkout, line: int, arguments: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        translate_airflow_arguments(["dags", "backfill", *arguments.split()])


def test_another_dag_than_a_pipelines_gets_no_conf(checkout: Checkout, line_3: None) -> None:
    given = of_3("other -s 2026-01-01 -e 2026-01-02")
    assert "--dag-run-conf" not in given and given["--to-date"] == "2026-01-02T23:59:59"


def test_without_a_running_airflow_it_says_what_the_runs_wait_for(
    checkout: Checkout, line_3: None, capsys: pytest.CaptureFixture[str]
) -> None:
    of_3("gym -s 2026-01-01")
    assert "./airflow dags unpause gym" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        "gym -s 2026-01-01 -e 2026-01-31",
        'gym -s 2026-01-01 -e 2026-01-31T02:00 -c {"tables":["heart_rate"]} -B',
        "gym -s 2026-01-01 --rerun-failed-tasks",
        "gym -s 2026-01-01 -n",
    ],
)
def test_airflows_own_parser_takes_it(checkout: Checkout, arguments: str) -> None:
    from airflow.cli import cli_parser

    parsed: argparse.Namespace = cli_parser.get_parser().parse_args(
        translate_airflow_arguments(["dags", "backfill", *arguments.split()])
    )
    assert parsed.dag_id == "gym"
    if airflow_line() == 3:
        assert parsed.max_active_runs == 1 and parsed.from_date < parsed.to_date


@pytest.mark.parametrize("schedule", ["0 2 * * *", "30 17 * * *", "@daily", "0 * * * *", "15 6 * * 1", "0 0 1 * *"])
def test_intervals_are_those_of_airflows_timetable(checkout: Checkout, schedule: str) -> None:
    from airflow.timetables.base import TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable
    from pendulum import instance

    days = Interval.of("2026-01-30", "2026-03-02")
    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    limits = TimeRestriction(instance(days.start), instance(days.end - timedelta(seconds=1)), catchup=True)
    expected, info = [], timetable.next_dagrun_info(last_automated_data_interval=None, restriction=limits)
    while info is not None and info.data_interval is not None:
        expected.append(Interval(info.data_interval.start, info.data_interval.end))
        info = timetable.next_dagrun_info(last_automated_data_interval=info.data_interval, restriction=limits)
    assert expected and data_intervals_starting_within(schedule, days) == expected


@pytest.mark.parametrize("schedule", ["0 2 * * *", "30 17 * * *", "0 0 * * *"])
def test_the_runs_of_some_days_replay_these_days_whatever_the_hour(schedule: str) -> None:
    days = Interval.of("2026-01-30", "2026-03-02")
    assert [whole_days_replayed(one) for one in data_intervals_starting_within(schedule, days)] == days.days()


def test_an_hour_is_replayed_as_it_is() -> None:
    hours = data_intervals_starting_within("30 * * * *", Interval.of("2026-01-30", "2026-01-30"))
    assert len(hours) == 24 and [whole_days_replayed(one) for one in hours] == hours


def test_a_schedule_that_is_none() -> None:
    with pytest.raises(UsageError, match="'every day' is no cron expression"):
        data_intervals_starting_within("every day", Interval.of("2026-01-30", "2026-01-30"))


class UnknowingClient:
    """The client of an Airflow that never has the DAG; nobody waits for it in earnest."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait_for_dag(self, dag: str, seconds: float) -> None:
        self.waited.append(seconds)
        raise DagMissing(f"Airflow has no DAG '{dag}'")


@pytest.mark.parametrize(("dag", "waited"), [("gym", [15, 600]), ("gim", [30])])
def test_a_dag_without_a_file_of_its_name_is_not_waited_for_long(checkout: Checkout, dag: str, waited: list[float]) -> None:
    client: Any = UnknowingClient()
    with pytest.raises(DagMissing):
        checks.wait_for_dag_of_checkout(checkout.settings, client, dag)
    assert client.waited == waited


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("from pipelines.gym.pipeline import PIPELINE\n", "makes no DAG 'shop', so Airflow never has one. A DAG file"),
        ((ROOT / "dags" / "gym.py").read_text(), "makes no DAG 'shop', so Airflow never has one. It makes 'gym'. A DAG file"),
        ("import what_nobody_has\n", None),
    ],
)
def test_a_file_without_its_dag_is_told_at_once(checkout: Checkout, tmp_path: Path, content: str, said: str | None) -> None:
    """An error of an import is told by Airflow itself."""
    (tmp_path / "include").symlink_to(ROOT / "include")
    (tmp_path / "environments").symlink_to(ROOT / "environments")
    file = tmp_path / "dags" / "shop.py"
    file.parent.mkdir()
    file.write_text(content)
    client: Any = UnknowingClient()
    with pytest.raises(UsageError if said else DagMissing) as refused:
        checks.wait_for_dag_of_checkout(replace(checkout.settings, root=tmp_path), client, "shop")
    assert client.waited == ([15] if said else [15, 600])
    assert said is None or f"{file} {said}" in str(refused.value)


def test_the_reason_is_what_the_job_said() -> None:
    log = [
        "[2026] {spark_submit.py:644} INFO - sluice silver: Flow 'x': it failed",
        "raise AirflowException(",
        "::endgroup::",
        "  ",
    ]
    assert find_failure_reason(log) == "Flow 'x': it failed"
    assert find_failure_reason(["starts", "the worker died", "::group::", "Task failed with exception"]) == "the worker died"
    assert find_failure_reason([]) == "its log is empty"


@pytest.fixture
def backfill(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda *arguments: call_command(capsys, "backfill", *arguments)


@pytest.fixture
def records(checkout: Checkout) -> Iterator[Path]:
    checkout.records.unlink(missing_ok=True)
    yield checkout.records
    checkout.records.unlink(missing_ok=True)


def jobs(records: Path) -> list[dict[str, str]]:
    calls = [json.loads(line)["argv"] for line in records.read_text().splitlines()] if records.exists() else []
    return [{**dict(pairwise(call)), "stage": next(Path(word).stem for word in call if word.endswith(".py"))} for call in calls]


STAGES = ["bronze", "silver", "gold", "propagate_deletions", "optimize", "vacuum", "verify"]


def test_local_does_the_stages_by_spark_submit(records: Path, backfill: Call) -> None:
    code, out, err = backfill("gym", "--from", "2026-01-01", "--to", "2026-01-03", "--table", "heart_rate", "--local", "--json")
    assert code == 0, err
    told = jobs(records)
    assert [job["stage"] for job in told] == STAGES
    for job in told:
        assert (job["--from"], job["--to"]) == ("2026-01-01T00:00:00+00:00", "2026-01-04T00:00:00+00:00")
        assert (job["--mode"], job["--tables"], job["--master"]) == ("replay", "heart_rate", "local[2]")
    assert len({job["--run-id"] for job in told}) == 1
    (run,) = json.loads(out.splitlines()[-1])["runs"]
    assert (run["state"], run["rows"]) == ("success", 14)


def test_local_per_interval_does_upkeep_once(records: Path, backfill: Call) -> None:
    code, _, err = backfill("gym", "--from", "2026-01-01", "--to", "2026-01-02", "--per-interval", "--local")
    assert code == 0, err
    told = jobs(records)
    assert [job["stage"] for job in told] == [*STAGES[:4], *STAGES]
    assert [job["--from"][:10] for job in told if job["stage"] == "bronze"] == ["2026-01-01", "2026-01-02"]


def test_local_fails_with_the_reason_and_goes_no_further(records: Path, backfill: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_EXIT", "1")
    code, _, err = backfill("gym", "--from", "2026-01-01", "--to", "2026-01-02", "--local")
    assert code == 1 and "task 'bronze'" in err and "There is no table 'hart_rate'" in err
    assert len(jobs(records)) == 1
    monkeypatch.setenv("STAND_IN_EXIT", "2")
    assert backfill("gym", "--from", "2026-01-01", "--to", "2026-01-02", "--local")[0] == 2


def test_local_ends_with_the_exit_code_of_a_held_lease(records: Path, backfill: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_EXIT", "3")
    code, _, err = backfill("gym", "--from", "2026-01-01", "--to", "2026-01-02", "--per-interval", "--local")
    assert code == 3, err
    assert len(jobs(records)) == 1, "the next interval would wait for the same holder"


def test_local_that_somebody_stops_has_failed(records: Path, backfill: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> Iterator[None]:
        raise StopRequested("gym: stopped by sluice stop")
        yield

    monkeypatch.setattr(through_airflow, "replay_by_spark_submit", stop)
    code, _, err = backfill("gym", "--from", "2026-01-01", "--to", "2026-01-02", "--local")
    assert (code, "asked the job to stop" in err) == (1, True), err


class CancellingClient:
    """The client of an Airflow 3 with the runs of one backfill. To cancel it ends those that wait, and not the one that runs."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)

    def runs(self, dag: str, *states: str) -> list[dict[str, Any]]:
        every = [
            {"dag_run_id": str(position), "run_type": "backfill", "state": state} for position, state in enumerate(self.states)
        ]
        return [run for run in every if run["state"] in states]

    def request(self, method: str, path: str, body: Any = None, accept: tuple[int, ...] = ()) -> Any:
        if path.endswith("/cancel"):
            self.states = ["failed" if state == "queued" else state for state in self.states]
        if method == "PATCH":
            self.states[int(path.rsplit("/", 1)[1])] = body["state"]
        return {"backfills": [{"id": 1, "completed_at": None}]}


@pytest.mark.parametrize("first", ["success", "running"])
def test_cancel_counts_the_runs_that_airflow_ended(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    monkeypatch.setattr(checks, "airflow_line", lambda: 3)
    client: Any = CancellingClient(first, *["queued"] * 29)
    assert through_airflow.cancel_backfills(checkout.settings, client, "gym") == (30 if first == "running" else 29)
    assert set(client.states) <= {"success", "failed"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("gim --from 2026-01-01 --to 2026-01-02", 2, "Did you mean 'gym'?"),
        ("gym --from 2026-01-01 --to 2026-01-02 --table hart_rate", 2, "Did you mean 'heart_rate'?"),
        ("gym --from 2026-01-02 --to 2026-01-01", 2, "Swap them"),
        ("gym --from 2026-01-01", 2, "--from FIRST_DAY --to LAST_DAY"),
        ("gym --from 2026-01-01T02:00 --to 2026-01-02", 2, "whole days"),
        ("gym --from 1st --to 2026-01-02", 2, "is no date"),
        ("gym --from 2199-01-01 --to 2199-01-02", 2, "lies in the future"),
        ("gym --from 2026-01-01 --to 2026-01-02", 1, "make up"),
        ("gym --from 2026-01-01 --to 2026-01-02 --per-interval", 1, "--local"),
        ("gym --from 2026-01-01 --to 2026-01-02 --local --no-wait", 2, "--no-wait"),
        *((f"gym --cancel {option}", 2, "--cancel") for option in ("--dry-run", "--from 2026-01-01", "--json", "--no-wait")),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    checkout: Checkout, records: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, message: str
) -> None:
    ended, _, said = call_command(capsys, "backfill", *arguments.split())
    assert (ended, message in said) == (code, True), said
    assert jobs(records) == []


def test_a_dry_run_lists_the_runs_and_starts_none(records: Path, backfill: Call) -> None:
    today = datetime.now(UTC).date()
    code, out, err = backfill(
        "gym", "--from", str(today - timedelta(days=3)), "--to", str(today), "--per-interval", "--dry-run", "--json"
    )
    assert code == 0, err
    planned = json.loads(out.splitlines()[-1])["planned"]
    assert 2 <= len(planned) <= 3 and planned[0] == str(today - timedelta(days=3))
    assert "Left out, since not over yet" in out and f"{len(planned)} runs" in out
    assert jobs(records) == []


class AnswerLost:
    """An Airflow that began a backfill, whose answer was lost, so that the repeated request is refused."""

    def __init__(self, **began: Any) -> None:
        self.began = began

    def is_paused(self, dag: str) -> bool:
        return False

    def runs(self, dag: str, *states: str) -> list[dict[str, Any]]:
        return []

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        if method == "POST":
            assert body is not None
            self.began = {**body, "completed_at": None, "is_paused": False, **self.began}
            raise SluiceError("Airflow's API answered 409 to POST /backfills: already running.")
        if path.startswith("/backfills"):
            return {"backfills": [self.began] if "dag_id" in self.began else []}
        return {"dag_runs": [], "total_entries": 0}


def test_a_backfill_whose_answer_was_lost_is_followed_and_another_is_not(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(through_airflow, "airflow_line", lambda: 3)
    monkeypatch.setattr(checks, "airflow_line", lambda: 3)
    days = [Interval(datetime(2026, 1, day, tzinfo=UTC), datetime(2026, 1, day + 1, tzinfo=UTC)) for day in (1, 2)]
    asked = BackfillRequest("gym", Interval(days[0].start, days[-1].end), (), tuple(days))
    client: Any = AnswerLost(from_date="2026-01-01T00:00:00Z")
    assert through_airflow.start_backfill_per_interval(checkout.settings, client, asked).runs == tuple(days)
    client = AnswerLost(dag_run_conf={"tables": ["another"]})
    with pytest.raises(SluiceError, match="409"):
        through_airflow.start_backfill_per_interval(checkout.settings, client, asked)
