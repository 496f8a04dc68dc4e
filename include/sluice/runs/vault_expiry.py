"""Forgets whom erasures were about: removes identifiers from the vault when their time is over."""

from __future__ import annotations

from datetime import UTC, datetime

from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.runs import due


def forget_expired_identifiers(records: PipelineRecords) -> None:
    """Removes expired identifiers from the vault.

    It keeps those of requests that are not proved yet, which could not be proved without them, and for a while those that the second scan
    needs. An entry may have no request: it is written before the request is. In a clone nothing is removed: the vault is that of the lake
    which was cloned, and so are the requests. Raises UsageError for a request's entry that cannot be read, after all others are done.
    """
    from sluice.erasure import vault
    from sluice.runs.execution import clones

    if clones.read_clone_description(records) is not None:
        return
    now = datetime.now(UTC)
    unread: list[UsageError] = []
    standings = due.read_request_standings(records)
    for one in standings:
        if one.open or (one.looked_again_until or now) > now:
            continue
        try:
            until = vault.read_vault_expiry(records, one.request)
        except UsageError as error:
            unread.append(error)
            continue
        if until and datetime.fromisoformat(until) <= now:
            vault.remove_vault_entry(records, one.request)
    vault.remove_ownerless_entries(records, {one.request for one in standings}, now)
    if unread:
        raise unread[0]
