"""Explains in one line why a run failed: what happened, to what, and what to do. The commonest failures are in one table, REASONS.

Only paths of an error's texts are shown, without the folders of partitions: the rest may hold a cell's value.
"""

from __future__ import annotations

import os
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from sluice import error_conditions
from sluice.delta_log import LOG
from sluice.errors import SluiceError
from sluice.locations import Location, is_on_disk, locate
from sluice.pipeline_stages import VACUUM
from sluice.root_folders import ROOTS_WRITTEN_BY_RUNS
from sluice.settings import Settings

_STORE_ANSWERS = {
    "NoSuchBucket": "has no such bucket",
    "InvalidAccessKeyId": "does not know this user",
    "SignatureDoesNotMatch": "does not accept this user's key",
    "ExpiredToken": "does not accept this user's credentials any more",
    "The store refuses this user": "refuses this user",
    "Status Code: 403": "refuses this user",
    "403 Forbidden": "refuses this user",
    "Unable to load credentials": "was not asked, for want of credentials",
    "Unable to execute HTTP request": "cannot be reached",
    "The store gave no answer that can be used": "gave no answer that can be used",
    "Generic S3 error": "gave no answer that can be used",
}
"""What the store did, by the messages of the AWS SDK, obstore or S3A. The first match counts; the last ones say little."""
_PATH_NOT_FOUND = "[PATH_NOT_FOUND]"


@dataclass(frozen=True)
class Failure:
    """An error with its whole chain of causes. text: the texts of all of them, including the JVM's; it is searched, never shown."""

    errors: tuple[BaseException, ...]
    text: str

    def says(self, *marks: str) -> bool:
        """Whether any of the errors' texts holds one of these."""
        return any(mark in self.text for mark in marks)

    def path(self, pattern: str = r"(?:file:)?(/[^\s'\",()\[\]]+)") -> Location | None:
        """Returns the path that the innermost error is about, or the first in the texts that fits a pattern."""
        named = [error.filename for error in self.errors if isinstance(error, OSError) and isinstance(error.filename, str)]
        found = re.search(pattern, self.text)
        return locate(named[-1]) if named else locate(found.group(1)) if found else None


def explain_failure(error: BaseException) -> str | None:
    """Returns the line of the first entry of REASONS that recognises the failure, or None."""
    failure = Failure(tuple(_walk_error_chain(error)), "\n".join(_read_error_text(one) for one in _walk_error_chain(error)))
    return next((line for reason in REASONS if (line := reason.explain(failure))), None)


def name_failure(error: BaseException) -> str:
    """Returns which kind of failure it is, in a few words that hold no text of the error: Sluice's own class, a reason, Spark's condition, a class.

    It raises nothing, whatever state the JVM, the disk or the jars are in: the record of the run must not be lost for it.
    """
    if isinstance(error, SluiceError):
        return type(error).__name__
    try:
        chain = tuple(_walk_error_chain(error))
        failure = Failure(chain, "\n".join(_read_error_text(one) for one in chain))
        known = next((reason.kind for reason in REASONS if reason.explain(failure)), None)
        return known or error_conditions.last_error_condition(failure.text) or type(error).__name__
    except Exception:
        return type(error).__name__


def _explain_lost_jvm(failure: Failure) -> str | None:
    # Py4J says so in several ways, one of them "An error occurred while calling o26.range". So the JVM itself is asked.
    if not any(_is_raised_in(error, "py4j") for error in failure.errors) or _is_jvm_alive():
        return None
    return (
        "Spark's driver, the JVM of this job, ended in the middle of the work: somebody or the system killed it, most often for want of "
        "memory (dmesg tells). What was committed stands. Run it again; if memory was short, give the machine "
        "more or set spark.driver.memory in spark_jobs/conf/spark-defaults.conf to what it has."
    )


