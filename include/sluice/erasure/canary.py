"""The canary: a made-up person, planted in every kind of store and erased by the same steps as people, as a control of the scan.

Requests that are carried out together share one. Its stores lie below <lake>/<pipeline>/_sluice/canary/<its name>/, with a second
made-up person beside it wherever rows are rewritten. If the scan does not find the canary beforehand, finding nobody afterwards proves
nothing.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence

import residue
from residue import needles
from sluice.durable_files import load_kept_object, write_json_durably
from sluice.erasure import request_record, requests, vault
from sluice.erasure.personal_places import registry
from sluice.erasure.personal_places.place import LONG, SHORT, TEXT, CanaryMarks
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.vault import Identifier
from sluice.lake.workspace import Workspace
from sluice.locations import Location, find_last_write, locate, remove_folder
from sluice.own_records import CANARY
from sluice.pipeline_records import PipelineRecords

PREFIX = "canary:"
"""Prefix of a domain in the vault that marks an identifier of the canary, not of the person."""
_COLUMNS = {SHORT: (SHORT, f"{SHORT}_text")}
_NOW = "now-"
"""Prefix of the name of a canary planted for the current scan."""
_LEFTOVER_SECONDS = 86_400
"""Seconds after which such a canary must be the leftover of a killed scan."""
PLANTED = "planted.json"
"""The file with what the scan found of the canary after planting: numbers by kind of store, and nothing else."""


def locate_canary_folder(records: PipelineRecords, name: str) -> Location:
    """The folder that holds a canary: <lake>/<pipeline>/_sluice/canary/<name>."""
    return locate(records.bookkeeping(CANARY.name)) / name


def plant_canary(workspace: Workspace, asked: Sequence[ErasureRequest]) -> list[ErasureRequest]:
    """Plants one canary in a place of every kind for those of the requests that have none, before the first step of propagation.

    Its identifiers go into the vault with those of each request; only the numbers of what a scan finds of them are kept. Returns the
    requests, each with its canary.
    """
    records = workspace.records
    erased = _find_erased_canaries(records, asked)
    unplanted = (one.request for one in asked if one.control in erased or read_planted_counts(records, one.control) is None)
    # A request whose identifiers have left the vault can be carried out, but never proved.
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
    return [request_record.read_erasure_request(records, one.request) for one in asked]


def _find_erased_canaries(records: PipelineRecords, asked: Sequence[ErasureRequest]) -> set[str]:
    """The canaries of other requests that are already done: an earlier propagation has erased them."""
    now = {one.request for one in asked}
    return {
        one.control
        for one in request_record.list_erasure_requests(records)
        if one.rows_left_at is not None and one.request not in now
    }


def plant_control_stores(folder: Location, marks: CanaryMarks, retain: str) -> None:
    """Plants a store of every kind below a folder. retain: how long the pipeline keeps former versions."""
    for store in registry.list_control_stores():
        store.plant(folder / store.folder, marks, retain)


def _plant_canary_stores(workspace: Workspace, folder: Location, marks: CanaryMarks) -> None:
    plant_control_stores(folder, marks, workspace.graph.pipeline.retain)
    for store in registry.list_control_stores():
        if store.prepare:
            store.prepare(workspace, folder / store.folder)
    found = _scan_canary_folder(folder, needles.build_needles(_list_marked_values(marks), _COLUMNS))
    write_json_durably(folder / PLANTED, found)


def remove_stale_canaries(records: PipelineRecords) -> None:
    """Removes canaries that are no longer needed: those of requests that are over, and leftovers of killed runs."""
    needed = {one.control for one in request_record.list_erasure_requests(records) if not one.is_over}
    for folder in locate_canary_folder(records, "").glob("*"):
        if folder.name.startswith(_NOW):
            left = time.time() - find_last_write(folder) > _LEFTOVER_SECONDS
        else:
            left = folder.name not in needed or not (folder / PLANTED).is_file()
        if left:
            remove_folder(folder)


def find_planted_canary(records: PipelineRecords, name: str) -> Location | None:
    """The folder of a canary. None if no canary of that name was planted."""
    folder = locate_canary_folder(records, name)
    return folder if (folder / PLANTED).is_file() else None


def read_canary_identifiers(records: PipelineRecords, request: str) -> list[Identifier]:
    """The identifiers of a request's canary, without the prefix of their domains; [] if the vault has none."""
    if not vault.has_vault_entry(records, request):
        return []
    found = vault.read_vault_identifiers(records, request)
    return [Identifier(one.domain.removeprefix(PREFIX), one.value) for one in found if one.domain.startswith(PREFIX)]


def build_canary_needles(records: PipelineRecords, request: ErasureRequest) -> list[residue.Needle]:
    """What the scan searches for to find a request's canary."""
    made_up = read_canary_identifiers(records, request.request)
    return needles.build_needles(((one.domain, one.value) for one in made_up), _COLUMNS)


def scan_fresh_canary(records: PipelineRecords) -> dict[str, int]:
    """Plants a new canary, scans for it and removes it, to test the current scanner. Returns the number of finds by kind of store."""
    folder = locate_canary_folder(records, f"{_NOW}{secrets.token_hex(6)}")
    marks = CanaryMarks.by_chance()
    try:
        plant_control_stores(folder, marks, "7 days")
        return _scan_canary_folder(folder, needles.build_needles(_list_marked_values(marks), _COLUMNS))
    finally:
        remove_folder(folder)


def _list_marked_values(marks: CanaryMarks) -> list[tuple[str, str]]:
    return [(TEXT, marks.text), (SHORT, str(marks.short)), (LONG, str(marks.long))]


def _scan_canary_folder(folder: Location, wanted: list[residue.Needle]) -> dict[str, int]:
    return count_hits_by_store(residue.scan_roots([residue.ScanRoot("canary", str(folder))], [], wanted, processes=1).hits, "")


def count_hits_by_store(hits: list[residue.Hit], below: str) -> dict[str, int]:
    """Counts the hits of the control by kind of store. below: the canary's folder, relative to the scanned root."""
    stores = {store.folder: store.findings for store in registry.list_control_stores()}
    found = {finding.title: 0 for findings in stores.values() for finding in findings}
    for hit in hits:
        folder, _, path = (os.path.relpath(hit.path, below) if below else hit.path).partition("/")
        finding = next((one for one in stores.get(folder, ()) if one.matches(path, hit)), None)
        if hit.control and finding:
            found[finding.title] += hit.times
    return found


def read_planted_counts(records: PipelineRecords, name: str) -> dict[str, int] | None:
    """What the scan found of a canary after planting. None if no canary of that name was planted."""
    path = locate_canary_folder(records, name) / PLANTED
    remedy = f"Remove {path.parent}: the next erasure plants a canary anew"
    return load_kept_object(path, "what was found of a canary", remedy) if path.is_file() else None
