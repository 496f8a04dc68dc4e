"""The same steps at the made-up people who are erased with the requests: what is done to people must be done to them, or the scan finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.erasure import vault
from sluice.erasure.control import canary
from sluice.erasure.control.canary import CanaryPlace
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.steps import rows, sweep
from sluice.flows.quarantine import settlement
from sluice.ingest import formats
from sluice.ingest.landing import rewriting
from sluice.lake import log, tables
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import add_pseudonym_column, compute_pseudonym

if TYPE_CHECKING:
    from sluice.erasure.steps.erasing import Erasing

_PSEUDONYM = "_pseudonym"


def erase_canaries(erasing: Erasing, *kinds: str) -> None:
    """Erase the canaries of the requests that are carried out from their places of these kinds."""
    for name, request in _requests_by_canary(erasing.waiting).items():
        for place in canary.list_canary_places(erasing.workspace, name):
            if place.kind in kinds and not erasing.is_done(f"canary {place.kind}", f"{name}/{place.name}"):
                count = _erase_canary_place(erasing.workspace, request, place, erasing.began)
                erasing.done(f"canary {place.kind}", f"{name}/{place.name}", count)


def canary_table_paths(workspace: Workspace, requests: Iterable[ErasureRequest]) -> dict[str, str]:
    """The tables of canaries by a name of their own, for what is done to every table."""
    found = [(name, place) for name in _requests_by_canary(requests) for place in canary.list_canary_places(workspace, name)]
    return {f"canary_{name}_{place.name}": place.path for name, place in found if log.is_delta_table(place.path)}


def _requests_by_canary(requests: Iterable[ErasureRequest]) -> dict[str, ErasureRequest]:
    """By the names of their canaries, one of the requests that have it: the vault knows it of each of them."""
    return {request.control: request for request in requests}


def _erase_canary_place(workspace: Workspace, request: ErasureRequest, place: CanaryPlace, before: float) -> int:
    values = [
        one.value
        for one in vault.read_vault_identifiers(workspace.settings, workspace.pipeline, request.request)
        if one.domain == f"{canary.PREFIX}{place.domain}"
    ]
    if place.kind in ("table", "quarantine"):
        return _erase_canary_rows(workspace, place, values)
    if place.kind in ("landing", "archive"):
        return _rewrite_canary_files(workspace, place, frozenset(values))
    left = [path for path in sorted(Path(place.path).glob("*")) if place.kind == "state" or path.lstat().st_mtime <= before]
    for path in left:
        sweep.remove_file_or_folder(path)
    return len(left)


def _erase_canary_rows(workspace: Workspace, place: CanaryPlace, values: list[str]) -> int:
    """By pseudonyms, as people are, since no value may get into a plan."""
    if not log.is_delta_table(place.path):
        return 0
    key = secrets.read_secret_key(workspace.settings, make=False)
    hashed = [(made,) for value in values if (made := compute_pseudonym(key, place.domain, value))]
    wanted = tables.make_inline_frame(workspace.session, hashed, f"{_PSEUDONYM} STRING")
    present = tables.read_table(workspace.session, place.path).select(
        F.col(f"`{place.column}`").cast("string").alias("_erased_subject")
    )
    told = add_pseudonym_column(present.distinct(), key, place.domain, F.col("_erased_subject"), _PSEUDONYM)
    gone = told.join(F.broadcast(wanted), _PSEUDONYM, "left_semi").select("_erased_subject").persist()
    try:
        workspace.note("erasure_canary")
        same = f"CAST(t.`{place.column}` AS STRING) <=> s._erased_subject"
        return 0 if gone.isEmpty() else rows.delete_by_merge(workspace, place.path, gone, same)
    finally:
        gone.unpersist()


def _rewrite_canary_files(workspace: Workspace, place: CanaryPlace, values: frozenset[str]) -> int:
    prepared = []
    for path in sorted(path for path in Path(place.path).rglob("*") if path.is_file() and not path.name.startswith(".")):
        source = Source(
            name="canary", format="csv" if ".csv" in path.suffixes else "json", subject=place.column, infer_types=False
        )
        gone = set(_find_record_numbers(source, path, place.column, values))
        if gone:
            prepared.append(rewriting.prepare_rewritten_file(source, path.name, path, gone, False))
    return rewriting.replace_rewritten_files(
        settlement.rewriting_journal_folder(workspace), workspace.deliveries, prepared, workspace.run
    )


def _find_record_numbers(source: Source, path: Path, column: str, values: frozenset[str]) -> Iterator[int]:
    number = 0
    read = partial(formats.read_file_records, source, path, pa.schema([pa.field(column, pa.string())]), {})
    for block in read():
        for value in block.rows[column].to_pylist():
            if value in values:
                yield number
            number += 1
