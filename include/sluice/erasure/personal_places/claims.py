"""Says what lies in each place: the files and folders that it claims, and what no scan of this machine's files shows, its exceptions.

What no place claims is undeclared, and no erasure reaches it.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterator

from sluice import delta_log, session
from sluice.declare.ingest.source import Source
from sluice.erasure.personal_places.place import CertificateException, Claim
from sluice.ingest.deliveries.listing import AT_REST, PARTIAL
from sluice.ingest.landing.cleaning import ARCHIVE, archived_file_names
from sluice.ingest.landing.rewriting import MARK
from sluice.lake import releases
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import Location, is_on_disk, locate
from sluice.own_records import CHECKPOINTS, OWN_FOLDER, OWN_RECORDS
from sluice.root_folders import LANDING, RELEASED, TABLE_ROOTS
from sluice.settings import AIRFLOW_HOMES

_ROOTS_OF_TABLES = frozenset(one.name for one in TABLE_ROOTS)
_CLAIMED_AS_A_WHOLE = frozenset(one.name for one in OWN_RECORDS if not one.by_table)
"""The names of Sluice's own records whose entries no declaration claims one by one."""


def claim_tables(lake: PipelineLake) -> Claim:
    """Claims declared tables, quarantines and late tables that exist."""
    paths = lake.record_tables().values()
    known = {_normalise_location(path) for path in paths if delta_log.is_delta_table(path)}
    return lambda root, path: root in _ROOTS_OF_TABLES and _normalise_location(str(path)) in known


def _normalise_location(path: str) -> Location:
    """The location, without a ".." in the path of a disk; a URL has none."""
    location = locate(path)
    return locate(os.path.normpath(path)) if is_on_disk(location) else location


def claim_checkpoints(lake: PipelineLake) -> Claim:
    """Claims the checkpoint folders of declared flows."""
    flows = {lake.graph.flow_name(one) for one in lake.graph}
    return lambda root, path: root in _ROOTS_OF_TABLES and path.parent.name == CHECKPOINTS.name and path.name in flows


def claim_own_records(_: PipelineLake) -> Claim:
    """Claims Sluice's own records by their names in `_sluice`."""
    return lambda root, path: root in _ROOTS_OF_TABLES and path.parent.name == OWN_FOLDER and path.name in _CLAIMED_AS_A_WHOLE


def claim_landed_files(lake: PipelineLake) -> Claim:
    """Claims landed and archived files that a source takes, whatever their state, and the folders above them."""
    landing = lake.records.landing
    sources = [one for one in lake.graph.sources.values() if one.kind.in_files]
    folders = {one.name: [_normalise_location(str(at / one.path)) for at in (landing, landing / ARCHIVE)] for one in sources}

    def claims(root: str, path: Location) -> bool:
        if root != LANDING.name:
            return False
        theirs = [one for one in sources if any(path.parent.is_relative_to(folder) for folder in folders[one.name])]
        if path.is_dir():
            return bool(theirs) or any(folder.is_relative_to(path) for both in folders.values() for folder in both)
        return any(_is_file_of_source(one, path) for one in theirs)

    return claims


def claim_releases(lake: PipelineLake) -> Claim:
    """Claims releases, and in each of them the tables that its own list names."""
    records = lake.records
    folder = releases.releases_folder(records)
    named = {one.folder: {releases.MANIFEST, *one.tables} for one in releases.read_pipeline_releases(records)}

    def claims(root: str, path: Location) -> bool:
        if root != RELEASED.name:
            return False
        return path in named or path == folder / releases.LAST or path.name in named.get(path.parent, ())

    return claims


def _is_file_of_source(source: Source, path: Location) -> bool:
    """Whether a file is a source's: taken, still being written, a ready marker, or a link or empty file, which holds no record.

    Nobody delivers an abandoned half-written file, and no erasure looks into it.
    """
    bare = re.sub(f"({'|'.join(map(re.escape, PARTIAL))})\\Z", "", path.name.lstrip("._"), flags=re.IGNORECASE)
    names = {*archived_file_names(path.name), *([bare] if _is_recently_written(path) else [])}
    marker = re.escape(source.ready_marker or "").replace(re.escape("{name}"), ".*")
    if any(fnmatch.fnmatch(name, source.pattern) for name in names) or path.name.endswith(MARK):
        return True
    return bool(marker and re.fullmatch(marker, path.name)) or path.is_symlink() or _is_empty_file(path)


def _is_recently_written(path: Location) -> bool:
    try:
        return time.time() - path.stat().st_mtime < AT_REST
    except OSError:
        return False


def _is_empty_file(path: Location) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return not path.exists()  # gone since its folder was listed


def list_topics(lake: PipelineLake) -> Iterator[CertificateException]:
    """The topics that are read."""
    for source in lake.graph.sources.values():
        if not source.kind.in_files:
            yield CertificateException(f"topics of source '{source.name}'", "the broker's retention")


def list_truth(lake: PipelineLake) -> Iterator[CertificateException]:
    """The truth behind made deliveries."""
    if lake.settings.truth.is_dir():
        yield CertificateException("truth of made-up deliveries, for comparison", "it is removed by hand")


def list_executor_disks(lake: PipelineLake) -> Iterator[CertificateException]:
    """The disks of other machines."""
    if lake.settings.on_cluster:
        yield CertificateException(
            "local disks of the cluster's executors: blocks, shuffled and spilt rows", "the end of each application"
        )


def list_airflow_elsewhere(lake: PipelineLake) -> Iterator[CertificateException]:
    """An Airflow outside this checkout."""
    if not any((lake.settings.state / home).is_dir() for home in AIRFLOW_HOMES.values()):
        yield CertificateException("database and logs of an Airflow elsewhere, if there is one", "its own retention")


def list_running_sessions(lake: PipelineLake) -> Iterator[CertificateException]:
    """Folders that a running process uses."""
    if session.session_folders_in_use(lake.settings):
        yield CertificateException("local files of running Spark sessions", "the end of the session, which removes them")


def list_backups(_: PipelineLake) -> Iterator[CertificateException]:
    """Copies kept where Sluice does not look."""
    yield CertificateException("backups, and earlier versions that a disk or an object store keeps", "their own retention")
