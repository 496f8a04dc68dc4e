"""A made-up person, planted in every kind of store and erased by the same steps as people are: the control of the scan.

Requests that are carried out together have one of them together. What stands for it lies below <lake>/<pipeline>/_sluice/canary/<its name>/,
with somebody else beside it wherever rows are rewritten. A scan that does not find it beforehand proves nothing by finding nobody afterwards.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import residue
from residue import needles
from sluice.durable_files import load_kept_object, write_json_durably
from sluice.erasure import requests, vault
from sluice.erasure.personal_places import registry
from sluice.erasure.personal_places.place import LONG, SHORT, TEXT, CanaryMarks
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.vault import Identifier
from sluice.lake.workspace import Workspace
from sluice.pipeline_records import PipelineRecords

PREFIX = "canary:"
"""In front of a domain in the vault: an identifier of the canary, not of the person."""
_COLUMNS = {SHORT: (SHORT, f"{SHORT}_text")}
_NOW = "now-"
"""In front of the name of a canary that is planted for the scan of now."""
_LEFT = 86_400
"""Seconds after which such a one was left behind by a scan that was killed."""
PLANTED = "planted.json"
"""What was found of the canary when it had been planted: numbers by kind of store, and nothing else."""


def locate_canary_folder(records: PipelineRecords, name: str) -> Path:
    """The folder that holds a canary: <lake>/<pipeline>/_sluice/canary/<name>."""
    return Path(records.bookkeeping("canary")) / name


def plant_canary(workspace: Workspace, asked: Sequence[ErasureRequest]) -> list[ErasureRequest]:
    """Plant one canary in a place of every kind for those of the requests that have none. Before the first step of the propagation.

    Its identifiers go into the vault with those of each request; what a scan finds of them is kept as numbers. Returns the requests, each
    with its canary.
    """
    records = workspace.records
    erased = _find_erased_canaries(records, asked)
    unplanted = (one.request for one in asked if one.control in erased or read_planted_counts(records, one.control) is None)
    # One whose identifiers the vault has no more can be carried out, and never proved.
    without = [request for request in unplanted if vault.has_vault_entry(records, request)]
    if without:
        remove_stale_canaries(records)
        name, marks = secrets.token_hex(6), CanaryMarks.by_chance()
        made_up = [Identifier(f"{PREFIX}{domain}", value) for domain, value in _list_marked_values(marks)]
        for request in without:
            theirs = [one for one in vault.read_vault_identifiers(records, request) if not one.domain.startswith(PREFIX)]
            vault.replace_vault_identifiers(records, request, [*theirs, *made_up])
            requests.write_request_canary(records, request, name)
        _plant_canary_stores(workspace, locate_canary_folder(records, name), marks)
    return [requests.read_erasure_request(records, one.request) for one in asked]


def _find_erased_canaries(records: PipelineRecords, asked: Sequence[ErasureRequest]) -> set[str]:
    """The canaries that were erased with others by a propagation that these requests were not part of to its end."""
    now = {one.request for one in asked}
    return {one.control for one in requests.list_erasure_requests(records) if one.done_at is not None and one.request not in now}


def plant_control_stores(folder: Path, marks: CanaryMarks, retain: str) -> None:
    """A store of every kind, below a folder. retain: how long the pipeline keeps former versions."""
    for store in registry.list_control_stores():
        store.plant(folder / store.folder, marks, retain)


def _plant_canary_stores(workspace: Workspace, folder: Path, marks: CanaryMarks) -> None:
    plant_control_stores(folder, marks, workspace.graph.pipeline.retain)
    for store in registry.list_control_stores():
        if store.prepare:
            store.prepare(workspace, folder / store.folder)
    found = _scan_canary_folder(folder, needles.build_needles(_list_marked_values(marks), _COLUMNS))
    write_json_durably(folder / PLANTED, found)


def remove_stale_canaries(records: PipelineRecords) -> None:
    """Take away what is not needed any more: canaries of requests that are proved or looked at no more, and what killed runs have left."""
    needed = {one.control for one in requests.list_erasure_requests(records) if not _is_request_over(one)}
    for folder in locate_canary_folder(records, "").glob("*"):
        if folder.name.startswith(_NOW):
            left = time.time() - folder.stat().st_mtime > _LEFT
        else:
            left = folder.name not in needed or not (folder / PLANTED).is_file()
        if left:
            shutil.rmtree(folder, ignore_errors=True)


def _is_request_over(one: ErasureRequest) -> bool:
    refused = one.state == requests.FAILED and one.done_at is None
    return one.state == requests.CERTIFIED or refused or one.lifted_at is not None or one.withdrawn_at is not None


def find_planted_canary(records: PipelineRecords, name: str) -> Path | None:
    """The folder of a canary; None where none of that name was planted."""
    folder = locate_canary_folder(records, name)
    return folder if (folder / PLANTED).is_file() else None


def read_canary_identifiers(records: PipelineRecords, request: str) -> list[Identifier]:
    """Those of the canary of a request, without the prefix of their domain. [] where the vault has none."""
    if not vault.has_vault_entry(records, request):
        return []
    found = vault.read_vault_identifiers(records, request)
    return [Identifier(one.domain.removeprefix(PREFIX), one.value) for one in found if one.domain.startswith(PREFIX)]


def build_canary_needles(records: PipelineRecords, request: ErasureRequest) -> list[residue.Needle]:
    """What the scan looks for of the canary of a request."""
    made_up = read_canary_identifiers(records, request.request)
    return needles.build_needles(((one.domain, one.value) for one in made_up), _COLUMNS)


def scan_request_canary(records: PipelineRecords, request: ErasureRequest) -> dict[str, int]:
    """Scan the places of a request's canary. By kind of store, how often it was found; each kind is there, with 0 where it was not."""
    return _scan_canary_folder(locate_canary_folder(records, request.control), build_canary_needles(records, request))


