"""No key gets out: real jobs with pseudonyms, and then a search of all that they wrote, printed, logged and showed to others."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.conftest import ROOT, Lakehouse, settings_at

from sluice.declare import F, Pipeline, Source, expect_or_quarantine, table, treat
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.runs import run_ledger
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment, find_spark_properties_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEY = hashlib.sha256(b"a key of tests").hexdigest()
DOMAINS = ("user", "device")
FILES = {
    "__init__.py": "",
    "pipeline.py": """from sluice.declare import Pipeline

PIPELINE = Pipeline(
    name="leaky", description="Tests.", owner="tests", layers=("pipelines.leaky.bronze", "pipelines.leaky.silver")
)
""",
    "bronze.py": """from sluice.declare import Source

ORDERS = Source(name="orders", schema="who STRING, device BIGINT, spent INT", subject="who", personal="device")
""",
    "silver.py": """from sluice.declare import expect_or_quarantine, materialized_view, table, treat
from sluice.declare.lazy_spark import F


@table(reads="orders", keys=("who", "device"), subject="who", restricted=True,
       personal={"who": None, "pseudonym": treat.hmac("user"), "device": treat.hmac("device")})
@expect_or_quarantine("spends", "spent > 0")
def order(orders):
    return orders.select("who", F.col("who").alias("pseudonym"), "device", "spent")


@materialized_view(reads="order", keys="pseudonym", personal={"pseudonym": treat.hmac("user", canonical="lower")})
def spending(order):
    return order.groupBy(F.col("who").alias("pseudonym")).agg(F.sum("spent").alias("spent"))
