"""Forgets whom erasures were about: removes identifiers from the vault when their time is over."""

from __future__ import annotations

from datetime import UTC, datetime

from sluice.erasure.request_record import list_erasure_requests
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords


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
    requests = list_erasure_requests(records)
    for one in requests:
        if one.is_open or (one.identifiers_kept_until or now) > now:
            continue
        try:
            until = vault.read_vault_expiry(records, one.request)
        except UsageError as error:
            unread.append(error)
            continue
        if until and datetime.fromisoformat(until) <= now:
            vault.remove_vault_entry(records, one.request)
    vault.remove_ownerless_entries(records, {one.request for one in requests}, now)
    if unread:
        raise unread[0]
