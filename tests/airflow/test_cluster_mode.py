"""A task whose driver a cluster starts: it follows the driver through the lake, or leaves its worker to a trigger that does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.airflow.test_chosen_spark import connect
from tests.airflow.test_spark_submit import context, told
from tests.waiting import until

from sluice.locations import Location, locate
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import SILVER

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def records(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-in's notes; the connection is one of cluster mode, no driver's file is left, and what waits for seconds waits less.

    A stop that is waited for may take long: tests assert that it came.
    """
    from orchestration.spark_submit import cluster_driver, cluster_task, driver_trigger, operator
    from sluice.runs import followed_job

    connect(monkeypatch, host="yarn", extra={"profile": "yarn", "deploy-mode": "cluster"})
    for polling in (driver_trigger, cluster_task):
        monkeypatch.setattr(polling, "POLL_SECONDS", 0.1)
    for stopping in (driver_trigger, operator):
        monkeypatch.setattr(stopping, "STOP_SECONDS", 200.0)
    monkeypatch.setattr(followed_job.find_living_job, "__defaults__", (lambda _: wait_for_next_beat(checkout), 1.0))
    monkeypatch.setattr(followed_job, "LOST_AFTER_SECONDS", 300.0)
    monkeypatch.setattr(cluster_driver, "BEAT_SECONDS", 0.5)
    checkout.records.unlink(missing_ok=True)
    for left in followed_jobs(checkout).glob("*"):
        left.unlink()
    yield checkout.records
    for driver in drivers(checkout.records):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(driver).kill()
    checkout.records.unlink(missing_ok=True)


def drivers(records: Path) -> list[int]:
    return [entry["driver"] for entry in told(records) if "driver" in entry]


def wait_for_driver(records: Path, number: int = 1) -> int:
    until(lambda: len(drivers(records)) >= number, 50, "the start of a driver")
    return drivers(records)[-1]


def wait_for_sign_of_life(checkout: Checkout) -> None:
    """Returns when a driver has said in its file that it is at work."""
    until(lambda: any(name.endswith(".json") for name in files(checkout)), 50, "a sign of life")


def wait_for_next_beat(checkout: Checkout) -> None:
    """Returns when a driver has given one more sign of life, however long a busy machine takes for it."""

    def texts() -> list[str]:
        with contextlib.suppress(FileNotFoundError):  # a driver's file was collected meanwhile
            return [file.read_text() for file in sorted(followed_jobs(checkout).glob("*.json"))]
        return []

    before = texts()
    until(lambda: texts() != before, 50, "the next sign of life")


def lose_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a driver that is silent for two seconds is lost: where each is killed, it does not matter how quick the machine is."""
    from sluice.runs import followed_job

    monkeypatch.setattr(followed_job, "LOST_AFTER_SECONDS", 2.0)


def wait_until_followed(task: Any) -> None:
    """Returns when a task has seen its driver's sign of life: it follows the driver, and whoever kills it stops that."""

    def is_followed() -> bool:
        followed = task._cluster_task and task._cluster_task._followed
        return bool(followed and followed._watch._seen)

    until(is_followed, 50, "the first look at a driver")


def operator(**options: Any) -> Any:
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    return SluiceSparkSubmitOperator(task_id="silver", pipeline="gym", stage=SILVER, **options)


def followed_jobs(checkout: Checkout) -> Location:
    """The folder in which each driver has its file."""
    return locate(PipelineRecords(checkout.settings, "gym").bookkeeping("followed_jobs"))


def files(checkout: Checkout) -> list[str]:
    return sorted(file.name for file in followed_jobs(checkout).glob("*"))


def test_attempts_of_the_same_task_are_known_by_the_name_that_an_earlier_sluice_gave_them() -> None:
    from orchestration.dag_run import digest_job_arguments

    assert digest_job_arguments(["--pipeline", "gym", "--mode", "increment"], context()) == "83bc14ab"


