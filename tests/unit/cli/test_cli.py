"""The command line without Spark: names, dates, options, exit codes, and what it prints for machines."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.commands import Call, use_roots_of

from orchestration.backfill import checks
from orchestration.spark_submit.stop_requests import ask_killed_job_to_stop, concerns_killed_job
from sluice.cli import COMMANDS, CommandEntry, load_command, main
from sluice.cli.monitoring import standing
from sluice.cli.setup import machine
from sluice.errors import DeclarationError
from sluice.ingest import delivery_tables
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.lease import holder
from sluice.settings import Settings

ONE_AFTER_THE_OTHER = """
import io, json, os, sys
from sluice.cli import main
for command, variables in json.loads(sys.argv[1]):
    sys.stdin, before, code = io.StringIO('42\\n'), dict(os.environ), 0
    os.environ.update(variables)
    try:
        main(command)
    except SystemExit as ended:
        code = ended.code
    os.environ.clear()
    os.environ.update(before)
    loaded = [name for name in ('pyspark', 'airflow') if name in sys.modules]
    print('END ' + json.dumps([command, code, loaded]))
"""
LOADED = """
import json, sys
from sluice.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    heavy = ('airflow', 'deltalake', 'numpy', 'pandas', 'pyarrow', 'pyspark', 'sqlglot', 'rich')
    print(json.dumps([ended.code, [name for name in heavy if name in sys.modules]]))