""",
}
ROWS = [
    {"who": who, "device": number, "spent": spent} for number, (who, spent) in enumerate([("ada", 5), ("bob", 6), ("eve", -1)])
]


@dataclass
class Seen:
    """What anybody on this machine could see of the processes while they ran."""

    command_lines: set[str] = field(default_factory=set)
    environments: set[str] = field(default_factory=set)

    def look(self, first: psutil.Process) -> None:
        for process in [first, *first.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                self.command_lines.add(" ".join(process.cmdline()))
                self.environments.add(json.dumps(process.environ()))


@dataclass(frozen=True)
class Ran:
    root: Path
    settings: Settings
    seen: Seen


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("leaks")
    for path in ("spark_jobs", "environments", ".sluice/jars"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).symlink_to(ROOT / path)
    code = root / "include" / "pipelines" / "leaky"
    code.mkdir(parents=True)
    for name, text in FILES.items():
        (code / name).write_text(text)
    settings = replace(settings_at(root), root=root)
    secrets.store_secret(settings, treat.PSEUDONYM_KEY, KEY.encode())
    landing = settings.landing / "leaky" / "orders"
    landing.mkdir(parents=True)
    (landing / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    seen = Seen()
    for stage in ("bronze", "silver"):
        submit(settings, stage, seen)
    yield Ran(root, settings, seen)


def submit(settings: Settings, stage: str, seen: Seen) -> None:
    """A stage as Airflow submits it, but that Spark says all it can: an event log, whole plans, every log line."""
    events = settings.root / "events"
    events.mkdir(exist_ok=True)
    said = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.sql.maxMetadataStringLength": "100000",
        "spark.sql.debug.maxToStringFields": "1000",
        "spark.log.level": "INFO",
    }
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        "--properties-file",
        str(find_spark_properties_file(settings)),
    ]
    command += [word for name, value in said.items() for word in ("--conf", f"{name}={value}")]
    command += [
        str(settings.root / "spark_jobs" / f"{stage}.py"),
        "--pipeline",
        "leaky",
        "--report",
        str(settings.root / "report"),
    ]
    environment = {**os.environ, **build_spark_environment(settings), "PYTHONPATH": str(settings.root / "include")}
    environment["SPARK_SUBMIT_OPTS"] += " -Dsluice.log=whole"
    with (settings.root / f"{stage}.log").open("w") as printed:
        job = subprocess.Popen(command, env=environment, stdout=printed, stderr=subprocess.STDOUT)
        first = psutil.Process(job.pid)
        while job.poll() is None:
            seen.look(first)
            time.sleep(0.1)
    assert job.returncode == 0, (settings.root / f"{stage}.log").read_text()[-3000:]


def told() -> dict[str, bytes]:
    """All from which pseudonyms could be made, by what it is."""
    values = {"the key": KEY.encode(), "the key's bytes": bytes.fromhex(KEY)}
    for domain in DOMAINS:
        own = hmac.new(KEY.encode(), domain.encode(), hashlib.sha256).digest()
        values[f"the key of {domain}"] = own
        for name, pad in (("inner", 0x36), ("outer", 0x5C)):
            values[f"the {name} pad of {domain}"] = bytes(byte ^ pad for byte in own.ljust(64, b"\0"))
    return values


def forms(value: bytes) -> list[bytes]:
    """How bytes are written down, each as its beginning: raw, hex, hex by bytes, numbers, base64 wherever it begins."""
    signed = [byte - 256 if byte > 127 else byte for byte in value[:10]]
    numbers = [", ".join(map(str, value[:10])), ", ".join(map(str, signed)), ",".join(map(str, signed))]
    hexes = [value.hex()[:24], value.hex()[:24].upper(), value[:10].hex(" "), value[:10].hex(" ").upper()]
    shifted = [base64.b64encode(b"\0" * shift + value)[4 if shift else 0 :][:20] for shift in range(3)]
    return [value[:16], *(text.encode() for text in numbers + hexes), *shifted]


FORMS = {what: forms(value) for what, value in told().items()}


def found_in(text: bytes) -> list[str]:
    return [what for what, written in FORMS.items() if any(form in text for form in written)]


def test_what_a_run_writes_and_prints_and_what_its_processes_show_holds_no_key(
    settings: Settings, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, without the event log and the log lines of real jobs that the slow tests below search."""
    secrets.store_secret(settings, treat.PSEUDONYM_KEY, KEY.encode())
    orders = Source(name="orders", schema="who STRING, device BIGINT, spent INT", subject="who", personal="device")

    @table(
        reads="orders",
        keys=("who", "device"),
        subject="who",
        restricted=True,
        personal={"who": None, "pseudonym": treat.hmac("user"), "device": treat.hmac("device")},
    )
    @expect_or_quarantine("spends", "spent > 0")
    def order(orders: DataFrame) -> DataFrame:
        return orders.select("who", F.col("who").alias("pseudonym"), "device", "spent")

    pipeline = Pipeline(name="leaky", description="Tests.", owner="tests", layers=("leaky.bronze", __name__))
    lake = Lakehouse(settings, spark, build_declaration_graph(pipeline, [orders, order]))
    lake.land("orders/1.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    lake.run()
    (ada,) = [row for row in lake.rows("order", "who", "pseudonym") if row[0] == "ada"]
    assert ada[1] == compute_pseudonym(KEY.encode(), "user", "ada")
    seen = Seen()
    seen.look(psutil.Process())
    files = [path for path in Path(settings.lake).parent.rglob("*") if path.is_file() and settings.secrets not in path.parents]
    assert any("_delta_log" in path.parts for path in files) and any(settings.restricted in path.parents for path in files)
    printed = capfd.readouterr()
    shown = [*seen.command_lines, *seen.environments, printed.out, printed.err]
    assert any("java" in line for line in seen.command_lines)
    assert not [path for path in files if found_in(path.read_bytes())] and not any(found_in(text.encode()) for text in shown)


@pytest.mark.slow
def test_the_jobs_made_the_pseudonyms(ran: Ran) -> None:
    ada = compute_pseudonym(KEY.encode(), "user", "ada")
    rows = {row["who"]: row for row in run_ledger.read_table_rows(PipelineRecords(ran.settings, "leaky"), "order")}
    assert rows["ada"]["pseudonym"] == ada and rows["ada"]["device"] == compute_pseudonym(KEY.encode(), "device", "0")
    assert {
        row["pseudonym"]: row["spent"] for row in run_ledger.read_table_rows(PipelineRecords(ran.settings, "leaky"), "spending")
    }[ada] == 5


def test_the_search_finds_every_form_of_a_key() -> None:
    pad = told()["the inner pad of user"]
    written = [pad, pad.hex().encode(), pad.hex(" ").upper().encode(), str(list(pad)).encode(), base64.b64encode(b"ab" + pad)]
    for text in written:
        assert found_in(b"x" + text + b"x") == ["the inner pad of user"], text[:40]


@pytest.mark.slow
def test_nothing_that_was_written_or_printed_holds_a_key(ran: Ran) -> None:
    """Event log, log lines and plans, Delta's log, the ledgers, the report, what Spark spilled: every file below the root."""
    files = [path for path in ran.root.rglob("*") if path.is_file() and ran.settings.secrets not in path.parents]
    kinds = {path: path.read_bytes() for path in files}
    events = b"".join(text for path, text in kinds.items() if "events" in path.parts)
    printed = b"".join(text for path, text in kinds.items() if path.suffix == ".log")
    assert b"sha2" in events and b"SparkListenerSQLExecutionStart" in events, "the plans are in the event log"
    assert b"_inner_0" in events and b"BroadcastNestedLoopJoin" in events, "those with the pads, too"
    assert b"ParsedLogicalPlan" in printed or b"INFO" in printed
    assert any("_delta_log" in path.parts for path in files)
    for path, text in kinds.items():
        assert not found_in(text), path


@pytest.mark.slow
def test_nobody_who_looks_at_the_processes_sees_a_key(ran: Ran) -> None:
    assert any("spark_jobs/silver.py" in line for line in ran.seen.command_lines)
    assert any(str(ran.settings.secrets) in told for told in ran.seen.environments)
    for text in (*ran.seen.command_lines, *ran.seen.environments):
        assert not found_in(text.encode())


@pytest.mark.slow
def test_no_column_with_a_pad_is_stored(ran: Ran) -> None:
    names = {
        name
        for table in ("order", "spending", "order_quarantine")
        for row in run_ledger.read_table_rows(PipelineRecords(ran.settings, "leaky"), table)
        for name in row
    }
    assert "pseudonym" in names and not [name for name in names if "inner" in name or "outer" in name]
