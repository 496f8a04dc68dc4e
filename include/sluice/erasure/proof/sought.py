"""What is looked for of the people of requests, and looking for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sluice.declare.graph import Graph
from sluice.erasure import scan, vault
from sluice.erasure.control import canary
from sluice.erasure.proof import clocks, logical, scope
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import Needle, ScanResult, needles
from sluice.erasure.subjects.identifiers import Identifier
from sluice.errors import SluiceError
from sluice.lake import releases
from sluice.privacy import suppression_key
from sluice.privacy.pseudonyms import pseudonym
from sluice.settings import Settings


@dataclass(frozen=True)
class Sought:
    """What is looked for. shared: identifiers that were others', too, at other times: looked for in rows that tell a time of the person's."""

    person: list[Needle]
    control: list[Needle]
    shared: int


def of(settings: Settings, graph: Graph, asked: Sequence[ErasureRequest]) -> Sought:
    """What is looked for of the people of some requests. Raises UsageError where the vault does not have their identifiers any more."""
    pipeline = graph.pipeline.name
    found: list[Identifier] = []
    for request in asked:
        of_people = vault.read(settings, pipeline, request.request)
        known = [one for one in of_people if not one.domain.startswith(canary.PREFIX)]
        found += _ended(settings, pipeline, request.request, known)
    # By all that is known of an identifier: what somebody asked by has no times, what was found of it has.
    shared = _shared(found)
    own = dict.fromkeys((one.domain, one.value) for one in found if (one.domain, one.value) not in shared)
    columns = scope.columns_of_domain(settings, graph)
    person = [*needles.of(own, columns, scope.encodings(graph)), *_in_releases(settings, graph, own)]
    person += [needles.timed(*whose, spans) for whose, spans in shared.items()]
    person += [replace(one, shared=True) for one in needles.of(shared, columns, scope.encodings(graph))]
    control = [one for request in asked for one in canary.needles_of(settings, pipeline, request.request)]
    return Sought(person, control, len(shared))


def rows(settings: Settings, graph: Graph, sought: Sought) -> ScanResult:
    """What queries of the tables as they are return."""
    return logical.returned(scope.tables(settings, graph), sought.person, clocks.of(settings, graph))


def looked(settings: Settings, graph: Graph, sought: Sought) -> ScanResult:
    """Scan all roots. Raises SluiceError where the lake is not on this machine."""
    try:
        return scan.run(scope.roots(settings, graph), sought.person, sought.control)
    except ValueError as error:
        raise SluiceError(f"There can be no certificate: {error}.") from None


def _in_releases(settings: Settings, graph: Graph, own: Iterable[tuple[str, str]]) -> list[Needle]:
    """What releases call people, by (domain, value): each by pseudonyms of its own, in which no form of an identifier is.

    A release may have been made when a domain was called otherwise, and say so.
    """
    pipeline, found = graph.pipeline.name, []
    known = releases.of(settings, pipeline)
    key = suppression_key.key(settings, settings.bookkeeping(pipeline, "suppression")) if known else b""
    for release, (domain, value) in itertools.product(known, own):
        called = {of for told in release.tables.values() for of in told["pseudonyms"].values() if domain in graph.former(of)}
        listed = [pseudonym(key, one, value) for one in sorted({domain, *called})]
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


def _ended(settings: Settings, pipeline: str, request: str, found: Sequence[Identifier]) -> list[Identifier]:
    """The identifiers, those with an end that somebody else has got since the erasure: the suppression list knows it, the vault does not."""
    if not any(_may_end(one) for one in found):
        return list(found)
    from sluice.privacy import suppression

    path = settings.bookkeeping(pipeline, "suppression")
    key = suppression_key.key(settings, path)
    made = []
    for one in found:
        hashed = pseudonym(key, one.domain, one.value) if _may_end(one) else None
        entries = suppression.times_of(path, one.domain, hashed) if hashed else []
        ends = [_text(until) for of, since, until in entries if of == request and until and (since and _text(since)) == one.since]
        made.append(replace(one, until=max(ends)) if ends else one)
    return made


def _text(at: datetime) -> str:
    """An instant of the suppression list as the vault has it."""
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat()


def _may_end(one: Identifier) -> bool:
    return one.until is None and one.known_until is not None