"""

pytestmark = pytest.mark.usefixtures("root_folders")


def last_line(out: str) -> dict[str, object]:
    loaded = json.loads(out.splitlines()[-1])
    assert isinstance(loaded, dict)
    return loaded


def describe_holder(settings: Settings, pid: int, since: datetime, host: str | None = None) -> None:
    folder = Path(PipelineRecords(settings, "gym").bookkeeping())
    folder.mkdir(parents=True)
    told = {"run": "r1", "pid": pid, "host": host or socket.gethostname(), "since": since.isoformat()}
    (folder / "lease.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("status", "gim"), "'gym'"),
        (("run", "gim"), "'gym'"),
        (("run", "gym", "--stage", "silvr"), "'silver'"),
        (("run", "gym", "--mode", "refesh"), "'refresh'"),
        (
            ("run", "gym", "--mode", "refresh"),
            "--mode refresh needs --table TABLE: what to make from scratch, with everything that reads it.",
        ),
        (("plan", "gym", "--mode", "refresh"), "--mode refresh needs --table TABLE: what to make from scratch"),
        (("run", "gym", "--mode", "refresh", "--table", "heart_rat"), "'heart_rate'"),
        (("run", "gym", "--mode", "replay", "--from", "yesterday"), "--to"),
        (("run", "gym", "--mode", "replay", "--from", "yesterday", "--to", "2026-11-21"), "is no date"),
        (("run", "gym", "--mode", "replay", "--from", "2026-11-02", "--to", "2026-11-01"), "before"),
        (
            ("run", "gym", "--from", "2026-11-01"),
            "--mode increment takes no days. Leave out --from and --to, or choose --mode replay.",
        ),
        (("plan", "gym", "--mode", "refresh", "--from", "2026-11-01", "--to", "2026-11-02"), "--mode refresh takes no days."),
        (
            ("run", "gym", "--table", "heart_rate"),
            "--mode increment takes what is new since the last run, for all tables. Leave out --table TABLE, or choose --mode replay or "
            "--mode refresh.",
        ),
        (("plan", "gym", "--table", "heart_rate"), "for all tables. Leave out --table TABLE"),
        (("run", "gym", "--keep-running", "--table", "heart_rate"), "for all tables. Leave out --table TABLE"),
        (("show", "gym.hart_rate"), "'heart_rate'"),
        (("show", "heart_rate"), "<pipeline>.<table>"),
        (("history", "gim.heart_rate"), "'gym'"),
        (("history", "gim"), "There is no pipeline 'gim'. Did you mean 'gym'?"),
        (("history", "device_day"), "write it as <pipeline>.<table>. Did you mean 'gym.device_day'?"),
        (("show", "device_dy"), "write it as <pipeline>.<table>. Did you mean 'gym.device_day'?"),
        (("show", "gym"), "'gym' is a pipeline. Its tables: gym."),
        (("restore", "device_day", "--to", "1"), "Did you mean 'gym.device_day'?"),
        (("checkpoint", "reset", "device_day"), "Did you mean 'gym.device_day'?"),
        (("ledger", "gym", "--state", "ingestd"), "'ingested'"),
        (("land", "gym", "--until", "2026-11-01"), "--until. It takes: --days, --seed, --scale"),
        (("land", "gym", "--days", "0"), "at least 1"),
        (("quarantine", "show", "gym", "hart_rate"), "'heart_rate_quarantine'"),
        (("check", "gim"), "'gym'"),
        (("erase", "status", "gim"), "no pipeline, and no erasure request, 'gim'. Did you mean 'gym'"),
        (("stop", "gim"), "'gym'"),
    ],
)
def test_wrong_use_is_one_line_with_a_hint_and_exits_with_two(call: Call, arguments: tuple[str, ...], hint: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("sluice: ")
    assert err.count("\n") == 1
    assert hint in err


def test_what_typer_refuses_exits_with_two(call: Call) -> None:
    assert call("statu")[0] == 2
    assert call("show", "gym.device_day", "--limit", "0")[0] == 2


def test_a_failure_that_is_nobodys_mistake_exits_with_one_and_shows_no_trace(
    call: Call, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_ledger, "list_pipeline_tables", lambda *_: 1 / 0)
    code, _, err = call("status", "gym")
    assert code == 1
    assert err == "sluice: ZeroDivisionError in Sluice itself. SLUICE_DEBUG=1 shows where (and may show data).\n"


def test_a_declared_table_that_is_not_there_yet_is_no_wrong_name(call: Call) -> None:
    code, _, err = call("show", "gym.device_day")
    assert (code, err) == (
        1,
        "sluice: Table 'gym.device_day' does not exist yet: no run has written it. Run: sluice run gym\n",
    )


@pytest.mark.parametrize(
    "command", [("status",), ("ledger", "gym"), ("runs", "gym"), ("history", "gym"), ("quarantine", "list", "gym")]
)
def test_without_a_lake_all_is_calm(call: Call, command: tuple[str, ...]) -> None:
    code, out, err = call(*command)
    assert (code, err) == (0, "")
    assert out.strip()
    code, out, err = call(*command, "--json")
    assert (code, err) == (0, "")
    assert last_line(out)


NEEDS_NO_SPARK = {
    ("--help",): 0,
    ("status",): 0,
    ("report", "gym", "--to", "-"): 0,
    ("plan", "gym"): 0,
    ("checkpoint", "show"): 0,
    ("ledger", "gym"): 0,
    ("runs", "gym"): 0,
    ("history", "gym"): 0,
    ("show", "gym.device_day"): 1,
    ("quarantine", "list", "gym"): 0,
    ("erase", "request", "gym", "--identifier", "device_id"): 0,
    ("erase", "list", "gym"): 0,
    ("secrets", "init"): 0,
    ("land", "gym", "--days", "1", "--scale", "0.05"): 0,
    ("doctor", "--quiet"): 0,
    ("check",): 0,
    ("stop", "gym"): 0,
    ("down",): 0,
    ("run", "gim"): 2,
    ("new", "pipeline", "gym", "--from", "."): 2,
}
"""Commands with the exit codes that they end with where there is no lake."""


def test_what_needs_no_spark_loads_none(tmp_path: Path) -> None:
    """One process takes them all: each would load the same libraries again. The first that loads Spark is the first that is named."""
    # `down` must not stop the Airflow of whoever runs the tests.
    commands = [(one, {"SLUICE_ROOT": str(tmp_path)} if one == ("down",) else {}) for one in NEEDS_NO_SPARK]
    ran = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(commands)], capture_output=True, text=True, check=True
    )
    ended = [json.loads(line.removeprefix("END ")) for line in ran.stdout.splitlines() if line.startswith("END ")]
    assert ended == [[list(one), code, []] for one, code in NEEDS_NO_SPARK.items()], ran.stderr


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_each_command_is_there_under_its_name(entry: CommandEntry) -> None:
    command = load_command(entry)
    assert command.name == entry.name and command.help
    assert len(f"  {'demo-erasure'}  {entry.summary}") < 80, "one line of help"


def test_help_and_a_wrong_name_load_no_library_but_that_of_the_command_line() -> None:
    for arguments, code in ((["--help"], 0), (["runss"], 2)):
        ran = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True)
        exit_code, loaded = json.loads(ran.stdout.splitlines()[-1])
        assert exit_code == code and loaded == [], ran.stderr


def test_it_starts_as_a_module_and_as_a_script() -> None:
    for start in ([sys.executable, "-m", "sluice.cli"], [str(Path(sys.executable).parent / "sluice")]):
        assert "Usage: sluice" in subprocess.run([*start, "--help"], capture_output=True, text=True, check=True).stdout


def test_up_says_of_every_dag_how_its_schedule_is_let_go(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_running_airflow", lambda settings: None)
    monkeypatch.setattr(machine, "local_airflow_password", lambda settings: "none")
    monkeypatch.setattr(machine.LocalAirflow, "start", lambda started: SimpleNamespace(address="http://127.0.0.1:1"))
    code, out, _ = call("up")
    dags = sorted(path.stem for path in (Settings.current().root / "dags").glob("*.py"))
    assert (code, sorted(re.findall(r"dags unpause (\w+)", out))) == (0, dags)


def test_a_pipeline_that_came_while_airflow_runs_gets_its_pool(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow finds the DAG by itself, and would schedule no task of it."""
    prepared: list[Settings] = []
    monkeypatch.setattr(machine, "local_airflow_password", lambda settings: "none")
    for module in (machine, checks):
        monkeypatch.setattr(module, "find_running_airflow", lambda settings: (1, 8080))
        monkeypatch.setattr(module, "prepare_local_airflow", prepared.append)
    monkeypatch.setattr(checks, "local_airflow_client", lambda settings, port: port)
    assert call("up")[:2] == (0, "Airflow runs already at http://127.0.0.1:8080, log in as admin / none\n")
    assert len(prepared) == 1
    assert checks._find_airflow_client(Settings.current()) == 8080 and len(prepared) == 2


