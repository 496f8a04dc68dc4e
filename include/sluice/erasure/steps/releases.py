"""De-identified copies that were released: rows of erased people leave every one of them, and at once: a release has no earlier version."""

from __future__ import annotations

from datetime import UTC, datetime

from sluice.erasure.steps.erasing import Erasing
from sluice.flows.copies import released
from sluice.lake import releases
from sluice.lake.releases import Release

STEP = "releases"


def erase(erasing: Erasing) -> None:
    """Erase from every table of every release; one that does not say whose its rows are is withdrawn: nobody knows who is counted in it."""
    workspace = erasing.workspace
    for release in releases.of(workspace.settings, workspace.pipeline):
        waiting = [name for name in release.tables if not erasing.is_done(STEP, _called(release, name))]
        if not waiting:
            continue
        with releases.writable(release):
            for name in waiting:
                _one(erasing, release, name)


def _called(release: Release, table: str) -> str:
    return f"{release.number}/{table}"


def _one(erasing: Erasing, release: Release, name: str) -> None:
    told, now = release.tables[name], datetime.now(UTC).isoformat(timespec="seconds")
    gone = 0
    if not (release.folder / name).exists():
        told.setdefault("withdrawn", now)
    elif told["pseudonyms"]:
        gone = released.erase(erasing.workspace, release, name)
        if gone:
            told["erased"].append({"at": now, "rows": gone})
            told["rows"] -= gone
    elif told.get("of_people", True):
        releases.withdraw(release, name)
        told["withdrawn"] = now
    releases.keep(release)
    erasing.done(STEP, _called(release, name), rows=gone)
