"""The vault holds the identifiers of requests until their erasure is proved. It is the only such place, and no scan covers it.

<vault>/<pipeline>/<request>.json, mode 0600, in folders of mode 0700. No identifier is ever printed, not even by accident.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sluice.durable_files import PRIVATE, remove_file_durably, write_json_durably
from sluice.errors import UsageError
from sluice.locations import Location
from sluice.pipeline_records import PipelineRecords
from sluice.private_files import read_secret_file, require_private_folder
from sluice.root_folders import ROOT_FOLDERS, VAULT
from sluice.settings import Settings

_LAKE = "lake"
"""In an entry, the lake whose request it is."""
_WRITTEN_WITHIN = timedelta(hours=1)
"""A file that is still unfinished after this time has no writer any more."""


@dataclass(frozen=True, order=True)
class Identifier:
    """A value of a domain. since, until: when it was the person's (ISO 8601, UTC; since is included, until is not); None is open.

    at: for an identifier that was asked by, an instant at which it was the person's. known_until: for one that changes hands and has an
    open end, when the person was last known to have it; whoever gets it later is somebody else.
    """

    domain: str
    value: str = field(repr=False)
    since: str | None = None
    until: str | None = None
    at: str | None = None
    known_until: str | None = None


class VaultEntryMissing(UsageError):
    """The vault has no entry for a request."""


def store_vault_entry(records: PipelineRecords, request: str, asked: Iterable[Identifier], expires_at: str) -> Location:
    """Stores the identifiers that a request was made by. expires_at: ISO 8601, when the entry may be removed."""
    first = list(asked)
    own = {"asked": len(first), "expires_at": expires_at, _LAKE: records.settings.lake}
    return _write_vault_entry(records, request, {**_serialize_identifiers(first), **own})


def replace_vault_identifiers(records: PipelineRecords, request: str, found: Iterable[Identifier]) -> Location:
    """Replaces what was found of the request's people, and keeps what the request was made by. Raises VaultEntryMissing."""
    stored = _read_vault_entry(records, request)
    return _write_vault_identifiers(records, request, stored, [*_select_asked_identifiers(stored), *found])


def read_vault_identifiers(records: PipelineRecords, request: str) -> list[Identifier]:
    """All known identifiers of a request's people. Raises VaultEntryMissing if they have left the vault."""
    return _parse_vault_identifiers(_read_vault_entry(records, request))


def read_asked_identifiers(records: PipelineRecords, request: str) -> list[Identifier]:
    """The identifiers that the request was made by. Raises VaultEntryMissing."""
    return _select_asked_identifiers(_read_vault_entry(records, request))


def has_vault_entry(records: PipelineRecords, request: str) -> bool:
    """Whether the vault has the request's identifiers."""
    return _vault_entry_path(records, request).is_file()


def read_vault_expiry(records: PipelineRecords, request: str) -> str | None:
    """When a request's entry may be removed. None if there is no entry."""
    return str(_read_vault_entry(records, request)["expires_at"]) if has_vault_entry(records, request) else None


def extend_vault_entry(records: PipelineRecords, request: str, until: datetime) -> None:
    """Keeps a request's entry at least until an instant. Raises VaultEntryMissing."""
    stored = _read_vault_entry(records, request)
    if datetime.fromisoformat(stored["expires_at"]) < until:
        _write_vault_entry(records, request, {**stored, "expires_at": until.isoformat(timespec="seconds")})


def remove_vault_entry(records: PipelineRecords, request: str) -> None:
    """Removes a request's entry, if any, and what a killed process left while writing it."""
    remove_file_durably(_vault_entry_path(records, request))


def remove_ownerless_entries(records: PipelineRecords, requests: Collection[str], now: datetime) -> None:
    """Removes what a process that was killed, or a full disk, left here: entries of no request whose time is over, and unfinished files.

    requests: the ids of all requests of this lake. Another lake of the pipeline may have the same vault, and its requests are not among
    these. So an entry stays that is of another lake, does not say of which, or cannot be read.
    """
    folder = records.settings.vault / records.pipeline
    for path in sorted(folder.glob("*.json")):
        if path.stem not in requests and _is_expired_here(records, path.stem, now):
            remove_vault_entry(records, path.stem)
    for path in sorted(folder.glob(".*.tmp")):
        with suppress(FileNotFoundError):  # its writer has finished meanwhile
            if path.stat().st_mtime < (now - _WRITTEN_WITHIN).timestamp():
                remove_file_durably(path)


def _is_expired_here(records: PipelineRecords, request: str, now: datetime) -> bool:
    try:
        stored = _read_vault_entry(records, request)
        return stored.get(_LAKE) == records.settings.lake and datetime.fromisoformat(stored["expires_at"]) <= now
    except (UsageError, OSError, AttributeError, KeyError, TypeError, ValueError):
        return False


def _prepare_vault_folder(settings: Settings) -> None:
    """Makes the vault with mode 0700. Raises UsageError if others can enter an existing one, or if it lies below another root."""
    root = settings.vault
    for folder in ROOT_FOLDERS:
        other = settings.locate_root(folder)
        if folder.no_vault_below and root.resolve().is_relative_to(other.resolve()):
            raise UsageError(
                f"The vault, {root}, lies below {other}, {folder.no_vault_below}. Move that folder elsewhere, and set {VAULT.variable} to it."
            )
    require_private_folder(root, "The vault")


def _write_vault_identifiers(records: PipelineRecords, request: str, stored: dict[str, Any], every: list[Identifier]) -> Location:
    return _write_vault_entry(records, request, {**stored, **_serialize_identifiers(list(dict.fromkeys(every)))})


def _select_asked_identifiers(stored: dict[str, Any]) -> list[Identifier]:
    """The first identifiers in the entry; those that were found later follow."""
    return _parse_vault_identifiers(stored)[: stored["asked"]]


def _serialize_identifiers(identifiers: list[Identifier]) -> dict[str, Any]:
    # Pairs, so that a search for bytes finds them, with their times in the same order.
    return {
        "identifiers": [[one.domain, one.value] for one in identifiers],
        "times": [[one.since, one.until, one.at, one.known_until] for one in identifiers],
    }


def _parse_vault_identifiers(stored: dict[str, Any]) -> list[Identifier]:
    pairs = zip(stored["identifiers"], stored["times"], strict=True)
    return [Identifier(domain, value, *time) for (domain, value), time in pairs]


def _read_vault_entry(records: PipelineRecords, request: str) -> dict[str, Any]:
    path = _vault_entry_path(records, request)
    if not path.is_file():
        raise VaultEntryMissing(
            f"The identifiers of request {request} are not in the vault, {records.settings.vault}: they were removed, or their time is over. "
            "Ask again: sluice erase request"
        )
    content = read_secret_file(path)
    try:
        found: dict[str, Any] = json.loads(content)
    except ValueError:
        raise UsageError(
            f"The vault's file {path} is damaged. Put a copy of it back. Or ask again: sluice erase request; and then, of one that was not "
            f"carried out: sluice erase withdraw {request}; else remove the file."
        ) from None
    return found


def _vault_entry_path(records: PipelineRecords, request: str) -> Location:
    return records.settings.vault / records.pipeline / f"{request}.json"


def _write_vault_entry(records: PipelineRecords, request: str, content: dict[str, Any]) -> Location:
    """Writes atomically and flushes to disk before returning, because the identifiers are nowhere else."""
    _prepare_vault_folder(records.settings)
    path = _vault_entry_path(records, request)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    return write_json_durably(path, content, PRIVATE)
