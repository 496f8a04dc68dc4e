"""What is looked for of the people of requests, and looking for it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sluice.declare.assembly.graph import Graph
from sluice.declare.privacy.treat import AS_TEXT
from sluice.erasure import scan, vault
from sluice.erasure.control import canary
from sluice.erasure.proof import clocks, logical, scope
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import Needle, ScanResult, Unread, needles
from sluice.erasure.subjects import domain_columns
from sluice.erasure.subjects.identifiers import Identifier
from sluice.errors import SluiceError
from sluice.lake import releases
from sluice.lake.releases import Release
from sluice.privacy import suppression_key
from sluice.privacy.pseudonyms import pseudonym
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.privacy.suppression import Times


@dataclass(frozen=True)
class Sought:
    """What is looked for. A needle of a person is of the request, one of a canary of the canary.

    shared: by request, how many identifiers were others', too, at other times: looked for in rows that tell a time of the person's.
    """

    person: list[Needle]
    control: list[Needle]
    shared: Mapping[str, int]


def of(settings: Settings, graph: Graph, asked: Sequence[ErasureRequest]) -> Sought:
    """What is looked for of the people of some requests. Raises UsageError where the vault does not have their identifiers any more."""
    columns, known = domain_columns.by_domain(settings, graph), releases.of(settings, graph.pipeline.name)
    listed = _list_of(settings, graph.pipeline.name)
    person: list[Needle] = []
    shared: dict[str, int] = {}
    for request in asked:
        found, shared[request.request] = _of_one(settings, graph, request.request, columns, known, listed)
        person += [replace(one, of=request.request) for one in found]
    by_canary = {request.control: request for request in asked}
    control = [
        replace(needle, of=name)
        for name, request in by_canary.items()
        for needle in canary.needles_of(settings, graph.pipeline.name, request)
    ]
    return Sought(person, control, shared)


def rows(settings: Settings, graph: Graph, sought: Sought) -> ScanResult:
    """What queries of the tables as they are return."""
    return logical.returned(scope.tables(settings, graph), sought.person, clocks.of(settings, graph))


def looked(settings: Settings, graph: Graph, sought: Sought) -> ScanResult:
    """Scan all roots. Raises SluiceError where the lake is not on this machine."""
    try:
        found = scan.run(scope.roots(settings, graph), sought.person, sought.control)
    except ValueError as error:
        raise SluiceError(f"There can be no certificate: {error}.") from None
    found.unread += [
        Unread(scope.LANDING, path, "no file of it is there, and files were delivered that nobody removed")
        for path in scope.absent_folders(settings, graph)
    ]
    return found


def _of_one(
    settings: Settings,
    graph: Graph,
    request: str,
    columns: Mapping[str, set[str]],
    known: Sequence[Release],
    listed: Callable[[], Times],
) -> tuple[list[Needle], int]:
    """What is looked for of the people of one request, and how many of their identifiers were others', too."""
    pipeline, encodings = graph.pipeline.name, scope.encodings(graph)
    of_people = (one for one in vault.read(settings, pipeline, request) if not one.domain.startswith(canary.PREFIX))
    found = _ended(settings, graph, request, list(of_people), listed)
    # By all that is known of an identifier: what somebody asked by has no times, what was found of it has.
    shared = _shared(found)
    own = dict.fromkeys((one.domain, one.value) for one in found if (one.domain, one.value) not in shared)
    person = [*needles.of(own, columns, encodings), *_in_releases(settings, graph, known, own)]
    person += [needles.timed(*whose, spans) for whose, spans in shared.items()]
    person += [replace(one, shared=True) for one in needles.of(shared, columns, encodings)]
    return person, len(shared)


def _in_releases(settings: Settings, graph: Graph, known: Sequence[Release], own: Iterable[tuple[str, str]]) -> list[Needle]:
    """What releases call people, by (domain, value): each by pseudonyms of its own, in which no form of an identifier is.

    A release may have been made when a domain was called otherwise, and say so.
    """
    found = []
    key = suppression_key.key(settings, settings.bookkeeping(graph.pipeline.name, "suppression")) if known else b""
    for release, (domain, value) in itertools.product(known, own):
        called = {of for told in release.tables.values() for of in told["pseudonyms"].values() if domain in graph.former(of)}
        # A release of before a form was declared is of the text.
        forms = dict.fromkeys((graph.canonical(domain), AS_TEXT))
        listed = dict.fromkeys(pseudonym(key, one, value, form) for one in sorted({domain, *called}) for form in forms)
        made = [pseudonym(key, release.domain, one) for one in listed if one]
        found += [Needle(domain, "of a release", one.encode(), fold=True) for one in made if one]
    return found


def _shared(found: Sequence[Identifier]) -> dict[tuple[str, str], list[tuple[str | None, str | None]]]:
    """The identifiers that were the person's for a time, and when."""
    shared: dict[tuple[str, str], list[tuple[str | None, str | None]]] = {}
    for one in found:
        if one.since or one.until:
            shared.setdefault((one.domain, one.value), []).append((one.since, one.until))
    return shared


def _list_of(settings: Settings, pipeline: str) -> Callable[[], Times]:
    """The suppression list, read when somebody asks for it first."""

    @functools.cache
    def listed() -> Times:
        from sluice.privacy import suppression  # what most requests need no Spark for

        return suppression.times(settings.bookkeeping(pipeline, "suppression"))

    return listed


def _ended(
    settings: Settings, graph: Graph, request: str, found: Sequence[Identifier], listed: Callable[[], Times]
) -> list[Identifier]:
    """The identifiers, those with an end that somebody else has got since the erasure: the suppression list knows it, the vault does not."""
    if not any(_may_end(one) for one in found):
        return list(found)
    key, known = suppression_key.key(settings, settings.bookkeeping(graph.pipeline.name, "suppression")), listed()
    made = []
    for one in found:
        hashed = pseudonym(key, one.domain, one.value, graph.canonical(one.domain)) if _may_end(one) else None
        entries = known.get((one.domain, hashed), ()) if hashed else ()
        ends = [_text(until) for of, since, until in entries if of == request and until and (since and _text(since)) == one.since]
        made.append(replace(one, until=max(ends)) if ends else one)
    return made


def _text(at: datetime) -> str:
    """An instant of the suppression list as the vault has it."""
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat()


def _may_end(one: Identifier) -> bool:
    return one.until is None and one.known_until is not None
