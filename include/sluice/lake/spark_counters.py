"""What Spark counted of the jobs of each flow: the numbers that it keeps in memory for its UI.

Spark's event log has the same numbers, but also plans, whose literals are data. These numbers hold no data, and nothing is written that an
erasure would have to find.

No result depends on them: if they cannot be read, because Spark is gone or of another make, the run must not fail. So every exception is
caught here, and the counts are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]  # it ships no types

from sluice.errors import SparkNeeded
from sluice.work_progress import TaskCount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAG = "spark-session-"
_TRIED_AGAIN = 50
"""How many stages more than there are is looked at: one that is tried again is listed twice."""
_FEW_TASKS = 4
_SHORT_STAGE = 2_000
"""With fewer tasks, or in a shorter stage (milliseconds), it means nothing that one task takes longer than the others."""


def count_started_jobs(session: SparkSession) -> int:
    """Returns how many jobs Spark has started in this process, or 0 if it is gone."""
    try:
        return int(_spark_context(session).dagScheduler().numTotalJobs())
    except Exception:
        return 0


def session_job_tag(session: SparkSession) -> str:
    """Returns the tag of a session's jobs; those of a stream's batches have the id of its run. "" if Spark is gone."""
    try:
        return str(session._jsparkSession.sessionUUID())
    except Exception:
        return ""


def measure_cpu_seconds(session: SparkSession) -> float | None:
    """Returns the CPU seconds that this process and its JVM have taken since they began; None if the JVM is gone or on another machine."""
    try:
        processes = [os.getpid()]
        with suppress(SparkNeeded):  # a stage without Spark has no JVM
            jvm: Any = session._jvm
            processes.append(int(jvm.java.lang.ProcessHandle.current().pid()))
        used = [psutil.Process(pid).cpu_times() for pid in processes]
        return sum(float(one.user + one.system) for one in used)
    except Exception:
        return None


def count_jobs_by_flow(session: SparkSession, tags: Mapping[str, Sequence[str]], since: int) -> dict[str, dict[str, float]]:
    """Returns the counts of each flow's jobs. tags: by flow, the tags of its sessions and of its streams' runs.

    since: how many of the process's first jobs are skipped, as `count_started_jobs` said. Empty if Spark is gone: a run is recorded all the
    same.

    Counts: jobs, tasks, failed_tasks; task_seconds, which include gc_seconds and serialisation_seconds; cpu_seconds, of the threads that run
    the tasks; input_bytes, shuffle_bytes, spilled_bytes; skew: the longest task divided by the median one in the stage where that is worst,
    with longest_task_seconds.
    """
    try:
        jobs, stages = _read_jobs_and_stages(session, since)
        flows = {tag: flow for flow, ours in tags.items() for tag in ours}
        found: dict[str, list[_JobNumbers]] = {}
        for job in jobs:
            flow = next((flows[tag] for tag in job.tags if tag in flows), None)
            if flow is not None:
                found.setdefault(flow, []).append(job)
        return {flow: _sum_job_counters(session, ours, stages) for flow, ours in found.items()}
    except Exception:
        return {}


def count_running_tasks(session: SparkSession, tags: Mapping[str, Sequence[str]]) -> dict[str, TaskCount]:
    """Returns, by subject, how many tasks of its running jobs are done, and how many there are. tags: as in `count_jobs_by_flow`, by subject.

    A subject without a job is missing. Empty if Spark is gone.
    """
    try:
        jobs = _read_running_jobs(session)
    except Exception:
        return {}
    found = {}
    for subject, ours in tags.items():
        running = [job for job in jobs if not set(ours).isdisjoint(_job_tags(job))]
        if running:
            all_ = sum(int(job["numTasks"]) - int(job["numSkippedTasks"]) for job in running)
            found[subject] = TaskCount(sum(int(job["numCompletedTasks"]) for job in running), all_)
    return found


def _read_running_jobs(session: SparkSession) -> list[dict[str, Any]]:
    jvm: Any = session._jvm
    running = jvm.java.util.ArrayList()
    running.add(jvm.org.apache.spark.JobExecutionStatus.RUNNING)
    found: list[dict[str, Any]] = json.loads(_json_writer(session)(_spark_context(session).statusStore().jobsList(running)))
    return found


def _job_tags(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns a job's tag: the id of the run for a stream's batch, otherwise its session."""
    return tuple(tag for tag in [job["jobGroup"], *(one.removeprefix(_TAG) for one in job["jobTags"])] if tag)