def test_the_report_comes_back_through_the_lake(checkout: Checkout, records: Path) -> None:
    from orchestration.dag_run import RunRequest, dag_run_name, digest_job_arguments, run_identity_arguments

    given = context()
    words = [*RunRequest.of(given).as_job_arguments("gym"), *run_identity_arguments(given)]
    asked = digest_job_arguments(words, given)
    folder = followed_jobs(checkout)
    folder.mkdir(parents=True, exist_ok=True)
    left = folder / f".{dag_run_name('gym', 'manual__1')}-silver-{asked}-2.json.0a1b2c3d.tmp"
    left.write_bytes(b"{")
    report = operator().execute(context())
    assert report["stage"] == "silver"
    assert files(checkout) == [], "nothing of it is left, nor what a driver left that was killed while it wrote"
    argv = told(records)[0]["argv"]
    assert argv[argv.index("--deploy-mode") + 1] == "cluster"
    assert argv[argv.index("--archives") + 1].endswith("#checkout")
    assert "spark.yarn.submit.waitAppCompletion=false" in argv
    assert "--report" not in argv and "--followed-at" in argv


def test_the_driver_gets_the_settings_and_no_secret(checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "known to nobody")
    operator().execute(context())
    variables = next(entry["variables"] for entry in told(records) if "variables" in entry)
    assert variables["SLUICE_LAKE"] == checkout.settings.lake
    assert variables["SLUICE_ROOT"] == "checkout", "what was unpacked beside it"
    assert not [name for name in variables if not name.startswith(("SLUICE_", "PYSPARK_", "TZ", "LC_"))]
    assert not [word for entry in told(records) for word in entry.get("argv", ()) if "known to nobody" in word]


