"""What is said of one place where personal data can be, and what no scan of this machine's files can tell of it: a certificate's exceptions.

The list of the places is in `registry`.
"""

from __future__ import annotations

import importlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sluice import session
from sluice.declare.assembly.graph import Graph
from sluice.settings import Settings

if TYPE_CHECKING:
    from residue import Hit
    from sluice.erasure.steps.erasing import Erasing
    from sluice.lake.workspace import Workspace

TEXT, SHORT, LONG = "canary", "canary_number", "canary_long"
"""Domains of the canary's identifiers: a text and a number of many digits, which are looked for everywhere, and a short number, in columns alone."""
LAKE, RESTRICTED, LANDING, RELEASED = "lake", "restricted", "landing", "released"
"""What the roots are called in which a pipeline has folders of its own."""


@dataclass(frozen=True)
class SparkFunction:
    """A function of sluice.erasure.<module> that needs Spark. It is loaded when it is called, since whoever reads the list may have no Spark."""

    module: str
    name: str

    def load(self) -> Callable[..., Any]:
        """The function."""
        found: Callable[..., Any] = getattr(importlib.import_module(f"sluice.erasure.{self.module}"), self.name)
        return found

    def __call__(self, *given: Any) -> Any:
        """Call the function."""
        return self.load()(*given)


@dataclass(frozen=True)
class CanaryMarks:
    """The canary's identifiers: a text, a number that is too short to be looked for outside of its columns, and a long one."""

    text: str
    short: int
    long: int

    @classmethod
    def by_chance(cls) -> CanaryMarks:
        """Others each time."""
        return cls(
            f"canary-{secrets.token_hex(16)}", 100_000 + secrets.randbelow(900_000), 10**14 + secrets.randbelow(9 * 10**14)
        )


class ControlFinding(NamedTuple):
    """What the scan must find of the canary in a store of it.

    title: what the certificate calls it. files: in which of the store's files; by: the decoder that must find something; kind: the form
    that it must find, "" for any. What stands raw in compressed bytes is found by another decoder, and proves nothing of the one that opens them.
    """

    title: str
    files: str
    by: str
    domain: str = TEXT
    kind: str = ""

    def matches(self, path: str, hit: Hit) -> bool:
        """Whether a hit is this. path: below the store's folder."""
        same = (self.by, self.domain) == (hit.decoder, hit.domain) and self.kind in ("", hit.kind)
        return same and re.match(self.files, path) is not None


Plant = Callable[[Path, CanaryMarks, str], None]
"""Makes the store at a path, with the canary in it. The last is how long the pipeline keeps former versions (`retain`)."""


@dataclass(frozen=True)
class CanaryPlace:
    """A store of a canary that is being erased. values: its identifiers; before: what was left over before then, in seconds since 1970, goes."""

    path: Path
    column: str
    values: frozenset[str]
    before: float


EraseControl = Callable[["Workspace", CanaryPlace], int]
"""Takes the canary out of a store. Returns how many rows, records or files went."""


@dataclass(frozen=True)
class ControlStore:
    """A store of the canary's: its files stand for those of a place, and are erased as these are, by the same functions.

    folder: below the canary's own. step: as `noted_step` has it. column: which says whose a row or record is.
    prepare: what needs Spark, once it is planted.
    """

    folder: str
    step: str
    plant: Plant
    erase: EraseControl
    findings: tuple[ControlFinding, ...]
    column: str = ""
    prepare: Callable[[Workspace, Path], None] | None = None

    @property
    def noted_step(self) -> str:
        """What the ledger of erasures calls the step that erases it."""
        return f"canary {self.step}"


Claim = Callable[[str, Path], bool]
"""Whether what lies at a path, below the root of that name, is of a place, or is a folder above something that is."""


class CertificateException(NamedTuple):
    """What of a place no scan of this machine's files can tell. until: when it goes, in plain words or as a date."""

    what: str
    until: str | None


@dataclass(frozen=True)
class PersonalPlace:
    """A place where personal data can be.

    name: of the step that erases it, if one does, as the ledger of erasures has it. description: what that step does, or who else sees to
    the place. controls: what the canary has there. claims: what on the disk is known to be of the place. exceptions: what of it a
    certificate excepts.
    """

    name: str
    description: str
    erase: Callable[[Erasing], None] | None = None
    controls: tuple[ControlStore, ...] = ()
    claims: Callable[[Settings, Graph], Claim] | None = None
    exceptions: Callable[[Settings, Graph], Iterable[CertificateException]] | None = None


AIRFLOW_HOMES = ("airflow", "airflow2")
"""The folders of the local Airflow, below the checkout's own."""


def list_topics(_: Settings, graph: Graph) -> Iterator[CertificateException]:
    """Topics that are read."""
    for source in graph.sources.values():
        if not source.kind.in_files:
            yield CertificateException(f"topics of source '{source.name}'", "the broker's retention")


def list_truth(settings: Settings, _: Graph) -> Iterator[CertificateException]:
    """What deliveries were made up of."""
    if settings.truth.is_dir():
        yield CertificateException("truth of made-up deliveries, for comparison", "it is removed by hand")


def list_executor_disks(settings: Settings, _: Graph) -> Iterator[CertificateException]:
    """Disks of other machines."""
    if settings.on_cluster:
        yield CertificateException(
            "local disks of the cluster's executors: blocks, shuffled and spilt rows", "the end of each application"
        )


def list_airflow_elsewhere(settings: Settings, _: Graph) -> Iterator[CertificateException]:
    """An Airflow that is not this checkout's."""
    if not any((settings.state / home).is_dir() for home in AIRFLOW_HOMES):
        yield CertificateException("database and logs of an Airflow elsewhere, if there is one", "its own retention")


def list_running_sessions(settings: Settings, _: Graph) -> Iterator[CertificateException]:
    """Folders that a process has in use."""
    if session.session_folders_in_use(settings):
        yield CertificateException("local files of running Spark sessions", "the end of the session, which removes them")


def list_backups(_: Settings, __: Graph) -> Iterator[CertificateException]:
    """What is kept where Sluice does not look."""
    yield CertificateException("backups, and earlier versions that a disk or an object store keeps", "their own retention")
