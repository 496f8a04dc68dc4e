"""The description of one place where personal data can be: who erases it, what the scan must find there, and which files belong to it.

`registry` has the list of places.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import Location
from sluice.named_functions import NamedFunction

if TYPE_CHECKING:
    from residue import Hit
    from sluice.erasure.steps.erasure_step import ErasureStep
    from sluice.lake.workspace import Workspace

TEXT, SHORT, LONG = "canary", "canary_number", "canary_long"
"""Domains of the canary's identifiers: a text and a long number, searched for everywhere, and a short number, searched for in columns."""


@dataclass(frozen=True)
class CanaryMarks:
    """The canary's identifiers: a text, a number too short to be searched for outside its columns, and a long number."""

    text: str
    short: int
    long: int

    @classmethod
    def by_chance(cls) -> CanaryMarks:
        """New random identifiers."""
        return cls(
            f"canary-{secrets.token_hex(16)}", 100_000 + secrets.randbelow(900_000), 10**14 + secrets.randbelow(9 * 10**14)
        )


class ControlFinding(NamedTuple):
    """What the scan must find of the canary in one of its stores.

    title: its name in the certificate. files: the store's files that it must be found in. by: the decoder that must find it. kind: the
    form that must be found, or "" for any. A match in raw compressed bytes comes from another decoder, and proves nothing about the one
    that opens them.
    """

    title: str
    files: str
    by: str
    domain: str = TEXT
    kind: str = ""

    def matches(self, path: str, hit: Hit) -> bool:
        """Whether a hit fulfils this. path: relative to the store's folder."""
        same = (self.by, self.domain) == (hit.decoder, hit.domain) and self.kind in ("", hit.kind)
        return same and re.match(self.files, path) is not None


Plant = Callable[[Location, CanaryMarks, str], None]
"""Makes the store at a path, with the canary in it. The last argument is how long the pipeline keeps former versions (`retain`)."""


@dataclass(frozen=True)
class CanaryPlace:
    """A store of a canary that is being erased. values: the canary's identifiers. before: leftovers older than this go (seconds since 1970)."""

    path: Location
    column: str
    values: frozenset[str]
    before: float


@dataclass(frozen=True)
class ControlStore:
    """A store of the canary. Its files represent those of a place, and the same functions erase both.

    folder: below the canary's own folder. step: its step's name without the prefix of `noted_step`. erase: removes the canary from the
    store, and returns how many rows, records or files that were. column: the column that says whose a row or record is. prepare: a function
    that needs Spark, called after planting.
    """

    folder: str
    step: str
    plant: Plant
    erase: NamedFunction[[Workspace, CanaryPlace], int]
    findings: tuple[ControlFinding, ...]
    column: str = ""
    prepare: Callable[[Workspace, Location], None] | None = None

    @property
    def noted_step(self) -> str:
        """The name of its step in the erasure ledger."""
        return f"canary {self.step}"


Claim = Callable[[str, Location], bool]
"""Whether a path below the root folder of that name, one of SCANNED_ROOTS, belongs to the place, or is a folder above something that does."""


class CertificateException(NamedTuple):
    """Something of a place that no scan of this machine's files shows. until: when it goes, in plain words or as a date."""

    what: str
    until: str | None


@dataclass(frozen=True)
class PersonalPlace:
    """A place where personal data can be.

    name: in the erasure ledger, the name of the step that erases it, if one does. description: what that step does, or who else looks
    after the place. erase: does that step; it is named, so that readers of the list load neither Spark nor the steps. controls: the
    canary's stores for it. claims: recognises on disk what belongs to the place. exceptions: what a certificate excepts of it. counts_rows:
    whether the rows that leave it are told of in a request's history; others are made from them.
    """

    name: str
    description: str
    erase: NamedFunction[[ErasureStep], None] | None = None
    controls: tuple[ControlStore, ...] = ()
    claims: Callable[[PipelineLake], Claim] | None = None
    exceptions: Callable[[PipelineLake], Iterable[CertificateException]] | None = None
    counts_rows: bool = False
