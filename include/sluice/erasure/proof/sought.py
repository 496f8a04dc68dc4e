"""The needles for the people of requests, the searches for them, and hints for the case that somebody is found.

Queries read every table in its current state by delta-rs, which no flow and no erasure writes with.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

import residue
from residue import Needle, ScannedSoFar, ScanResult, TableClock, Unread, needles
from sluice.declare.assembly.graph import PSEUDONYM
from sluice.declare.privacy.treat import AS_TEXT
from sluice.erasure import canary, vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.proof import search_scope, stamps
from sluice.erasure.proof.search_scope import UndeclaredPath
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.subjects import domain_columns
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError
from sluice.lake import releases, restricted_tables
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.releases import Release
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets, suppression_list
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.root_folders import LANDING, RELEASED, RESTRICTED
from sluice.work_progress import CountedWork, FollowedSubject, count_work, show_progress

if TYPE_CHECKING:
    from sluice.privacy.suppression_list import Times


@dataclass(frozen=True)
class SoughtNeedles:
    """What is searched for. A person's needle carries the request, a canary's needle the canary.

    shared: by request, how many identifiers were also others' at other times. These are searched for in rows whose time lies within the
    person's.
    """

    person: list[Needle]
    control: list[Needle]
    shared: Mapping[str, int]


@dataclass(frozen=True)
class SearchEvidence:
    """What a search found of the people of requests, and of their canaries.

    rows: what queries return. result: that of the scan. shared: see `SoughtNeedles`. undeclared: the paths below the roots that no
    declaration accounts for; erasures do not reach them, and nobody knows how they name people. hash_path: makes what a record says in
    place of a path.
    """

    rows: ScanResult
    result: ScanResult
    shared: Mapping[str, int]
    undeclared: Sequence[UndeclaredPath]
    hash_path: Callable[[str], str]

    def about_request(self, request: ErasureRequest) -> SearchEvidence:
        """The part of the evidence about one request and its canary."""
        rows, result = (found.about(request.request, request.control) for found in (self.rows, self.result))
        return replace(self, rows=rows, result=result)


def search_for_people(lake: PipelineLake, asked: Sequence[ErasureRequest]) -> SearchEvidence:
    """Scans, and queries the tables, for the people of these requests at once.

    Raises UsageError if the vault no longer has the identifiers of one, and SluiceError if the lake is not on this machine.
    """
    wanted = collect_sought_needles(lake, asked)
    return SearchEvidence(
        rows=query_sought_rows(lake, wanted),
        result=scan_all_roots(lake, wanted),
        shared=wanted.shared,
        undeclared=search_scope.find_undeclared_paths(lake),
        hash_path=stamps.make_path_hasher(lake.records),
    )


def collect_sought_needles(lake: PipelineLake, asked: Sequence[ErasureRequest]) -> SoughtNeedles:
    """Collects the needles for the people of some requests. Raises UsageError if the vault no longer has their identifiers."""
    records = lake.records
    columns, known = domain_columns.columns_by_domain(lake), releases.read_pipeline_releases(records)
    listed = _lazy_suppression_list(records)
    person: list[Needle] = []
    shared: dict[str, int] = {}
    for request in asked:
        found, shared[request.request] = _collect_request_needles(lake, request.request, columns, known, listed)
        person += [replace(one, of=request.request) for one in found]
    by_canary = {request.control: request for request in asked}
    control = [
        replace(needle, of=name)
        for name, request in by_canary.items()
        for needle in canary.build_canary_needles(records, request)
    ]
    return SoughtNeedles(person, control, shared)


def query_sought_rows(lake: PipelineLake, sought: SoughtNeedles) -> ScanResult:
    """Searches the rows that queries of the current tables return."""
    return _search_current_rows(search_scope.find_searched_tables(lake), sought.person, search_scope.find_table_clocks(lake))


def scan_all_roots(lake: PipelineLake, sought: SoughtNeedles) -> ScanResult:
    """Scans all roots. Raises SluiceError if the lake is not on this machine."""
    try:
        with show_progress(lake.graph.pipeline.name, FollowedSubject("scan of every byte")), count_work("files scanned") as work:
            roots = search_scope.list_scan_roots(lake)
            found = residue.scan_roots(roots, sought.person, sought.control, heard=functools.partial(_count_scanned_files, work))
    except ValueError as error:
        raise SluiceError(f"There can be no certificate: {error}.") from None
    found.unread += [
        Unread(LANDING.name, path, "it has no files, although files were delivered that nobody removed")
        for path in search_scope.find_absent_landing_folders(lake)
    ]
    records = lake.records
    if releases.are_releases_absent(records):
        folder = str(releases.releases_folder(records))
        found.unread.append(Unread(RELEASED.name, folder, "it has no release, although runs have made some that nobody removed"))
    found.unread += [
        Unread(RESTRICTED.name, path, "it is not there, although a run has written this table")
        for path in restricted_tables.find_absent_restricted_tables(lake).values()
    ]
    return found


def _count_scanned_files(work: CountedWork, scanned: ScannedSoFar) -> None:
    work.total, work.total_bytes = scanned.all_files, scanned.all_bytes
    work.advance(scanned.files - work.done, scanned.bytes - work.done_bytes)


def _collect_request_needles(
    lake: PipelineLake,
    request: str,
    columns: Mapping[str, set[str]],
    known: Sequence[Release],
    listed: Callable[[], Times],
) -> tuple[list[Needle], int]:
    """The needles for the people of one request, and how many of their identifiers were also others'."""
    encodings = search_scope.list_source_encodings(lake.graph)
    of_people = (one for one in vault.read_vault_identifiers(lake.records, request) if not one.domain.startswith(canary.PREFIX))
    found = _end_reassigned_identifiers(lake, request, list(of_people), listed)
    # Merges everything known of an identifier: an asked one has no times, one that was found has.
    shared = _group_shared_identifiers(found)
    own = dict.fromkeys((one.domain, one.value) for one in found if (one.domain, one.value) not in shared)
    person = [*needles.build_needles(own, columns, encodings), *_build_release_needles(lake, known, own)]
    person += [needles.build_timed_needle(*whose, spans) for whose, spans in shared.items()]
    person += [replace(one, shared=True) for one in needles.build_needles(shared, columns, encodings)]
    return person, len(shared)


