"""Lists what no scan of this machine's files shows: the exceptions of a certificate. `registry` says of which place each is."""

from __future__ import annotations

from collections.abc import Iterator

from sluice import session
from sluice.erasure.personal_places.place import CertificateException
from sluice.lake.pipeline_lake import PipelineLake
from sluice.settings import AIRFLOW_HOMES


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