def scan_fresh_canary(records: PipelineRecords) -> dict[str, int]:
    """Plant another canary, look for it, and remove it: whether the scanner of now finds one. By kind of store, how often it did."""
    folder = locate_canary_folder(records, f"{_NOW}{secrets.token_hex(6)}")
    marks = CanaryMarks.by_chance()
    try:
        plant_control_stores(folder, marks, "7 days")
        return _scan_canary_folder(folder, needles.build_needles(_list_marked_values(marks), _COLUMNS))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _list_marked_values(marks: CanaryMarks) -> list[tuple[str, str]]:
    return [(TEXT, marks.text), (SHORT, str(marks.short)), (LONG, str(marks.long))]


def _scan_canary_folder(folder: Path, wanted: list[residue.Needle]) -> dict[str, int]:
    return count_hits_by_store(residue.scan_roots([residue.ScanRoot("canary", str(folder))], [], wanted, processes=1).hits, "")


def count_hits_by_store(hits: list[residue.Hit], below: str) -> dict[str, int]:
    """Hits of the control by kind of store. below: the canary's folder, relative to the root that was scanned."""
    stores = {store.folder: store.findings for store in registry.list_control_stores()}
    found = {finding.title: 0 for findings in stores.values() for finding in findings}
    for hit in hits:
        folder, _, path = (os.path.relpath(hit.path, below) if below else hit.path).partition("/")
        finding = next((one for one in stores.get(folder, ()) if one.matches(path, hit)), None)
        if hit.control and finding:
            found[finding.title] += hit.times
    return found


def read_planted_counts(records: PipelineRecords, name: str) -> dict[str, int] | None:
    """What was found of a canary when it had been planted; None where none of that name was."""
    path = locate_canary_folder(records, name) / PLANTED
    remedy = f"Remove {path.parent}: the next erasure plants a canary anew"
    return load_kept_object(path, "what was found of a canary", remedy) if path.is_file() else None