def test_land_lands(call: Call, settings: Settings) -> None:
    code, out, _ = call("land", "gym", "--days", "2", "--scale", "0.05")
    assert code == 0
    assert out.startswith("Landed 18 files, up to 2026-11-02: ")
    assert len([path for path in (settings.landing / "gym").rglob("*") if path.is_file()]) == 18


def test_erase_request_prints_no_identifier(call: Call, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "people").write_text("4200000001\n4200000002\n\n4200000001\n")

    def is_somebody_named(text: str) -> bool:
        # By a whole number: instants and ids have its first digits by chance.
        return "4200000001" in text or "4200000002" in text

    people = ("--identifier", "device_id", "--subject-file", str(tmp_path / "people"))
    code, out, err = call("erase", "request", "gym", *people)
    assert (code, err) == (0, "")
    assert "kind 'device_id': 2." in out
    assert not is_somebody_named(out)
    code, out, _ = call("erase", "list", "gym", "--json")
    assert not is_somebody_named(out)
    assert [request["identifiers"] for request in last_line(out)["requests"]] == [2]  # type: ignore[attr-defined]
    counts = last_line(call("erase", "status", "--json")[1])["pipelines"][0]  # type: ignore[index]
    of_one = last_line(call("erase", "status", "gym", "--json")[1])
    assert of_one["pipelines"] == [counts] and of_one["requests"] == last_line(out)["requests"]
    code, shown, _ = call("erase", "status", "gym")
    assert code == 0 and "received" in shown and not is_somebody_named(shown)
    assert (counts["pipeline"], counts["waiting"], counts["done"]) == ("gym", 1, 0)
    assert "Erasure requests waiting: 1" in call("status", "gym")[1]
    assert not any(is_somebody_named(path.read_text()) for path in Path(settings.lake).rglob("*.json"))


def test_erase_request_without_people_or_with_a_wrong_kind_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "nobody").write_text("\n")
    (tmp_path / "people").write_text("1\n")
    devices = ("erase", "request", "gym", "--identifier", "device_id")
    assert "No identifier" in call(*devices, "--subject-file", str(tmp_path / "nobody"))[2]
    assert call(*devices, "--subject-file", str(tmp_path / "missing"))[0] == 2
    people = ("--subject-file", str(tmp_path / "people"))
    code, _, err = call("erase", "request", "gym", *people)
    assert code == 2 and "There are: device_id, mac_address, pseudonym, user_id." in err, "of several kinds none is guessed"
    assert call("erase", "request", "gym", *people, "--identifier", "devce_id")[0] == 2
    assert call("erase", "request", "italy", "--subject-file", str(tmp_path / "people"))[0] == 2


