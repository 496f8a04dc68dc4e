"""What a certificate is about: which folders and tables are searched, and what no search here can reach."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice import session_folders
from sluice.declare.assembly.graph import Graph
from sluice.declare.ingest.kafka import KafkaSource
from sluice.erasure.proof import clocks as times
from sluice.erasure.scan import Clock, Root, Written
from sluice.ingest.deliveries import known
from sluice.ingest.deliveries.absence import is_absent
from sluice.ingest.landing.cleaning import ARCHIVE
from sluice.lake import log
from sluice.lake.places import OfPipeline
from sluice.lake.workspace import has_quarantine
from sluice.settings import Settings

LANDING = "landing"
"""What the root of landed files is called."""
_NO_DELIMITER = "\x1f"
_AIRFLOW = ("airflow", "airflow2")


def roots(settings: Settings, graph: Graph) -> list[Root]:
    """Everything that Sluice controls and that may hold people: all but the vault and the secrets, which lie elsewhere.

    Raises ValueError where the lake is no folder of this machine: the scan reads files.
    """
    if "://" in settings.lake:
        raise ValueError("the lake is an object store, which this scan does not read")
    state, pipeline = settings.state, graph.pipeline.name
    clocks = times.of(settings, graph).values()
    found = [
        _of_tables("lake", f"{settings.lake}/{pipeline}", clocks),
        _of_tables("restricted", str(settings.restricted / pipeline), clocks),
        Root(LANDING, str(settings.landing / pipeline), written=_written(graph)),
        Root("released", str(settings.released / pipeline)),
        Root("spark-local", str(settings.spark_local), tuple(map(str, session_folders.running(settings)))),
        Root("warehouse", str(state / "warehouse")),
    ]
    # Whole: its database and logs, and whatever else Airflow or somebody keeps there.
    found += [Root(line, str(state / line)) for line in _AIRFLOW]
    return found + [Root("event logs", path) for path in _event_logs(settings)]


def absent_folders(settings: Settings, graph: Graph) -> list[str]:
    """Landing folders of which nothing is there although files should be."""
    landing, found = settings.landing / graph.pipeline.name, known.latest(settings.bookkeeping(graph.pipeline.name, "deliveries"))
    sources = [one for one in graph.sources.values() if not isinstance(one, KafkaSource)]
    return sorted({one.path for one in sources if is_absent(one, landing, found.of(one.name))})


def _of_tables(name: str, path: str, clocks: Iterable[Clock]) -> Root:
    """A root of tables, with the clocks of those that lie below it."""
    within = (replace(one, below=os.path.relpath(one.below, path)) for one in clocks if Path(one.below).is_relative_to(path))
    return Root(name, path, clocks=tuple(within))


def encodings(graph: Graph) -> list[str]:
    """The encodings that sources are delivered in."""
    return sorted({source.encoding for source in graph.sources.values()})


def tables(settings: Settings, graph: Graph) -> dict[str, str]:
    """Every table that is there and may hold people, by name: declared ones, quarantines, what came late, Sluice's own records."""
    places = OfPipeline(settings, graph)
    found: dict[str, str] = {}
    for declared in graph:
        found[graph.table_of(declared.name)] = places.table(declared.name)
        if has_quarantine(declared):
            found[f"{declared.name}_quarantine"] = places.quarantine(declared.name)
    for stream in (one for one in graph.streams.values() if one.may_be_late):
        found[stream.late] = graph.location_of_late(settings, stream.name)
    for name in ("deliveries", "outcomes", "runs", "suppression", "erasure"):
        found[f"_sluice/{name}"] = settings.bookkeeping(graph.pipeline.name, name)
    return {name: path for name, path in found.items() if log.exists(path)}


def out_of_reach(settings: Settings, graph: Graph) -> list[dict[str, Any]]:
    """What no scan of this machine's files can tell of, as exceptions of a certificate."""
    found = [
        {"what": f"topics of source '{source.name}'", "until": "the broker's retention"}
        for source in graph.sources.values()
        if isinstance(source, KafkaSource)
    ]
    if settings.truth.is_dir():
        found.append({"what": "truth of made-up deliveries, for comparison", "until": "it is removed by hand"})
    if settings.on_cluster:
        found.append({
            "what": "local disks of the cluster's executors: blocks, shuffled and spilt rows",
            "until": "the end of each application",
        })
    if not any((settings.state / line).is_dir() for line in _AIRFLOW):
        found.append({"what": "database and logs of an Airflow elsewhere, if there is one", "until": "its own retention"})
    if session_folders.running(settings):
        found.append({"what": "local files of running Spark sessions", "until": "the end of the session, which removes them"})
    return [
        *found,
        {"what": "backups, and earlier versions that a disk or an object store keeps", "until": "their own retention"},
    ]


def _written(graph: Graph) -> tuple[Written, ...]:
    """How the sources' text files are written: below their landing folders, and where these are archived."""
    found = []
    for source in graph.sources.values():
        # Of a source of lines whose lines are identifiers, a line is a row of one field.
        lines = source.format == "text" and bool(source.subject) and not source.subject_in
        delimiter = source.delimiter if source.format == "csv" else _NO_DELIMITER if lines else None
        for folder in (source.path, f"{ARCHIVE}/{source.path}"):
            found.append(
                Written(
                    "" if folder == "." else os.path.normpath(folder),
                    source.pattern,
                    source.encoding,
                    delimiter,
                    source.quote,
                    source.header and not lines,
                )
            )
    return tuple(found)


def _event_logs(settings: Settings) -> list[str]:
    try:
        told = settings.spark_properties.read_text(encoding="utf-8")
    except OSError:
        return []
    found = re.findall(r"^\s*spark\.eventLog\.dir[\s=]+(?:file:)?(/\S+)", told, re.MULTILINE)
    return found[-1:]
