"""From any identifier of a person to all of them, by the declared links, each with the time during which it was the person's.

From what was asked the way leads up to the person, and from there down to everything that is, or was, the person's. Links are followed as
they are and as bronze has ever told them. Of an identifier that changes hands the first one to have it has it from the beginning on: what
it told before anybody had it can be nobody else's. Of two who got it in one instant the higher one has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sluice.declare.assembly import subjects
from sluice.declare.erasure.links import Link
from sluice.erasure import requests, vault
from sluice.erasure.control import canary
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.subjects import link_rows
from sluice.erasure.subjects.identifiers import PSEUDONYM, Identifier
from sluice.erasure.subjects.link_rows import Rows
from sluice.errors import UsageError
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets, suppression, suppression_key
from sluice.privacy.pseudonyms import pseudonym

__all__ = ["PSEUDONYM", "Ambiguous", "Identifier", "close", "settle", "settled"]

Times = tuple[datetime | None, datetime | None, datetime | None]
"""since, until, and where that is open, when the person was last said to have it."""
_ALWAYS: Times = (None, None, None)


class Ambiguous(UsageError):
    """An identifier was several people's, and it is not said whose is meant."""


@dataclass
class _Known:
    """What was found: by domain and value, the times during which it was the person's."""

    times: dict[tuple[str, str], set[Times]] = field(default_factory=dict)

    def add(self, domain: str, value: str, when: Times) -> bool:
        """Whether that is new."""
        there = self.times.setdefault((domain, value), set())
        if _ALWAYS in there or when in there:
            return False
        there.add(when)
        return True

    def identifiers(self) -> list[Identifier]:
        """Sorted; one that is open on both sides alone."""
        every = ((key, {_ALWAYS} if _ALWAYS in times else times) for key, times in self.times.items())
        return sorted(
            (
                Identifier(*key, since=_text(since), until=_text(until), known_until=_text(known))
                for key, times in every
                for since, until, known in times
            ),
            key=lambda one: repr(vars(one)),
        )


def close(workspace: Workspace, identifiers: Iterable[Identifier], rows: Rows | None = None) -> list[Identifier]:
    """All identifiers of the people who are asked for, pseudonyms included. Raises Ambiguous where one has been several people's.

    An identifier that no link knows is its own person's. rows: of the links, where they were read for several requests.
    """
    if rows is None:
        with link_rows.of(workspace) as read:
            return close(workspace, identifiers, read)
    asked = list(identifiers)
    # What is nobody's as far as links tell, and changes hands, is that of whoever asks now, until somebody else gets it.
    changing = workspace.graph.changing_hands()
    alone = (None, None, rows.at)
    people = _Known()
    for number, one in enumerate(_by_their_own_name(workspace, rows, asked), start=1):
        for domain, value in _people(workspace, rows, one, number):
            people.add(domain, value, alone if domain in changing else _ALWAYS)
    found = _down(workspace, rows, people)
    for one in asked:
        if one.domain == PSEUDONYM:
            found.add(PSEUDONYM, one.value, _ALWAYS)
    _hash(workspace, found)
    return found.identifiers()


def settle(workspace: Workspace, request: ErasureRequest, rows: Rows | None = None) -> ErasureRequest:
    """Close over a request's identifiers, which the vault has, and keep what was found: in the vault, and as the request's subjects.

    To be called before anything is deleted: the links are deleted, too. So a request whose people are on the suppression list stays as it
    is; for any other what an attempt before has found is found anew, since more was delivered. rows: see `close`. Raises vault.Missing and Ambiguous.
    """
    settings, pipeline = workspace.settings, workspace.pipeline
    # One of the first form has its subjects, and nothing in the vault.
    if _is_settled(workspace, request, suppression.listed(workspace) if rows is None else rows.listed):
        return request
    known = vault.read(settings, pipeline, request.request)
    made_up = [one for one in known if one.domain.startswith(canary.PREFIX)]
    asked = [one for one in vault.asked(settings, pipeline, request.request) if one not in made_up]
    found = close(workspace, asked, rows)
    vault.replace(settings, pipeline, request.request, [*found, *made_up])
    kinds = {one.domain for one in found}
    requests.with_subjects(settings, pipeline, request.request, requests.subjects_of(settings, pipeline, found))
    return requests.note(
        settings,
        pipeline,
        request.request,
        "closed",
        f"{len(found)} identifiers of {len(kinds)} kinds: {', '.join(sorted(kinds))}",
    )