def test_the_suppression_key_is_made_once_and_for_its_owner_only(call: Call, settings: Settings) -> None:
    assert call("secrets", "init")[1].startswith("Made: ")
    key = settings.secrets / "suppression.key"
    content = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert call("secrets", "init")[1].startswith("Is there already: ")
    assert key.read_bytes() == content


def test_stop_asks_the_run_that_holds_the_lease(call: Call, settings: Settings) -> None:
    assert call("stop", "gym")[1] == "Nothing runs on 'gym'.\n"
    describe_holder(settings, os.getpid(), datetime.now(UTC))
    # It need not wait for an end: this process holds the lease, and does not give it up.
    assert "run r1" in call("stop", "gym", "--within", "0")[1]
    request = PipelineRecords(settings, "gym").stop_request("r1")
    assert request.exists()
    ask_killed_job_to_stop(request)
    assert not concerns_killed_job(request), "the run was asked first"
    request.unlink()
    ask_killed_job_to_stop(request)
    assert concerns_killed_job(request) and call("stop", "gym", "--within", "0")[0] == 0
    assert not concerns_killed_job(request), "now the whole run is asked"
    assert "run r1" in call("status", "gym")[1]


def test_a_process_that_ended_holds_no_lease(settings: Settings) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    describe_holder(settings, ended.pid, datetime.now(UTC))
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) is None


def test_a_process_that_only_got_the_same_number_holds_no_lease(settings: Settings) -> None:
    describe_holder(settings, os.getpid(), datetime.now(UTC) - timedelta(days=365))
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) is None


def test_the_holder_on_another_host_is_believed(settings: Settings) -> None:
    describe_holder(settings, 2**22 + 1, datetime.now(UTC), host="elsewhere")
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) is not None


def outcome(delivery: int, file: str, modified: int, sha256: str, state: str = "ingested") -> dict[str, object]:
    at = datetime.fromtimestamp(modified, UTC)
    common = {"delivery": delivery, "source": "reports", "file": file, "modified_at": at, "sha256": sha256}
    return {**common, "state": state, "recorded_at": datetime.fromtimestamp(delivery, UTC)}


@pytest.mark.parametrize(("replacing", "superseded"), [(frozenset({"reports"}), {1, 4, 6}), (frozenset(), set())])
def test_of_a_file_that_is_replaced_one_delivery_counts(
    settings: Settings, replacing: frozenset[str], superseded: set[int]
) -> None:
    records = PipelineRecords(settings, "gym")
    outcomes = [
        outcome(1, "a", 10, "x"),
        outcome(2, "a", 20, "x"),
        outcome(3, "b", 10, "y"),  # as late as the next, of greater content
        outcome(4, "b", 10, "x"),
        outcome(5, "c", 10, "x"),  # the same again: the one that came first
        outcome(6, "c", 10, "x"),
        outcome(7, "d", 10, "x"),
        outcome(8, "d", 20, "x", state="quarantined"),  # not accepted: supersedes nothing
    ]
    deliveries = [{"event": "delivered", **{n: row[n] for n in ("delivery", "source", "file")}} for row in outcomes]
    write_deltalake(records.delivery_ledger, pa.Table.from_pylist(deliveries, schema=delivery_tables.DELIVERIES))
    write_deltalake(records.outcome_ledger, pa.Table.from_pylist(outcomes, schema=delivery_tables.OUTCOMES))
    found = run_ledger.read_delivery_ledger(records, replacing=replacing)
    assert {row["delivery"] for row in found if row["state"] == "superseded"} == superseded


