"""When a pipeline was kept running: remembered, since its schedule has no runs for that time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from croniter import croniter  # type: ignore[import-untyped]  # it ships no types

from sluice.declare.assembly.graph import Graph
from sluice.declare.interval import Interval
from sluice.durable_files import write_json_durably
from sluice.settings import Settings

_WRITE_AFTER = timedelta(minutes=1)


class KeptRunningSpan:
    """The time for which one process has kept a pipeline running, so far. To be used under the pipeline's lease."""

    def __init__(self, settings: Settings, pipeline: str) -> None:
        self._file = _kept_running_file(settings, pipeline)
        self._before = _read_kept_running_spans(self._file)
        self._start = datetime.now(UTC)
        self._last = self._written = self._start

    def looked(self) -> None:
        """Note that a look took all that had come. It is written down once a minute."""
        self._last = datetime.now(UTC)
        if self._written == self._start or self._last - self._written >= _WRITE_AFTER:
            self.write()

    def write(self) -> None:
        """Write down when the last look was, if there was one."""
        if self._last > self._start:
            self._written = self._last
            _write_kept_running_spans(self._file, [*self._before, (self._start, self._last)])


def read_kept_running_intervals(settings: Settings, graph: Graph) -> list[Interval]:
    """The scheduled time that was taken by looks: from the beginning of the interval in which the first was, to the last."""
    return [
        Interval(croniter(graph.pipeline.schedule, start + timedelta(microseconds=1)).get_prev(datetime), end)
        for start, end in _read_kept_running_spans(_kept_running_file(settings, graph.pipeline.name))
    ]


def _kept_running_file(settings: Settings, pipeline: str) -> Path:
    return Path(settings.bookkeeping(pipeline)) / "kept_running.json"


def _read_kept_running_spans(file: Path) -> list[tuple[datetime, datetime]]:
    try:
        spans = json.loads(file.read_text())
        return [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in spans]
    except (OSError, ValueError, TypeError):
        return []


def _write_kept_running_spans(file: Path, spans: list[tuple[datetime, datetime]]) -> None:
    write_json_durably(file, [(start.isoformat(), end.isoformat()) for start, end in spans])