@dataclass(frozen=True)
class _JobNumbers:
    tags: tuple[str, ...]
    stages: tuple[int, ...]


def _read_jobs_and_stages(session: SparkSession, since: int) -> tuple[list[_JobNumbers], dict[int, dict[str, Any]]]:
    context = _spark_context(session)
    context.listenerBus().waitUntilEmpty()
    store, write = context.statusStore(), _json_writer(session)
    new = int(context.dagScheduler().numTotalJobs()) - since
    if new <= 0:
        return [], {}
    jobs = [
        _JobNumbers(_job_tags(job), tuple(job["stageIds"]))
        for job in json.loads(write(store.jobsList(None).take(new)))  # the latest first
    ]
    wanted = {stage for job in jobs for stage in job.stages}
    stages = store.stageList(None, False, False, getattr(store, "stageList$default$4")(), getattr(store, "stageList$default$5")())
    latest = json.loads(write(stages.take(len(wanted) + _TRIED_AGAIN)))  # the latest first, too
    return jobs, {stage["stageId"]: stage for stage in latest if stage["stageId"] in wanted and stage["numCompleteTasks"]}


def _sum_job_counters(
    session: SparkSession, jobs: Sequence[_JobNumbers], stages: Mapping[int, Mapping[str, Any]]
) -> dict[str, float]:
    ours = [stages[number] for number in sorted({stage for job in jobs for stage in job.stages}) if number in stages]

    def total(*names: str) -> int:
        return sum(int(stage[name]) for stage in ours for name in names)

    found: dict[str, float] = {
        "jobs": len(jobs),
        "tasks": total("numCompleteTasks"),
        "failed_tasks": total("numFailedTasks"),
        "task_seconds": total("executorRunTime") / 1000,
        "cpu_seconds": total("executorCpuTime") / 1_000_000_000,
        "gc_seconds": total("jvmGcTime") / 1000,
        "serialisation_seconds": total("executorDeserializeTime", "resultSerializationTime") / 1000,
        "input_bytes": total("inputBytes"),
        "shuffle_bytes": total("shuffleWriteBytes"),
        "spilled_bytes": total("diskBytesSpilled"),
        **_find_worst_skew(session, ours),
    }
    return {name: round(number, 2) for name, number in found.items() if number}


def _find_worst_skew(session: SparkSession, stages: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    store, write = _spark_context(session).statusStore(), _json_writer(session)
    worst = {"skew": 0.0, "longest_task_seconds": 0.0}
    for stage in stages:
        if stage["numCompleteTasks"] < _FEW_TASKS or stage["executorRunTime"] < _SHORT_STAGE:
            continue
        quantiles = session.sparkContext._gateway.new_array(session._jvm.double, 2)  # type: ignore[union-attr]
        quantiles[0], quantiles[1] = 0.5, 1.0
        summary = store.taskSummary(stage["stageId"], stage["attemptId"], quantiles)
        if summary.isDefined():
            median, longest = json.loads(write(summary.get()))["executorRunTime"]
            if longest / max(median, 1) > worst["skew"]:
                worst = {"skew": longest / max(median, 1), "longest_task_seconds": longest / 1000}
    return worst


def _spark_context(session: SparkSession) -> Any:
    return session.sparkContext._jsc.sc()


def _json_writer(session: SparkSession) -> Any:
    """Returns a function that writes one of Spark's objects as JSON: one call instead of one for each number."""
    jvm: Any = session._jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    mapper.registerModule(getattr(getattr(jvm.com.fasterxml.jackson.module.scala, "DefaultScalaModule$"), "MODULE$"))
    return mapper.writeValueAsString
