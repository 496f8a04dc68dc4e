"""Restricted tables lie below a root of their own, SLUICE_RESTRICTED, which only its owner can enter."""

from __future__ import annotations

from sluice import delta_log
from sluice.errors import SluiceError, UsageError
from sluice.locations import is_on_disk, locate
from sluice.pipeline_records import QUARANTINE
from sluice.settings import Settings


def prepare_restricted_root(settings: Settings) -> None:
    """Makes the root with mode 0700. Raises UsageError if others can enter an existing one, before any row is written.

    On a store its owner decides who may read a bucket: nothing is made or checked there.
    """
    root = settings.restricted
    if not is_on_disk(root):
        return
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if root.stat().st_mode & 0o077:
        raise UsageError(f"The folder of restricted tables, {root}, is open to others. Run: chmod 700 {root}")


def refuse_moved_table(settings: Settings, name: str, path: str, restricted: bool) -> None:
    """Raises SluiceError if the table also exists below the other root, where an earlier declaration put it."""
    here, there = str(settings.restricted), settings.lake
    if not restricted:
        here, there = there, here
    other = there + path.removeprefix(here)
    if delta_log.is_delta_table(other):
        now = "restricted now, and was not" if restricted else "not restricted any more"
        raise SluiceError(
            f"Table '{name}' is {now}: its earlier rows still lie in {other}. "
            f"It is made again from its inputs: remove that folder{_quarantine_folder_hint(other)}, then run again."
        )


def _quarantine_folder_hint(path: str) -> str:
    layer = locate(path).parent
    aside = layer.parent / QUARANTINE / locate(path).name
    return f" and {aside}" if aside.is_dir() else ""