@pytest.mark.parametrize("code", [1, 2, 3])
def test_exit_codes_come_back_too(records: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    monkeypatch.setenv("STAND_IN_EXIT", str(code))
    with pytest.raises(AirflowException, match="There is no table 'hart_rate'") as failure:
        operator().execute(context())
    assert isinstance(failure.value, AirflowFailException) == (code == 2), "only exit code 2 rules out a retry"


def test_a_killed_driver_is_lost(checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    lose_soon(monkeypatch)
    monkeypatch.setenv("STAND_IN_SECONDS", "300")

    def kill() -> None:
        pid = wait_for_driver(records)
        wait_for_sign_of_life(checkout)
        psutil.Process(pid).kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(AirflowException, match="said nothing for 2 s: it was killed") as failure:
        operator().execute(context())
    thread.join()
    assert not isinstance(failure.value, AirflowFailException), "the next attempt may succeed"
    requests = PipelineRecords(checkout.settings, "gym").stop_request("any").parent
    assert [request.name for request in requests.iterdir()], "it stops if it lives after all, or begins late"


def test_a_retry_follows_the_driver_that_is_at_work(
    checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _end_drivers_once_one_is_followed(monkeypatch, tmp_path / "followed")
    _leave_driver_at_work(checkout, records)
    again = {**context(), "ti": type("Ti", (), {"try_number": 3})()}
    report = operator().execute(again)
    assert report["stage"] == "silver" and len(drivers(records)) == 1, "nothing was submitted again"


def test_an_attempt_that_is_asked_for_something_else_submits_its_own_driver(
    checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _end_drivers_once_one_is_followed(monkeypatch, tmp_path / "followed")
    _leave_driver_at_work(checkout, records)
    report = operator().execute(context(mode="replay", from_date="2026-01-01", to_date="2026-01-03"))
    assert report["stage"] == "silver" and len(drivers(records)) == 2, "an increment is not what was asked for"


def _end_drivers_once_one_is_followed(monkeypatch: pytest.MonkeyPatch, followed: Path) -> None:
    """Makes drivers work until a task follows one. followed: the file for which they wait."""
    from orchestration.spark_submit import cluster_task as module

    class TellingFollower(module.DriverFollower):  # type: ignore[name-defined,misc]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            followed.touch()

    monkeypatch.setattr(module, "DriverFollower", TellingFollower)
    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    monkeypatch.setenv("STAND_IN_UNTIL", str(followed))


def _leave_driver_at_work(checkout: Checkout, records: Path) -> None:
    """Returns when the driver of an attempt whose worker is gone says that it is at work."""
    _until_killed(operator())
    wait_for_driver(records)
    wait_for_sign_of_life(checkout)


def _until_killed(task: Any) -> None:
    """Acts like an attempt whose worker is gone: it submits, and then stops looking."""
    from orchestration.spark_submit import cluster_task as module

    whole = module.DriverFollower
    module.DriverFollower = _NeverLooks  # type: ignore[assignment,misc]
    try:
        with pytest.raises(SystemExit):
            task.execute(context())
    finally:
        module.DriverFollower = whole  # type: ignore[misc]


class _NeverLooks:
    def __init__(self, *_: object) -> None:
        raise SystemExit


@pytest.mark.crash
def test_a_task_that_is_killed_stops_its_driver(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    task = operator()

    def kill() -> None:
        wait_until_followed(task)
        task.on_kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(AirflowException, match="exit code 1"):
        task.execute(context())
    thread.join()
    assert {"stopped": "on request"} in told(records)


def test_a_driver_in_a_long_batch_stops_after_it_although_its_task_was_killed(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed task waits for three seconds, here half a second, and a batch may take hours."""
    from airflow.providers.common.compat.sdk import AirflowException

    from orchestration.spark_submit import cluster_task as module

    monkeypatch.setattr(module, "KILLED_SECONDS", 0.5)
    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    monkeypatch.setenv("STAND_IN_LOOKS_AFTER", "3")
    task = operator()

    def kill() -> None:
        wait_until_followed(task)
        task.on_kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(AirflowException, match="exit code 1"):
        task.execute(context())
    thread.join()
    assert {"stopped": "on request"} in told(records)


def deferred(task: Any, given: dict[str, Any]) -> Any:
    from airflow.providers.common.compat.sdk import TaskDeferred

    with pytest.raises(TaskDeferred) as left:
        task.execute(given)
    return left.value


def trigger_again(trigger: Any) -> Any:
    """Makes the trigger as a triggerer does, from what Airflow stored."""
    from importlib import import_module

    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**json.loads(json.dumps(arguments)))


async def first_event(trigger: Any) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("no event")


def test_a_deferrable_task_leaves_its_worker_and_comes_back(checkout: Checkout, records: Path) -> None:
    left = deferred(operator(deferrable=True), context())
    event = asyncio.run(first_event(trigger_again(left.trigger)))
    report = getattr(operator(), left.method_name)(context(), event)
    assert report["stage"] == "silver" and files(checkout) == []


def test_what_a_trigger_sees_fails_the_task(checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    monkeypatch.setenv("STAND_IN_EXIT", "2")
    left = deferred(operator(deferrable=True), context())
    event = asyncio.run(first_event(trigger_again(left.trigger)))
    with pytest.raises(AirflowFailException, match=r"wrong use or declaration: .*hart_rate"):
        operator().finish_deferred(context(), event)
    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    left = deferred(operator(deferrable=True), context())
    pid = wait_for_driver(records, 2)
    wait_for_sign_of_life(checkout)
    psutil.Process(pid).kill()
    lose_soon(monkeypatch)
    event = asyncio.run(first_event(trigger_again(left.trigger)))
    with pytest.raises(AirflowException, match="said nothing for 2 s"):
        operator().finish_deferred(context(), event)


def test_a_deferred_task_that_takes_too_long_is_stopped(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import AirflowException

    from orchestration import alerts

    sent: list[str] = []
    monkeypatch.setattr(alerts, "send_alert", lambda kind, text, **facts: sent.append(facts["table"]))
    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    monkeypatch.setenv("STAND_IN_REPORTS", "yes")
    left = deferred(operator(deferrable=True, execution_timeout=timedelta(seconds=1)), context())
    event = asyncio.run(first_event(trigger_again(left.trigger)))
    with pytest.raises(AirflowException, match="longer than its execution_timeout"):
        operator(alert_when={"device_day.quarantined": 0}).finish_deferred(context(), event)
    assert {"stopped": "on request"} in told(records)
    assert sent == ["device_day"], "the next attempt finds none of what it did"


@pytest.mark.crash
def test_a_deferred_task_that_somebody_marks_has_its_driver_stopped(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    left = deferred(operator(deferrable=True), context())
    wait_for_driver(records)
    asyncio.run(trigger_again(left.trigger).on_kill())
    assert {"stopped": "on request"} in told(records)


def test_deferral_is_as_airflow_says_by_default(checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not operator().deferrable
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert operator().deferrable
    assert not operator(deferrable=False).deferrable


def test_a_driver_that_was_not_submitted_is_said(checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    monkeypatch.setenv("STAND_IN_REFUSES", "yes")
    with pytest.raises(AirflowException, match=r"the cluster did not take the driver: .*SparkException: no such queue$"):
        operator().execute(context())
