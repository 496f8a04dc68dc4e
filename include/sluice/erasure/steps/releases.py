"""De-identified copies that were released: rows of erased people leave every one of them, and at once: a release has no earlier version."""

from __future__ import annotations

from datetime import UTC, datetime

from sluice.erasure import vault
from sluice.erasure.steps.erasing import Erasing
from sluice.flows.copies import released
from sluice.lake import releases
from sluice.lake.releases import Release
from sluice.privacy import suppression_key
from sluice.privacy.pseudonyms import compute_pseudonym

STEP = "releases"


def erase_from_releases(erasing: Erasing) -> None:
    """Erase from every table of every release; one that does not say whose its rows are is withdrawn: nobody knows who is counted in it."""
    workspace = erasing.workspace
    for release in releases.read_pipeline_releases(workspace.records):
        waiting = [name for name in release.tables if not erasing.is_done(STEP, _release_table_key(release, name))]
        if not waiting:
            continue
        with releases.release_made_writable(release):
            for name in waiting:
                _erase_from_release_table(erasing, release, name)


def _pseudonyms_as_written(erasing: Erasing) -> set[tuple[str, str]]:
    """Pseudonyms of identifiers as they are written, where the list has those of another form; by domain, and what it was called before."""
    workspace = erasing.workspace
    records, forms = workspace.records, workspace.graph.forms
    if not forms:
        return set()
    key = suppression_key.read_suppression_key(records.settings, workspace.suppression)
    known = [
        one
        for request in erasing.waiting
        if vault.has_vault_entry(records, request.request)
        for one in vault.read_vault_identifiers(records, request.request)
        if one.domain in forms
    ]
    names = {domain: {domain, *workspace.graph.former(domain)} for domain in forms}
    hashed = ((name, compute_pseudonym(key, name, one.value)) for one in known for name in names[one.domain])
    return {(name, made) for name, made in hashed if made}


def _release_table_key(release: Release, table: str) -> str:
    return f"{release.number}/{table}"


def _erase_from_release_table(erasing: Erasing, release: Release, name: str) -> None:
    told, now = release.tables[name], datetime.now(UTC).isoformat(timespec="seconds")
    gone = 0
    if not (release.folder / name).exists():
        told.setdefault("withdrawn", now)
    elif told["pseudonyms"]:
        gone = released.erase_from_release(erasing.workspace, release, name, _pseudonyms_as_written(erasing))
        if gone:
            told["erased"].append({"at": now, "rows": gone})
            told["rows"] -= gone
    elif told["of_people"]:
        releases.remove_release_table(release, name)
        told["withdrawn"] = now
    releases.write_release_manifest(release)
    erasing.done(STEP, _release_table_key(release, name), rows=gone)