def _build_release_needles(lake: PipelineLake, known: Sequence[Release], own: Iterable[tuple[str, str]]) -> list[Needle]:
    """The needles for the names of people in releases, by (domain, value): each release has pseudonyms of its own.

    A release made when a domain had another name may use that name.
    """
    found = []
    key = secrets.read_suppression_key(lake.settings, lake.records.suppression_list) if known else b""
    for release, (domain, value) in itertools.product(known, own):
        called = {of for told in release.tables.values() for of in told["pseudonyms"].values() if domain in lake.graph.former(of)}
        # A release from before a form was declared uses the text.
        forms = dict.fromkeys((lake.graph.canonical(domain), AS_TEXT))
        listed = dict.fromkeys(compute_pseudonym(key, one, value, form) for one in sorted({domain, *called}) for form in forms)
        made = [compute_pseudonym(key, release.domain, one) for one in listed if one]
        found += [Needle(domain, "of a release", one.encode(), fold=True) for one in made if one]
    return found


def _group_shared_identifiers(found: Sequence[Identifier]) -> dict[tuple[str, str], list[tuple[str | None, str | None]]]:
    """The identifiers that were the person's for a time, with their times."""
    shared: dict[tuple[str, str], list[tuple[str | None, str | None]]] = {}
    for one in found:
        if one.since or one.until:
            shared.setdefault((one.domain, one.value), []).append((one.since, one.until))
    return shared


def _lazy_suppression_list(records: PipelineRecords) -> Callable[[], Times]:
    """The suppression list, read at its first use."""

    @functools.cache
    def listed() -> Times:

        return suppression_list.read_suppression_times(records.suppression_list)

    return listed


def _end_reassigned_identifiers(
    lake: PipelineLake, request: str, found: Sequence[Identifier], listed: Callable[[], Times]
) -> list[Identifier]:
    """The identifiers, with an end for those that got a new owner since the erasure, which only the suppression list knows."""
    if not any(_may_have_ended(one) for one in found):
        return list(found)
    key, known = secrets.read_suppression_key(lake.settings, lake.records.suppression_list), listed()
    made = []
    for one in found:
        hashed = compute_pseudonym(key, one.domain, one.value, lake.graph.canonical(one.domain)) if _may_have_ended(one) else None
        entries = known.get((one.domain, hashed), ()) if hashed else ()
        ends = [
            _format_vault_instant(until)
            for of, since, until in entries
            if of == request and until and (since and _format_vault_instant(since)) == one.since
        ]
        made.append(replace(one, until=max(ends)) if ends else one)
    return made


def _format_vault_instant(at: datetime) -> str:
    """Formats an instant of the suppression list as the vault does."""
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat()


def _may_have_ended(one: Identifier) -> bool:
    return one.until is None and one.known_until is not None


def _search_current_rows(tables: Mapping[str, str], needles: Sequence[Needle], clocks: Mapping[str, TableClock]) -> ScanResult:
    """Searches the tables' current rows for the person. tables: paths by name; clocks: by name, for tables that have one.

    A hit's path is the table's name.
    """
    return residue.scan_tables(tables, _read_current_rows, needles, clocks)


def _read_current_rows(path: str) -> Iterator[pa.RecordBatch]:
    return open_table_snapshot(path).query_batches("SELECT * FROM t")


def hint_at_near_spellings(lake: PipelineLake, request: str) -> str:
    """One or two sentences to append to a message, without any value."""
    records = lake.records
    told = f" Where: sluice erase scan {records.pipeline} --request {request}"
    if not vault.has_vault_entry(records, request):
        return told
    kinds = sorted({
        one.domain
        for one in vault.read_vault_identifiers(records, request)
        if one.domain != PSEUDONYM
        and not one.domain.startswith(PREFIX)
        and lake.graph.canonical(one.domain) == AS_TEXT
        and not one.value.strip().isdecimal()
    })
    if not kinds:
        return told
    forms = ", ".join(f"'{kind}': 'lower'" for kind in kinds)
    return (
        f"{told} The scan finds other spellings, too, such as another letter case; an erasure takes out what is spelled alike. Where spellings "
        f"of a kind are one person's, say so: Pipeline(canonical={{{forms}}}). The next run then erases them."
    )
