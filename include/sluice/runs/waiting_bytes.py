"""Estimates how many bytes wait for a process that is about to start, by the sizes and times of files. Loads neither Spark nor Arrow.

A JVM chooses its compilers when it starts, before anything is planned. So this is a guess, and a low one for compressed files. A wrong guess
costs seconds, and no row depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluice.locations import Location, list_written_files, locate
from sluice.pipeline_records import PipelineRecords
from sluice.runs import quiet
from sluice.spark_process import session_conf_with_all_compilers

WORTH_ALL_COMPILERS = 150_000_000
"""The number of bytes from which the slow compiler's code saves more than it costs. Source: `benchmarks/bulk.py`, CPU seconds and wall seconds with
the quick compiler alone and with all: 48 MB 56 and 38, 77 and 43; 160 MB 118 and 78, 112 and 66."""
_TEXT_OF_TABLES = 4
"""How many bytes of JSON a byte of a table stands for."""


def choose_session_conf(records: PipelineRecords, run: str) -> Mapping[str, str]:
    """Returns settings for a run's session beside its properties file, by how much waits for it. run: its id, or "" if it has none yet."""
    try:
        much = measure_waiting_bytes(records, run) >= WORTH_ALL_COMPILERS
    except OSError:  # the stage reports what is wrong
        much = False
    return session_conf_with_all_compilers(records.settings) if much else {}


def measure_waiting_bytes(records: PipelineRecords, run: str) -> int:
    """Returns the bytes that came since the last run began; for a later stage of a run, those that its earlier stages have written.

    Before the first run everything counts. If runs were recorded but it is unknown when the last began, nothing counts: most runs find little,
    however large their lake is. Raises OSError.
    """
    mark = quiet.read_quiet_mark(records)
    if mark is None and locate(records.run_ledger).exists():
        return 0
    since = mark.began.timestamp() if mark else 0.0
    waiting = 0
    if mark is None or mark.run != run:
        waiting += sum(_list_sizes(records.landing, since))
    if mark is None or mark.run == run:
        roots = records.settings.table_roots.values()
        waiting += _TEXT_OF_TABLES * sum(size for root in roots for size in _list_sizes(root / records.pipeline, since))
    return waiting


def _list_sizes(folder: Location, since: float) -> Iterator[int]:
    """Returns the sizes of the files below a folder that were written or put there since. Does not follow links."""
    return (size for size, written in list_written_files(folder) if written >= since)