def _explain_short_memory(failure: Failure) -> str | None:
    if not (failure.says("java.lang.OutOfMemoryError") or any(isinstance(error, MemoryError) for error in failure.errors)):
        return None
    return (
        "Spark's driver had too little memory for the work. What was committed stands. Raise spark.driver.memory in "
        "spark_jobs/conf/spark-defaults.conf, then run it again."
    )


def _explain_full_disk(failure: Failure) -> str | None:
    if not failure.says("No space left on device", "(os error 28)", "Disk quota exceeded", "(os error 122)"):
        return None
    full = [
        f"{folder} ({_describe_free_space(folder)})"
        for folder in _list_written_folders()
        if folder.exists() and shutil.disk_usage(folder).free < _LITTLE
    ]
    where = f"of {', '.join(full)} is full" if full else "that the lake or Spark's local folder lies on was full"
    return (
        f"The disk {where}. What was committed stands. Make room (the stage {VACUUM.name} removes the tables' old files), "
        "then run it again."
    )


def _explain_read_only_folder(failure: Failure) -> str | None:
    closed = [str(folder) for folder in _list_written_folders() if folder.exists() and not os.access(folder, os.W_OK)]
    clearly = failure.says("Read-only file system", "(os error 30)", "Permission denied", "(os error 13)")
    # Hadoop and Delta do not say why they could not create a folder, so check the folders.
    if not clearly and not (closed and failure.says("Mkdirs failed to create", "DELTA_CANNOT_CREATE_LOG_PATH")):
        return None
    path = failure.path()
    what = ", ".join(closed) or (str(_cut_partition_folders(path)) if path else "A folder of the lake")
    return (
        f"{what} cannot be written by this process: its file system is read-only, or its rights do not allow it. What was committed stands. "
        "Mount it for writing or give this user the right (sluice doctor looks at it), then run it again."
    )


def _explain_lost_lease(failure: Failure) -> str | None:
    if not failure.says("is lost or could not be renewed in time"):  # the message of ConditionalPutLogStore
        return None
    return (
        "The lease of this run was lost, or could not be renewed in time: the store did not answer, or this machine stood still. "
        "What was committed stands. Run it again."
    )


def _explain_unusable_store(failure: Failure) -> str | None:
    reason = next((why for mark, why in _STORE_ANSWERS.items() if failure.says(mark)), None)
    if reason is None:
        return None
    return f"The object store {reason}. What was committed stands. sluice doctor --lake URL tries it; then run it again."


def _explain_missing_data_file(failure: Failure) -> str | None:
    # PATH_NOT_FOUND is said where Spark is given the paths of a small table's files.
    gone = (
        *("FAILED_READ_FILE.FILE_NOT_EXIST", "FileNotFoundException", "DELTA_FILE_NOT_FOUND", "Object at location"),
        _PATH_NOT_FOUND,
    )
    # Absolute: delta-rs also names the same file without the first slash.
    missing = failure.says(*gone) or any(isinstance(error, FileNotFoundError) for error in failure.errors)
    path = failure.path(r"(?:(?<![\w.-])|file:)(/[^\s'\",()\[\]]+\.parquet)") if missing else None
    table = _find_enclosing_table(path) if path else None
    if path is None or table is None:
        return None
    pipeline = table.parts[-3]
    return (
        f"The table {table} has lost its data file {path.name}: its log names it, and it is not there. Put it back from a copy. "
        f"A table above bronze can be made again instead: move {table} away, then run it again: sluice run {pipeline}"
    )


def _explain_missing_landed_file(failure: Failure) -> str | None:
    path = failure.path() if failure.says(_PATH_NOT_FOUND) else None
    landing = next((folder for folder in _list_landing_folders() if path is not None and path.is_relative_to(folder)), None)
    if path is None or landing is None:
        return None
    source = landing.joinpath(*path.relative_to(landing).parts[:2])
    return (
        f"A file below {source} went away while it was read. What was committed stands. Run it again: a file that is gone is then "
        "noted as missed, and is a new delivery once it is back."
    )


