"""The scope of a certificate: what is searched, of which time, what no search here can reach, and what no declaration accounts for.

No erasure reaches what nobody has declared, and nobody knows how it names people.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from residue import ScanRoot, TableClock, TextDialect, TextFileFormat
from sluice import delta_log, session
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.erasure.personal_places.place import Claim
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.ingest.deliveries import known_files
from sluice.ingest.deliveries.absence import is_landing_folder_absent
from sluice.ingest.landing.cleaning import ARCHIVE
from sluice.lake.pipeline_lake import PipelineLake, list_own_tables
from sluice.locations import Location, locate, walk_folders
from sluice.own_records import OWN_FOLDER, OWN_RECORDS
from sluice.root_folders import LANDING, RELEASED, SCANNED_ROOTS, RootFolder
from sluice.settings import AIRFLOW_HOMES, Settings
from sluice.spark_process import find_spark_properties_file
from sluice.stores.opening import is_searchable_location

_NO_DELIMITER = "\x1f"


def list_scan_roots(lake: PipelineLake) -> list[ScanRoot]:
    """Everything under Sluice's control that may hold people, except the vault and the secrets, which are elsewhere.

    Raises ValueError if the lake is on a store of a kind that the scan does not read.
    """
    if not is_searchable_location(lake.settings.lake):
        raise ValueError(f"the lake {lake.settings.lake} is on a store of a kind that the scan does not read")
    state, records = lake.settings.state, lake.records
    clocks = find_table_clocks(lake).values()
    formats = {LANDING.name: _list_text_formats(lake.graph)}
    found = [
        _build_scan_root(name, root / records.pipeline, clocks, formats.get(name, ()))
        for name, root in lake.settings.scanned_roots.items()
    ]
    found += [
        ScanRoot("spark-local", str(lake.settings.spark_local), tuple(map(str, session.session_folders_in_use(lake.settings)))),
        ScanRoot("warehouse", str(state / "warehouse")),
        ScanRoot("reports", str(lake.settings.reports)),
    ]
    # As a whole: its database and logs, and anything else that is kept there.
    found += [ScanRoot(line, str(state / line)) for line in AIRFLOW_HOMES.values()]
    return found + [ScanRoot("event logs", path) for path in _find_event_log_folder(lake.settings)]


def find_absent_landing_folders(lake: PipelineLake) -> list[str]:
    """Landing folders that do not exist although they should have files."""
    records = lake.records
    landing, found = records.landing, known_files.read_known_files(records.delivery_ledger)
    sources = [one for one in lake.graph.sources.values() if one.kind.in_files]
    return sorted({one.path for one in sources if is_landing_folder_absent(one, landing, found.files_of_source(one.name))})


def _build_scan_root(name: str, folder: Location, clocks: Iterable[TableClock], formats: tuple[TextFileFormat, ...]) -> ScanRoot:
    """The scan's root for a pipeline's folder below a root folder, with the clocks of the tables there."""
    below = (one for one in clocks if locate(one.below).is_relative_to(folder))
    within = (replace(one, below=str(locate(one.below).relative_to(folder))) for one in below)
    return ScanRoot(name, str(folder), clocks=tuple(within), written=formats)


def list_source_encodings(graph: Graph) -> list[str]:
    """The encodings of sources' deliveries."""
    return sorted({source.encoding for source in graph.sources.values()})


def find_searched_tables(lake: PipelineLake) -> dict[str, str]:
    """Every existing table that may hold people, by name: declared tables, quarantines, late tables, Sluice's own records."""
    found = {**lake.record_tables(), **list_own_tables(lake)}
    return {name: path for name, path in found.items() if delta_log.is_delta_table(path)}


def list_unreachable_places(lake: PipelineLake) -> list[dict[str, Any]]:
    """What no scan of this machine's files shows, as exceptions of a certificate."""
    excepting = (place.exceptions for place in PERSONAL_PLACES if place.exceptions)
    return [one._asdict() for exceptions in excepting for one in exceptions(lake)]


def _list_text_formats(graph: Graph) -> tuple[TextFileFormat, ...]:
    """The formats of the sources' text files, in landing folders and archives."""
    found = []
    for source in graph.sources.values():
        # For a source of lines in which a line is an identifier, a line counts as a row of one field.
        lines = source.format == "text" and bool(source.subject) and not source.subject_in
        other: dict[str, object] = {"delimiter": _NO_DELIMITER, "header": False} if lines else {"delimiter": None}
        # Complete and as plain data: the scanner shares no code with what it proves, and refuses unknown options.
        dialect = TextDialect(**(asdict(source.dialect) | ({} if source.row_dialect else other)))
        for folder in (source.path, f"{ARCHIVE}/{source.path}"):
            found.append(TextFileFormat("" if folder == "." else os.path.normpath(folder), source.pattern, dialect))
    return tuple(found)


def _find_event_log_folder(settings: Settings) -> list[str]:
    try:
        told = find_spark_properties_file(settings).read_text(encoding="utf-8")
    except OSError:
        return []
    found = re.findall(r"^\s*spark\.eventLog\.dir[\s=]+(?:file:)?(/\S+)", told, re.MULTILINE)
    return found[-1:]


_BY_TABLE = frozenset(one.name for one in OWN_RECORDS if one.by_table)


@dataclass(frozen=True)
class UndeclaredPath:
    """A file or folder that no declaration accounts for. path: relative to the root."""

    root: str
    path: str