def test_status_check_fails_while_a_file_is_missed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = PipelineRecords(settings, "gym")
    use_roots_of(monkeypatch, settings)
    (settings.landing / "gym" / "registrations").mkdir(parents=True)
    deliveries, outcomes = records.delivery_ledger, records.outcome_ledger

    def status() -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["status", "gym", "--check"])
        return int(ended.value.code or 0), capsys.readouterr().out

    def deliver(number: int, event: str = "delivered", state: str = "", **values: object) -> None:
        row = {"source": "registrations", "file": "a.csv", "event": event, "size": 1, **values}
        delivery_tables.append_numbered_deliveries(
            deliveries, [[{**row, "modified_at": datetime.fromtimestamp(1, UTC)}]], number - 1, "r"
        )
        if state:
            delivery_tables.append_delivery_ledger_rows(
                outcomes, [outcome(number, "a.csv", 1, "x", state)], delivery_tables.OUTCOMES, "r"
            )

    steps: list[tuple[dict[str, Any], bool]] = [
        ({"event": "unopened", "reason": "the file cannot be opened: Permission denied"}, True),
        ({"state": "ingested"}, False),
        ({"state": "missed"}, True),
        ({"event": "vanished", "state": "vanished"}, False),
    ]
    for number, (values, is_missed) in enumerate(steps, start=1):
        deliver(number, **values)
        code, printed = status()
        assert (code, "tried again by every run" in printed) == (int(is_missed), is_missed), values
    assert [row["state"] for row in run_ledger.read_delivery_ledger(records)] == ["missed", "ingested", "missed", "vanished"]


def test_status_check_fails_while_nothing_can_be_judged(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("status", "gym", "--check")[0] == 0

    def broken(settings: Settings, name: str) -> None:
        raise DeclarationError("silver.py, line 3: it does not load")

    monkeypatch.setattr(standing, "load_declaration_graph", broken)
    code, out, _ = call("status", "gym", "--check")
    assert code == 1 and "it does not load" in out


BROKEN = {
    "pipeline.py": "from sluice.declare import Pipeline\nPIPELINE = Pipeline(name='broken', description='x', owner='x', "
    "layers=('pipelines.broken.bronze', 'pipelines.broken.silver'))\n",
    "bronze.py": "from sluice.declare import Source\nrows = Source(name='rows', format='csv', path='rows', comment='x')\n",
    "silver.py": "from sluice.declare import table\n\n@table(reads='rws', keys='id')\ndef one(rows): ...\n\n"
    "@table(reads='one', keys='id')\ndef two(rows): ...\n",
}


def checked(tmp_path: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "include" / "pipelines" / "broken"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    environment = {**os.environ, "SLUICE_ROOT": str(tmp_path), "PYTHONPATH": str(tmp_path / "include")}
    command = [sys.executable, "-m", "sluice.cli", "check", "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_check_lists_every_mistake(tmp_path: Path) -> None:
    ran = checked(tmp_path, BROKEN)
    assert ran.returncode == 2
    assert [line.startswith("sluice: Pipeline 'broken': ") for line in ran.stderr.splitlines()] == [True, True]
    assert "Did you mean 'rows'?" in ran.stderr
    assert "'two'" in ran.stderr
    assert last_line(ran.stdout)["ok"] is False


def test_check_names_a_maker_that_does_not_exist_and_loads_none(tmp_path: Path) -> None:
    declared = (
        BROKEN["pipeline.py"]
        .replace("layers=", "maker='pipelines.broken.makr', layers=")
        .replace(", 'pipelines.broken.silver'", ",")
    )
    files = {"pipeline.py": declared, "bronze.py": BROKEN["bronze.py"], "maker.py": "import nosuch\n"}
    ran = checked(tmp_path, files)
    assert ran.returncode == 2
    assert (
        "Pipeline 'broken' names the module 'pipelines.broken.makr', which does not exist. Did you mean 'pipelines.broken.maker'?"
        in ran.stderr
    )
    (tmp_path / "include/pipelines/broken/pipeline.py").write_text(declared.replace("makr", "maker"))
    environment = {**os.environ, "SLUICE_ROOT": str(tmp_path), "PYTHONPATH": str(tmp_path / "include")}
    subprocess.run([sys.executable, "-m", "sluice.cli", "check"], check=True, env=environment, capture_output=True)


def test_check_says_where_a_pipelines_own_code_fails(tmp_path: Path) -> None:
    ran = checked(tmp_path, BROKEN | {"silver.py": "\n\nnosuch\n"})
    assert ran.returncode == 2
    assert "silver.py, line 3" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_help_calls_what_an_option_takes_by_the_option_and_not_by_a_type(entry: CommandEntry) -> None:
    waiting = [load_command(entry)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        options = [one for one in command.params if one.param_type_name == "option"]
        assert [one.name for one in options if not getattr(one, "is_flag", False) and "<" in str(one.metavar or "<")] == []
