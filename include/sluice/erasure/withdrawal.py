"""Taking a request back: it was a mistake, or somebody decided against it. Nobody is erased by it, and nothing of it stays but its history."""

from __future__ import annotations

from sluice.delta_log import open_checked_table
from sluice.erasure import looked_at, requests, vault
from sluice.erasure.requests import ErasureRequest
from sluice.errors import UsageError
from sluice.lake import log
from sluice.settings import Settings


def withdraw_erasure_request(settings: Settings, pipeline: str, request: str) -> ErasureRequest:
    """Take a request back of which nothing is done yet, without a JVM; its identifiers leave the vault. Once, however often it is tried.

    Raises UsageError where it was carried out, or is on the way: what is begun is brought to its end.
    """
    found = requests.read_erasure_request(settings, pipeline, request)
    if found.withdrawn_at is not None:
        _forget_request_identifiers(settings, pipeline, request)  # killed right after it was noted
        return found
    if found.done_at is not None or found.state not in (requests.RECEIVED, requests.FAILED):
        raise UsageError(
            f"Request {request} is carried out: it is {found.state}. To let the person come back: sluice erase lift {request}"
        )
    if _is_propagation_begun(settings, pipeline, request):
        raise UsageError(
            f"Request {request} is being carried out. When that has ended (sluice erase run {pipeline}): sluice erase lift {request}"
        )
    kept = requests.mark_request_withdrawn(settings, pipeline, request)
    _forget_request_identifiers(settings, pipeline, request)
    return kept


def _forget_request_identifiers(settings: Settings, pipeline: str, request: str) -> None:
    vault.remove_vault_entry(settings, pipeline, request)
    looked_at.reset_request_table_states(settings, pipeline)


def _is_propagation_begun(settings: Settings, pipeline: str, request: str) -> bool:
    """Whether its people are on the suppression list, which is the first step."""
    path = settings.bookkeeping(pipeline, "suppression")
    return (
        log.is_delta_table(path)
        and request in open_checked_table(path).to_pyarrow_table(columns=["request"])["request"].to_pylist()
    )
