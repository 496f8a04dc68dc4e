"""Applies the steps to the canaries erased with the requests. They must be treated as people are, or the scan finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_identifier
from sluice.erasure import canary, vault
from sluice.erasure.personal_places.place import TEXT, CanaryPlace, ControlStore
from sluice.erasure.personal_places.registry import list_control_stores
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.steps import rows, sweep
from sluice.erasure.steps.erasure_step import ErasureStep, Propagation
from sluice.flows.quarantine import settlement
from sluice.ingest import formats
from sluice.ingest.landing import rewriting
from sluice.lake import table_creation, table_frames
from sluice.lake.workspace import Workspace
from sluice.locations import Location
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import add_pseudonym_column, compute_pseudonym

_PSEUDONYM = "_pseudonym"


def erase_canaries(propagation: Propagation, stores: Sequence[ControlStore]) -> None:
    """Erases from these stores the canaries of the requests that are carried out."""
    for name, request in _requests_by_canary(propagation.waiting).items():
        for store in stores:
            step, of = ErasureStep(propagation, store.noted_step), f"{name}/{store.folder}"
            folder = canary.find_planted_canary(propagation.workspace.records, name)
            if folder and not step.is_done(of):
                values = _read_canary_values(propagation.workspace, request)
                place = CanaryPlace(folder / store.folder, store.column, values, propagation.began)
                step.record_done(of, store.erase(propagation.workspace, place))


def canary_table_paths(workspace: Workspace, requests: Iterable[ErasureRequest]) -> dict[str, str]:
    """The tables of canaries, by names of their own, for steps that cover every table."""
    planted = {name: canary.find_planted_canary(workspace.records, name) for name in _requests_by_canary(requests)}
    found = {
        f"canary_{name}_{store.folder}": str(folder / store.folder)
        for name, folder in planted.items()
        if folder
        for store in list_control_stores()
    }
    return {name: path for name, path in found.items() if delta_log.is_delta_table(path)}


def _requests_by_canary(requests: Iterable[ErasureRequest]) -> dict[str, ErasureRequest]:
    """By canary name, one of the requests that share it: the vault has the canary's identifiers for each of them."""
    return {request.control: request for request in requests}


def _read_canary_values(workspace: Workspace, request: ErasureRequest) -> frozenset[str]:
    """The values that identify rows and records of a request's canary."""
    return frozenset(
        one.value
        for one in vault.read_vault_identifiers(workspace.records, request.request)
        if one.domain == f"{canary.PREFIX}{TEXT}"
    )


def remove_canary_state(_: Workspace, place: CanaryPlace) -> int:
    """Removes it whole, as a stream's state is removed when the stream starts over."""
    return _remove_all(place.path.glob("*"))


def sweep_canary_files(_: Workspace, place: CanaryPlace) -> int:
    """Sweeps the leftovers from before this erasure began."""
    return _remove_all(path for path in place.path.glob("*") if path.lstat().st_mtime <= place.before)


def _remove_all(paths: Iterable[Location]) -> int:
    left = sorted(paths)
    for path in left:
        sweep.remove_file_or_folder(path)
    return len(left)


def erase_canary_rows(workspace: Workspace, place: CanaryPlace) -> int:
    """Erases by pseudonyms, as for people, since no value may get into a plan."""
    path = str(place.path)
    if not delta_log.is_delta_table(path):
        return 0
    key = secrets.read_secret_key(workspace.settings, make=False)
    hashed = [(made,) for value in sorted(place.values) if (made := compute_pseudonym(key, TEXT, value))]
    wanted = table_creation.make_inline_frame(workspace.session, hashed, f"{_PSEUDONYM} STRING")
    present = table_frames.read_table(workspace.session, path).select(
        quote_column(place.column).cast("string").alias("_erased_subject")
    )
    told = add_pseudonym_column(present.distinct(), key, TEXT, F.col("_erased_subject"), _PSEUDONYM)
    gone = told.join(F.broadcast(wanted), _PSEUDONYM, "left_semi").select("_erased_subject").persist()
    try:
        workspace.mark_next_commits("erasure_canary")
        same = f"CAST(t.{quote_identifier(place.column)} AS STRING) <=> s._erased_subject"
        return 0 if gone.isEmpty() else rows.delete_by_merge(workspace, path, gone, same)
    finally:
        gone.unpersist()


def rewrite_canary_files(workspace: Workspace, place: CanaryPlace) -> int:
    """Rewrites the files without the canary's records, as landed files are rewritten."""
    prepared = []
    for path in sorted(path for path in place.path.rglob("*") if path.is_file() and not path.name.startswith(".")):
        source = Source(
            name="canary", format="csv" if ".csv" in path.suffixes else "json", subject=place.column, infer_types=False
        )
        gone = set(_find_record_numbers(source, path, place.column, place.values))
        if gone:
            prepared.append(rewriting.prepare_rewritten_file(source, path.name, path, gone, False))
    return rewriting.replace_rewritten_files(
        settlement.rewriting_journal_folder(workspace), workspace.deliveries, prepared, workspace.run
    )


def _find_record_numbers(source: Source, path: Location, column: str, values: frozenset[str]) -> Iterator[int]:
    number = 0
    read = partial(formats.read_file_records, source, path, pa.schema([pa.field(column, pa.string())]), {})
    for block in read():
        for value in block.rows[column].to_pylist():
            if value in values:
                yield number
            number += 1
