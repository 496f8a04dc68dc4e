"""Security of the seam between Airflow and Spark, on real ones: no secret crosses it, no parameter breaks out, nobody comes in unasked."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.system.running import ROOT, Checkout, list_paths_below, make_checkout, run_to_end, unpause
from tests.waiting import until

from orchestration.airflow_line import airflow_line
from orchestration.local import LocalAirflow, find_running_airflow
from orchestration.rest.client import Client
from orchestration.server.home import SPARK_CONNECTION, local_airflow_home, local_airflow_process_environment
from orchestration.server.supervisor import find_session_members
from pipelines.gym import maker
from sluice.errors import SluiceError
from sluice.pipeline_records import PipelineRecords
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.runs import run_ledger

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]

KEY = hashlib.sha256(b"a key of tests").hexdigest()
CANARIES = {
    "the key of the suppression list": KEY,
    "a connection's password": "canary-of-the-spark-connection",
    "another connection": "canary-of-another-connection",
    "the receiver of alerts": "canary-of-the-receiver",
    "the key of pseudonyms, of Airflow's secret back end": hashlib.sha256(b"of a back end").hexdigest(),
}
OF_AIRFLOW = ("fernet_key", "secret_key", "jwt_secret", "password")


@dataclass
class Seen:
    """What processes of the running Airflow showed: every command line, the environment of what belongs to Spark, open ports."""

    command_lines: set[str] = field(default_factory=set)
    of_spark: dict[int, dict[str, str]] = field(default_factory=dict)
    listening: set[str] = field(default_factory=set)

    def look(self, session: int, at_ports: bool) -> None:
        for process in find_session_members(session):
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                self.command_lines.add(" ".join(words))
                if process.pid not in self.of_spark and any("spark_jobs/" in word for word in words):
                    self.of_spark[process.pid] = process.environ()
                if not at_ports:
                    continue
                ports = [one for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
                self.listening |= {one.laddr.ip.removeprefix("::ffff:") for one in ports}


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("seam")
        made = make_checkout(root, patch, {"gym.py": ROOT / "dags" / "gym.py"}, stand_in=False)
        made.settings.secrets.mkdir(mode=0o700)
        key = made.settings.secrets / "suppression.key"
        key.write_text(KEY)
        key.chmod(0o600)
        receiver = made.settings.secrets / "alerts"
        receiver.write_text(f"http://127.0.0.1:9/{CANARIES['the receiver of alerts']}")  # nobody listens there
        receiver.chmod(0o600)
        patch.setenv("SLUICE_ALERTS", "secrets/alerts")
        pseudonyms = CANARIES["the key of pseudonyms, of Airflow's secret back end"]
        patch.setenv("AIRFLOW_VAR_SLUICE_SECRET_PSEUDONYM_KEY", pseudonyms)
        connection = {**SPARK_CONNECTION, "login": "someone", "password": CANARIES["a connection's password"]}
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
        other = {"conn_type": "generic", "host": "localhost", "password": CANARIES["another connection"]}
        patch.setenv("AIRFLOW_CONN_LAKE_STORE", json.dumps(other))
        maker.land(made.settings.landing / "gym", made.settings.truth / "gym", days=1, scale=0.1)
        yield made


@pytest.fixture(scope="module")
def client(gym: Checkout) -> Iterator[Client]:
    with LocalAirflow(gym.settings, idle_schedule=True) as airflow:
        unpause(airflow.client, "gym")
        yield airflow.client


@pytest.fixture(scope="module")
def seen(gym: Checkout, client: Client) -> Seen:
    """A run to its end, and one that fails and so sends an alert, watched all the time."""
    found, over = Seen(), threading.Event()
    session = (find_running_airflow(gym.settings) or (0, 0))[0]

    def watch() -> None:
        looks = itertools.count()
        while not over.wait(0.25):
            found.look(session, at_ports=next(looks) % 8 == 0)  # they take a core, and stay open for long

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        assert client.run_state("gym", run_to_end(client, "gym", seconds=500)) == "success"
        assert client.run_state("gym", run_to_end(client, "gym", {"mode": "refresh"})) == "failed"
    finally:
        over.set()
        thread.join()
    return found


def secrets_of(gym: Checkout) -> dict[str, str]:
    kept = json.loads((local_airflow_home(gym.settings) / "secrets.json").read_text())
    return CANARIES | {f"Airflow's {name}": kept[name] for name in OF_AIRFLOW}


def test_no_secret_is_in_a_command_line_or_in_spark_s_environment(gym: Checkout, seen: Seen) -> None:
    assert len(seen.of_spark) >= 12, "six jobs, each a JVM and a Python process at least"
    assert all(told["SLUICE_LAKE"] == gym.settings.lake for told in seen.of_spark.values() if told)
    for what, secret in secrets_of(gym).items():
        assert not [line for line in seen.command_lines if secret in line], what
        assert not [pid for pid, told in seen.of_spark.items() if secret in json.dumps(told)], what
    names = {name for told in seen.of_spark.values() for name in told}
    assert not [name for name in names if name.startswith(("AIRFLOW", "_AIRFLOW", "__AIRFLOW", "SLUICE_ALERTS"))]


def read_what_is_there(paths: Iterable[Path]) -> dict[Path, bytes]:
    """The contents of files, but for those that Airflow, which goes on, has removed meanwhile."""
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.read_bytes()
    return found


def test_no_secret_is_in_logs_or_in_the_metadata_database(gym: Checkout, client: Client, seen: Seen) -> None:
    folder = local_airflow_home(gym.settings)
    logs = [path for path in list_paths_below(folder) if path.is_file() and (path.suffix == ".log" or "logs" in path.parts)]
    database = [path for path in folder.iterdir() if path.name.startswith("airflow.db")]
    told = read_what_is_there([*logs, *database])
    joined = b"".join(text for path, text in told.items() if path in logs)
    assert b"The alert 'task failed' could not be sent" in joined and b"gym gold" in joined, "the search would find what is there"
    assert b"af-" in b"".join(text for path, text in told.items() if path in database)
    for what, secret in secrets_of(gym).items():
        assert not [path.name for path, text in told.items() if secret.encode() in text], what


def test_a_key_of_the_secret_back_end_was_used_and_is_nowhere(gym: Checkout, seen: Seen) -> None:
    key = CANARIES["the key of pseudonyms, of Airflow's secret back end"].encode()
    members = run_ledger.read_table_rows(PipelineRecords(gym.settings, "gym"), "member_keys")
    assert members and all(row["pseudonym"] == compute_pseudonym(key, "member", str(row["user_id"])) for row in members)
    assert not (gym.settings.secrets / "pseudonym.key").exists()
    assert any("SLUICE_SECRETS_GIVEN" in told for told in seen.of_spark.values())
    # Those of another suite that is under way hold the same key, and go with its jobs.
    until(lambda: not find_given_files(key), 60, "the end of all files of given secrets that hold the key")
    files = [path for path in list_paths_below(gym.settings.root) if path.is_file() and not path.is_symlink()]
    assert not [path for path, text in read_what_is_there(files).items() if key in text]


def find_given_files(key: bytes) -> list[Path]:
    """The files with secrets of jobs under way that hold this one."""
    return [path for path, text in read_what_is_there(Path("/dev/shm").glob("sluice-given-*/*")).items() if key in text]


def test_nothing_listens_for_other_machines(seen: Seen) -> None:
    assert seen.listening == {"127.0.0.1"}


@pytest.mark.parametrize(
    "conf",
    [
        {"mode": "refresh", "tables": ["../x"]},
        {"mode": "refresh", "tables": ["a; DROP TABLE heart_rate"]},
        {"mode": "refresh", "tables": ["--report"]},
        {"mode": "refresh", "tables": "heart_rate"},
        {"mode": "replay", "from_date": "2026-11-01' OR '1'='1", "to_date": "2026-11-02"},
        {"mode": "replay", "from_date": "../2026-11-01", "to_date": "2026-11-02"},
        {"mode": "replay; rm -rf /"},
        {"upkeep_from": "2026-11-01'"},
    ],
    ids=json.dumps,
)
def test_a_run_with_such_parameters_is_refused(client: Client, conf: dict[str, Any]) -> None:
    def runs() -> int:
        return int(client.request("GET", "/dags/gym/dagRuns?limit=1")["total_entries"])

    before = runs()
    with pytest.raises(SluiceError, match="answered 4"):
        client.trigger("gym", "intruder", conf)
    assert runs() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pipeline", "../gym"),
        ("--pipeline", "gym; touch intruder"),
        ("--pipeline", "gym", "--mode", "refresh", "--tables", "../x"),
        ("--pipeline", "gym", "--mode", "refresh", "--tables", "a; DROP TABLE heart_rate"),
        ("--pipeline", "gym", "--mode", "replay", "--from", "2026-11-01' OR '1'='1", "--to", "2026-11-02"),
        ("--pipeline", "gym", "--mode", "replay; x"),
        ("--pipeline", "gym", "--run-id", "../../intruder"),
        ("--pipeline", "gym", "--airflow-run", "a b"),
    ],
    ids=" ".join,
)
def test_a_job_refuses_them_by_itself(gym: Checkout, arguments: tuple[str, ...]) -> None:
    def files() -> set[Path]:
        return {path for path in list_paths_below(gym.settings.root) if ".sluice" not in path.parts}

    before = files()
    script = str(gym.settings.root / "spark_jobs" / "silver.py")
    done = subprocess.run(
        [sys.executable, script, *arguments],
        env=local_airflow_process_environment(gym.settings),
        cwd=gym.settings.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 2
    assert files() == before


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "{api}/dags"), ("GET", "{api}/connections"), ("POST", "{api}/dags/gym/dagRuns"), ("GET", "/sluice/gym/history")],
)
def test_nobody_comes_in_without_a_token(client: Client, method: str, path: str) -> None:
    assert answer(client, method, path.format(api=client.PREFIX)) in (
        (401,) if airflow_line() == 3 else (302, 401, 403)
    )  # 302: to the login


@pytest.mark.skipif(airflow_line() == 2, reason="Airflow 2 has no tokens")
def test_a_token_is_given_for_the_password_only(client: Client) -> None:
    wrong = {"username": "admin", "password": "admin"}
    assert answer(client, "POST", "/auth/token", wrong) == 401
    assert answer(client, "GET", "/auth/token") in (401, 403), "a token for everybody"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def answer(client: Client, method: str, path: str, body: dict[str, Any] | None = None) -> int:
    headers = {"Content-Type": "application/json"} if method == "POST" else {}
    data = json.dumps(body or {}).encode() if method == "POST" else None
    request = urllib.request.Request(client.address + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect).open(request) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        return error.code