@dataclass(frozen=True)
class Reason:
    """Why a run may fail. kind: as the run ledger names it. explain: the line for it, or None if the failure is another."""

    kind: str
    explain: Callable[[Failure], str | None]


REASONS = (
    Reason("full disk", _explain_full_disk),
    Reason("lost lease", _explain_lost_lease),
    Reason("unusable store", _explain_unusable_store),
    Reason("read-only folder", _explain_read_only_folder),
    Reason("short memory", _explain_short_memory),
    Reason("missing data file", _explain_missing_data_file),
    Reason("missing landed file", _explain_missing_landed_file),
    Reason("lost JVM", _explain_lost_jvm),
)
"""The order matters: a full disk or too little memory may be the reason why the JVM is gone."""

_LITTLE = 64 << 20
"""With fewer free bytes the disk is taken to have been full: Spark removes its partial file when it fails, which frees some."""


def _walk_error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, and those it was raised from or during, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]


def _read_error_text(error: BaseException) -> str:
    """Returns an error's text; for an error of the JVM with its causes, as long as the JVM can tell them."""
    try:
        return f"{error}\n{getattr(error, '_stackTrace', '')}"
    except Exception:
        return type(error).__name__


def _is_raised_in(error: BaseException, package: str) -> bool:
    """Whether any of an error's frames is in a package."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None:
        if str(frame.tb_frame.f_globals.get("__name__", "")).split(".")[0] == package:
            return True
        frame = frame.tb_next
    return False


def _is_jvm_alive() -> bool:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        return gateway is not None and gateway.jvm.System.currentTimeMillis() > 0
    except Exception:
        return False


def _list_written_folders() -> list[Location]:
    """Lists the root folders on this machine's disks that a run writes to, and that of Spark's own files."""
    try:
        settings = Settings.current()
    except SluiceError:
        return []
    written = (*settings.locate_roots(ROOTS_WRITTEN_BY_RUNS).values(), settings.spark_local)
    return [folder for folder in dict.fromkeys(written) if is_on_disk(folder)]


def _list_landing_folders() -> list[Location]:
    try:
        return [Settings.current().landing]
    except SluiceError:
        return []


def _describe_free_space(folder: Location) -> str:
    usage = shutil.disk_usage(folder)
    return f"{usage.free >> 20:,} of {usage.total >> 20:,} MB are free"


def _find_enclosing_table(path: Location) -> Location | None:
    """Returns the folder of the table that a file lies in."""
    return next((folder for folder in path.parents if (folder / LOG).is_dir()), None)


def _cut_partition_folders(path: Location) -> Location:
    """Returns the path up to the first folder of a partition, whose name is a value."""
    return next((folder.parent for folder in reversed((path, *path.parents)) if "=" in folder.name), path)


def describe_error_without_values(error: BaseException) -> str:
    """Returns why it failed, without a cell's value. For Spark's own errors that is only their condition, because their text may quote data."""
    if os.environ.get("SLUICE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, SluiceError):
        return str(error)
    if known := explain_failure(error):
        return known
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(error, AnalysisException):
        return error_conditions.explain_refused_query(error)
    condition = error_conditions.last_error_condition(str(error))
    if isinstance(error, PySparkException) or condition:
        return f"Spark failed with {condition or type(error).__name__}. SLUICE_DEBUG=1 shows where (and may show data)."
    where = _find_line_of_transform(error)
    return f"{type(error).__name__} in {where or 'Sluice itself'}. SLUICE_DEBUG=1 shows {'more' if where else 'where'} (and may show data)."


def _find_line_of_transform(error: BaseException) -> str | None:
    """Returns the file and line of a pipeline that the error comes from. None if the engine's code was called after it."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("pipelines."):
            found = f"{frame.f_code.co_filename}, line {line} (your transform)"
        elif module.startswith("sluice.") and not module.startswith("sluice.declare."):
            found = None
    return found