def settled(workspace: Workspace, only: Collection[str] = ()) -> list[ErasureRequest]:
    """The requests that wait, or only these of them, each settled. One that never can be is failed, with the reason in its history; the others go on.

    What somebody can set right, such as the mode of a file or a link's column, is raised: every request then waits as it is.
    """
    settings, pipeline = workspace.settings, workspace.pipeline
    found, waiting = [], requests.waiting(settings, pipeline, only)
    with link_rows.of(workspace) as rows:
        _look_ahead(workspace, rows, waiting)
        for request in waiting:
            try:
                found.append(settle(workspace, request, rows))
            except (Ambiguous, vault.Missing) as error:
                requests.advance(settings, pipeline, request, requests.FAILED, str(error))
    return found


def _is_settled(workspace: Workspace, request: ErasureRequest, listed: Collection[str]) -> bool:
    there = vault.holds(workspace.settings, workspace.pipeline, request.request)
    return bool(request.subjects) and (request.request in listed or not there)


def _look_ahead(workspace: Workspace, rows: Rows, waiting: Iterable[ErasureRequest]) -> None:
    """Ask the links at once for what closing over each request will ask them for: up to everybody, and down to all that was theirs."""
    settings, pipeline, links = workspace.settings, workspace.pipeline, workspace.graph.links
    open_ = [one.request for one in waiting if not _is_settled(workspace, one, rows.listed)]
    asked = (vault.asked(settings, pipeline, one) for one in open_ if vault.holds(settings, pipeline, one))
    people = fresh = {(one.domain, one.value) for of in asked for one in of}
    while fresh:
        found = {(link.person[1], row.person) for link in links for row in rows.of_identifiers(link, _of(fresh, link.identifier))}
        fresh = found - people
        people = people | fresh
    known = fresh = people
    while fresh:
        found = set()
        for link in links:
            linked = {row.identifier for row in rows.of_people(link, _of(fresh, link.person))}
            rows.of_identifiers(link, linked)
            found |= {(link.identifier[1], identifier) for identifier in linked}
        fresh = found - known
        known = known | fresh


def _of(known: Iterable[tuple[str, str]], column: tuple[str, str]) -> set[str]:
    """The values of the domain of a link's column."""
    return {value for domain, value in known if domain == column[1]}


def _by_their_own_name(workspace: Workspace, rows: Rows, asked: list[Identifier]) -> list[Identifier]:
    """What was asked, with the identifiers that pseudonyms were made of in the place of these."""
    hidden = [one.value for one in asked if one.domain == PSEUDONYM]
    return [one for one in asked if one.domain != PSEUDONYM] + (link_rows.behind(workspace, rows, hidden) if hidden else [])


def _people(
    workspace: Workspace, rows: Rows, asked: Identifier, number: int, passed: frozenset[tuple[str, str]] = frozenset()
) -> set[tuple[str, str]]:
    """Up from an identifier to the people whose it is, or was at the time that is said; itself where no link knows of anybody."""
    owners: set[tuple[str, str]] = set()
    _refuse_erased(workspace, rows, asked, number)
    for link in workspace.graph.links:
        if link.identifier[1] != asked.domain:
            continue
        held = _held(rows.of_identifiers(link, {asked.value}), link, rows.at).get(asked.value, [])
        whose = {person for person, when in held if asked.at is None or _within(datetime.fromisoformat(asked.at), when)}
        if len(whose) > 1:
            how = 'ask again with "at", an instant at which it was the person\'s' if link.since else f"ask by '{link.person[1]}'"
            raise Ambiguous(f"Identifier {number}, a '{asked.domain}', was several people's; {how}.")
        owners |= {(link.person[1], person) for person in whose}
    below = passed | {(asked.domain, asked.value)}
    fresh = sorted(owners - below)
    return {one for owner in fresh for one in _people(workspace, rows, Identifier(*owner), number, below)} or {
        (asked.domain, asked.value)
    }


