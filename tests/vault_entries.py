"""Entries of the vault as a propagation leaves them that has found more about somebody."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.erasure import vault
from sluice.erasure.vault import Identifier
from sluice.pipeline_records import PipelineRecords


def add_vault_identifiers(records: PipelineRecords, request: str, found: Iterable[Identifier]) -> None:
    """Add further identifiers of a request's people, each once."""
    vault.replace_vault_identifiers(records, request, [*vault.read_vault_identifiers(records, request), *found])