def find_undeclared_paths(lake: PipelineLake) -> list[UndeclaredPath]:
    """The paths below the pipeline's folders that no place claims and `also_here` does not list."""
    return [one for one in _find_unclaimed_paths(lake) if _find_acknowledging_path(lake.graph, one) is None]


def find_acknowledged_paths(lake: PipelineLake) -> list[str]:
    """The paths in `also_here` that exist."""
    return sorted({said for one in _find_unclaimed_paths(lake) if (said := _find_acknowledging_path(lake.graph, one))})


def _find_acknowledging_path(graph: Graph, one: UndeclaredPath) -> str | None:
    """The path of `also_here` that covers something."""
    path = f"{one.root}/{one.path}"
    return next((said for said in graph.pipeline.also_here if path == said or path.startswith(f"{said}/")), None)


_LEVELS_CLAIMED = {RELEASED.name: 2}
"""How many levels below a root without tables must be claimed, if not all: of a release, its tables."""


def _find_unclaimed_paths(lake: PipelineLake) -> list[UndeclaredPath]:
    claims = [place.claims(lake) for place in PERSONAL_PLACES if place.claims]
    found = []
    for folder in SCANNED_ROOTS:
        root = lake.settings.locate_root(folder) / lake.graph.pipeline.name
        found += [UndeclaredPath(folder.name, str(path.relative_to(root))) for path in _list_unclaimed(folder, root, claims)]
    return found


def _list_unclaimed(folder: RootFolder, root: Location, claims: Sequence[Claim]) -> Iterator[Location]:
    """What no place claims of a pipeline's folder below a root folder."""
    if not folder.holds_tables:
        return _walk_unclaimed(folder.name, root, claims, _LEVELS_CLAIMED.get(folder.name))
    return (path for path in _list_pipeline_entries(root) if not any(claim(folder.name, path) for claim in claims))


def _list_pipeline_entries(root: Location) -> Iterator[Location]:
    """Tables, records and checkpoints of flows: the two upper levels of a pipeline's folder, and files at any level."""
    for layer in sorted(root.iterdir()) if root.is_dir() else []:
        if not layer.is_dir():
            yield layer
            continue
        for one in sorted(layer.iterdir()):
            if layer.name == OWN_FOLDER and one.name in _BY_TABLE:
                yield from sorted(one.iterdir())
            elif not (layer.name == OWN_FOLDER and one.name.startswith(".")):
                yield one


def _walk_unclaimed(name: str, root: Location, claims: Sequence[Claim], depth: int | None) -> Iterator[Location]:
    """What nobody claims: a whole folder, or the unclaimed contents of a claimed one. depth: how many levels to look at."""
    for here, below, files in walk_folders(root):
        unclaimed = {one for one in (*below, *files) if not any(claim(name, here / one) for claim in claims)}
        yield from (here / one for one in sorted(unclaimed))
        last = depth is not None and len(here.relative_to(root).parts) + 1 >= depth
        below[:] = [] if last else sorted(one for one in below if one not in unclaimed)


_CALL = re.compile(r"(try_cast|cast|timestamp_seconds|timestamp_millis|timestamp_micros)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_AS = re.compile(r"(.*?)\s+AS\s+(TIMESTAMP|BIGINT|DOUBLE)", re.IGNORECASE | re.DOTALL)
_TIMES = re.compile(r"(.*?)\s*\*\s*(1e3|1e6|1000|1000000)", re.IGNORECASE | re.DOTALL)
_PER_SECOND = {"timestamp_seconds": 1.0, "timestamp_millis": 1e3, "timestamp_micros": 1e6}


def find_table_clocks(lake: PipelineLake) -> dict[str, TableClock]:
    """For each table kept by identifiers that change hands: the subject of its rows, and the column with their time.

    The column is found as far as a reader without Spark can tell. Views are left out because they are recomputed from these tables, and so
    are tables whose subject is inside a column.
    """
    changing, found = lake.graph.changing_hands(), {}
    for declared in lake.graph:
        domain = lake.graph.domain(declared)
        if declared.subject and domain in changing and not declared.subject_in:
            at, per_second = parse_instant_expression(subjects.subject_time_expression(declared) or "")
            path = lake.path(declared.name)
            found[lake.graph.table_of(declared.name)] = TableClock(path, str(domain), declared.subject, at, per_second)
    return found


def parse_instant_expression(text: str) -> tuple[str | None, float]:
    """The column of an SQL expression for an instant, and how many of its units make a second. None for an unknown form.

    Known forms: a column, CAST(column AS TIMESTAMP), and timestamp_seconds, _millis and _micros of one, with casts and a factor inside.
    """
    per_second, text = 1.0, text.strip()
    while not re.fullmatch(r"`?\w+`?", text):
        called, times = _CALL.fullmatch(text), _TIMES.fullmatch(text)
        if times and times.group(1).count("(") == times.group(1).count(")"):
            text, per_second = times.group(1).strip(), per_second / float(times.group(2))
        elif called and "cast" in called.group(1).lower() and (kind := _AS.fullmatch(called.group(2))):
            text = kind.group(1).strip()
        elif called and called.group(1).lower() in _PER_SECOND:
            text, per_second = called.group(2).strip(), per_second * _PER_SECOND[called.group(1).lower()]
        else:
            return None, 1.0
    return text.strip("`") or None, per_second
