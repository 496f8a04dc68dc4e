"""What must hold before a row with personal data is written: the right root, closed to others, and the key of the rows that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.declare.datasets.tables import Dataset
from sluice.errors import SluiceError
from sluice.lake import log, tables
from sluice.lake.workspace import Workspace
from sluice.privacy import restricted, treatments

_KEYS = "sluice.pseudonymKeys"


def check(workspace: Workspace, dataset: Dataset[Any], anew: bool) -> None:
    """Raises UsageError or SluiceError where a row must not be written. anew: all rows are made again, so the key may be another."""
    path = workspace.path(dataset.name)
    if workspace.elsewhere is None:
        restricted.check_moved(workspace.settings, dataset.name, path, dataset.restricted)
    if dataset.restricted:
        restricted.prepare(workspace.settings)
    before = tables.property_of(path, _KEYS) if dataset.treatments and log.exists(path) else None
    if before and not anew and before != treatments.marks(workspace.settings, dataset):
        names = ", ".join(f"'{mark.split('=')[0]}'" for mark in before.split(","))
        raise SluiceError(
            f"Table '{dataset.name}' has pseudonyms that were made with another key (secret {names}). Put the key back; or, if it is lost, "
            f"make the table anew with the key of today: sluice run {workspace.pipeline} --mode refresh --table {dataset.name}"
        )


def marks(workspace: Workspace, dataset: Dataset[Any]) -> Mapping[str, str]:
    """Table properties that tell which keys its pseudonyms are made with, and tell nothing else of them."""
    keys = treatments.marks(workspace.settings, dataset)
    return {_KEYS: keys} if keys else {}