def _refuse_erased(workspace: Workspace, rows: Rows, asked: Identifier, number: int) -> None:
    """The links of whoever was erased are gone: an identifier that was theirs for a time would pass for that of its next owner alone."""
    if asked.domain not in workspace.graph.changing_hands() or suppression.is_empty(workspace):
        return
    hashed = pseudonym(suppression_key.key(workspace.settings, workspace.suppression), asked.domain, asked.value)
    for request, since, until in rows.erased.get((asked.domain, str(hashed)), ()):
        if asked.at is None or _within(datetime.fromisoformat(asked.at), (since, until, None)):
            how = "nothing of that time is left" if asked.at else 'ask again with "at", if it is another\'s now'
            raise Ambiguous(
                f"Identifier {number}, a '{asked.domain}', was a person's who was erased by request {request}; {how}."
            )


def _down(workspace: Workspace, rows: Rows, people: _Known) -> _Known:
    """Everything that is or was these people's, with the times."""
    found = _Known({key: set(times) for key, times in people.times.items()})
    fresh = people.times
    while fresh:
        following = _Known()
        for link in workspace.graph.links:
            mine = {value: times for (domain, value), times in fresh.items() if domain == link.person[1]}
            for identifier, when in _theirs(rows, link, mine):
                if found.add(link.identifier[1], identifier, when):
                    following.add(link.identifier[1], identifier, when)
        fresh = following.times
    return found


def _theirs(rows: Rows, link: Link, people: dict[str, set[Times]]) -> Iterable[tuple[str, Times]]:
    if not people:
        return
    linked = {row.identifier for row in rows.of_people(link, set(people))}
    for identifier, held in _held(rows.of_identifiers(link, linked), link, rows.at).items():
        for person, when in held:
            for known in people.get(person, ()):
                both = _overlap(known, when)
                if both is not None:
                    yield identifier, both


def _held(found: Iterable[link_rows.Row], link: Link, now: datetime) -> dict[str, list[tuple[str, Times]]]:
    """By identifier, who had it and when: until the next row of it. now: until when those are told to have it whose rows tell no time.

    Raises Ambiguous where several people's rows of one identifier tell no time.
    """
    by_identifier: dict[str, list[link_rows.Row]] = {}
    for row in found:
        by_identifier.setdefault(row.identifier, []).append(row)
    if link.since is None:
        return {one: [(person, _ALWAYS) for person in sorted({row.person for row in of})] for one, of in by_identifier.items()}
    for of in by_identifier.values():
        if len({row.person for row in of if row.since is None}) > 1:
            raise Ambiguous(
                f"A '{link.identifier[1]}' is several people's by rows of '{link.table}' whose '{link.since}' tells no time. "
                "Have these delivered with it, then ask again."
            )
    return {one: _in_turn(of, now) for one, of in by_identifier.items()}


def _in_turn(of: list[link_rows.Row], now: datetime) -> list[tuple[str, Times]]:
    last: dict[datetime | None, str] = {}
    for row in sorted(of, key=lambda row: (row.since is not None, row.since or datetime.min, row.person.zfill(40))):
        last[row.since] = row.person
    turns: list[tuple[str, datetime | None]] = []
    for since, person in last.items():
        if not turns or turns[-1][0] != person:
            turns.append((person, since if turns else None))
    ends = [since for _, since in turns[1:]]
    known = max((since for since in last if since is not None), default=now)
    held: list[Times] = [(since, until, None) for (_, since), until in zip(turns, ends, strict=False)]
    held.append((turns[-1][1], None, known))
    return [(person, when) for (person, _), when in zip(turns, held, strict=True)]


def _hash(workspace: Workspace, found: _Known) -> None:
    """Add the pseudonyms that tables have in the place of identifiers, made with the same keys."""
    graph = workspace.graph
    for name, how in graph.pseudonyms():
        domains = subjects.domains_above(graph, graph[name])
        key = secrets.key(workspace.settings, how.secret)
        for (domain, value), times in list(found.times.items()):
            made = pseudonym(key, how.domain, value, how.canonical) if domain in domains else None
            for when in times if made else ():
                found.add(PSEUDONYM, str(made), when)


def _overlap(one: Times, other: Times) -> Times | None:
    since = max((at for at in (one[0], other[0]) if at is not None), default=None)
    until = min((at for at in (one[1], other[1]) if at is not None), default=None)
    known = max((at for at in (one[2], other[2]) if at is not None), default=None) if until is None else None
    return None if since is not None and until is not None and since >= until else (since, until, known)


def _within(at: datetime, when: Times) -> bool:
    since, until, _ = when
    return (since is None or since <= at) and (until is None or at < until)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
