"""From one identifier of a person to all of them, by the declared links, each with the time during which it was the person's.

The search goes from the asked identifiers up to the person, and from there down to everything that is or was the person's. It follows
the links as they are now and as bronze ever had them. The first owner of an identifier that changes hands owns it from the beginning
until the next owner gets it, since rows from before the first owner cannot be anybody else's. If two people got it at one instant, the
one with the higher value has it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import PSEUDONYM, Graph
from sluice.declare.erasure.identifiers import Link
from sluice.erasure.subjects import link_rows
from sluice.erasure.subjects.link_rows import LinkRows
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets, suppression_list
from sluice.privacy.pseudonyms import canonical_text, compute_pseudonym


@dataclass
class _KnownIdentifiers:
    """What was found: by domain and value, the times during which it was the person's."""

    times: dict[tuple[str, str], set[Times]] = field(default_factory=dict)

    def add(self, domain: str, value: str, when: Times) -> bool:
        """Adds an identifier. Returns whether it is new."""
        there = self.times.setdefault((domain, value), set())
        if _ALWAYS in there or when in there:
            return False
        there.add(when)
        return True

    def identifiers(self) -> list[Identifier]:
        """The identifiers, sorted. One that is open on both sides replaces its narrower times."""
        every = ((key, {_ALWAYS} if _ALWAYS in times else times) for key, times in self.times.items())
        return sorted(
            (
                Identifier(
                    *key,
                    since=_format_identifier_time(since),
                    until=_format_identifier_time(until),
                    known_until=_format_identifier_time(known),
                )
                for key, times in every
                for since, until, known in times
            ),
            key=lambda one: repr(vars(one)),
        )


def close_over_identifiers(
    workspace: Workspace, identifiers: Iterable[Identifier], rows: LinkRows | None = None
) -> list[Identifier]:
    """All identifiers of the people asked for, pseudonyms included. Raises AmbiguousIdentifier if one has belonged to several people.

    An identifier that no link knows is a person of its own. rows: those of the links, if they were read for several requests.
    """
    if rows is None:
        with link_rows.open_link_rows(workspace) as read:
            return close_over_identifiers(workspace, identifiers, read)
    asked = canonicalise_identifiers(workspace.graph, identifiers)
    # An identifier that changes hands and that no link assigns belongs to the person asking now, until somebody else gets it.
    changing = workspace.graph.changing_hands()
    alone = (None, None, rows.at)
    people = _KnownIdentifiers()
    for number, one in enumerate(_resolve_asked_pseudonyms(workspace, rows, asked), start=1):
        for domain, value in _find_identifier_owners(workspace, rows, one, number):
            people.add(domain, value, alone if domain in changing else _ALWAYS)
    found = _find_owned_identifiers(workspace, rows, people)
    for one in asked:
        if one.domain == PSEUDONYM:
            found.add(PSEUDONYM, one.value, _ALWAYS)
    _add_written_spellings(workspace, rows, found)
    _add_uuid_spellings(found)
    _add_stored_pseudonyms(workspace, found)
    return found.identifiers()


def canonicalise_identifiers(graph: Graph, identifiers: Iterable[Identifier]) -> list[Identifier]:
    """Puts the identifiers into the canonical forms of their domains, in which links have them too."""
    return [replace(one, value=canonical_text(one.value, graph.canonical(one.domain))) for one in identifiers]


def _resolve_asked_pseudonyms(workspace: Workspace, rows: LinkRows, asked: list[Identifier]) -> list[Identifier]:
    """Replaces the asked pseudonyms by the identifiers that they were made from."""
    hidden = [one.value for one in asked if one.domain == PSEUDONYM]
    behind = (
        canonicalise_identifiers(workspace.graph, link_rows.find_pseudonym_originals(workspace, rows, hidden)) if hidden else []
    )
    return [one for one in asked if one.domain != PSEUDONYM] + list(dict.fromkeys(behind))


def _find_identifier_owners(
    workspace: Workspace, rows: LinkRows, asked: Identifier, number: int, passed: frozenset[tuple[str, str]] = frozenset()
) -> set[tuple[str, str]]:
    """Goes up from an identifier to the people who own it, or owned it at the given time; returns itself if no link knows an owner."""
    owners: set[tuple[str, str]] = set()
    _refuse_erased_owner(workspace, rows, asked, number)
    for link in workspace.graph.links:
        if link.identifier[1] != asked.domain:
            continue
        had = compute_holding_times(rows.of_identifiers(link, {asked.value}), link, rows.at).get(asked.value, [])
        whose = {person for person, when in had if asked.at is None or _is_instant_within(datetime.fromisoformat(asked.at), when)}
        if len(whose) > 1:
            how = 'ask again with "at", an instant at which it was the person\'s' if link.since else f"ask by '{link.person[1]}'"
            raise AmbiguousIdentifier(f"Identifier {number}, a '{asked.domain}', was several people's; {how}.")
        owners |= {(link.person[1], person) for person in whose}
    below = passed | {(asked.domain, asked.value)}
    fresh = sorted(owners - below)
    return {one for owner in fresh for one in _find_identifier_owners(workspace, rows, Identifier(*owner), number, below)} or {
        (asked.domain, asked.value)
    }


def _refuse_erased_owner(workspace: Workspace, rows: LinkRows, asked: Identifier, number: int) -> None:
    """Refuses an identifier of an erased owner: that owner's links are gone, so it would seem to be the next owner's alone."""
    if asked.domain not in workspace.graph.changing_hands() or suppression_list.is_suppression_list_empty(workspace):
        return
    key, form = (
        secrets.read_suppression_key(workspace.settings, workspace.suppression),
        workspace.graph.canonical(asked.domain),
    )
    hashed = compute_pseudonym(key, asked.domain, asked.value, form)
    for request, since, until in rows.erased.get((asked.domain, str(hashed)), ()):
        if asked.at is None or _is_instant_within(datetime.fromisoformat(asked.at), (since, until, None)):
            how = "nothing of that time is left" if asked.at else 'ask again with "at", if it is another\'s now'
            raise AmbiguousIdentifier(
                f"Identifier {number}, a '{asked.domain}', was a person's who was erased by request {request}; {how}."
            )


def _find_owned_identifiers(workspace: Workspace, rows: LinkRows, people: _KnownIdentifiers) -> _KnownIdentifiers:
    """Everything that is or was these people's, with the times."""
    found = _KnownIdentifiers({key: set(times) for key, times in people.times.items()})
    fresh = people.times
    while fresh:
        following = _KnownIdentifiers()
        for link in workspace.graph.links:
            mine = {value: times for (domain, value), times in fresh.items() if domain == link.person[1]}
            for identifier, when in _find_identifiers_through_link(rows, link, mine):
                if found.add(link.identifier[1], identifier, when):
                    following.add(link.identifier[1], identifier, when)
        fresh = following.times
    return found


def _find_identifiers_through_link(rows: LinkRows, link: Link, people: dict[str, set[Times]]) -> Iterable[tuple[str, Times]]:
    if not people:
        return
    linked = {row.identifier for row in rows.of_people(link, set(people))}
    for identifier, had in compute_holding_times(rows.of_identifiers(link, linked), link, rows.at).items():
        for person, when in had:
            for known in people.get(person, ()):
                both = _intersect_times(known, when)
                if both is not None:
                    yield identifier, both


def _add_written_spellings(workspace: Workspace, rows: LinkRows, found: _KnownIdentifiers) -> None:
    """Adds the spellings of the same identifiers in the lake: the scan searches for bytes, and a pseudonym may be of one spelling."""
    for domain in workspace.graph.forms:
        known = {value: times for (of, value), times in list(found.times.items()) if of == domain}
        for form, written in rows.spellings(domain, set(known)):
            for when in list(known[form]):
                found.add(domain, written, when)


_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|[0-9A-Fa-f]{32}")
_DASHES = (8, 12, 16, 20)


def _add_uuid_spellings(found: _KnownIdentifiers) -> None:
    """Adds a UUID without its dashes, as many programs write it, and with them."""
    for (domain, value), times in list(found.times.items()):
        if _UUID.fullmatch(value):
            bare = value.replace("-", "")
            dashed = "-".join(bare[start:end] for start, end in itertools.pairwise((0, *_DASHES, len(bare))))
            for when in list(times):
                found.add(domain, bare, when)
                found.add(domain, dashed, when)


def _add_stored_pseudonyms(workspace: Workspace, found: _KnownIdentifiers) -> None:
    """Adds the pseudonyms that tables store instead of identifiers, made with the same keys."""
    graph = workspace.graph
    for name, how in graph.pseudonyms():
        domains = subjects.find_subject_domains(graph, graph[name])
        key = secrets.read_secret_key(workspace.settings, how.secret)
        for (domain, value), times in list(found.times.items()):
            made = compute_pseudonym(key, how.domain, value, how.canonical) if domain in domains else None
            for when in times if made else ():
                found.add(PSEUDONYM, str(made), when)


Times = tuple[datetime | None, datetime | None, datetime | None]
"""since, until, and if that is open, when the person was last known to have it."""
_ALWAYS: Times = (None, None, None)


class AmbiguousIdentifier(UsageError):
    """An identifier belonged to several people, and the request does not say which one is meant."""


def compute_holding_times(found: Iterable[link_rows.LinkRow], link: Link, now: datetime) -> dict[str, list[tuple[str, Times]]]:
    """By identifier, who had it and when, each until the next row. now: the end for owners whose rows have no time.

    Raises AmbiguousIdentifier if rows without a time give one identifier to several people.
    """
    by_identifier: dict[str, list[link_rows.LinkRow]] = {}
    for row in found:
        by_identifier.setdefault(row.identifier, []).append(row)
    if link.since is None:
        return {one: [(person, _ALWAYS) for person in sorted({row.person for row in of})] for one, of in by_identifier.items()}
    for of in by_identifier.values():
        if len({row.person for row in of if row.since is None}) > 1:
            raise AmbiguousIdentifier(
                f"A '{link.identifier[1]}' is several people's in rows of '{link.table}' whose '{link.since}' is empty. "
                "Have these rows delivered with a time, then ask again."
            )
    return {one: _order_holding_times(of, now) for one, of in by_identifier.items()}


def _order_holding_times(of: list[link_rows.LinkRow], now: datetime) -> list[tuple[str, Times]]:
    last: dict[datetime | None, str] = {}
    for row in sorted(of, key=lambda row: (row.since is not None, row.since or datetime.min, row.person.zfill(40))):
        last[row.since] = row.person
    turns: list[tuple[str, datetime | None]] = []
    for since, person in last.items():
        if not turns or turns[-1][0] != person:
            turns.append((person, since if turns else None))
    ends = [since for _, since in turns[1:]]
    known = max((since for since in last if since is not None), default=now)
    times: list[Times] = [(since, until, None) for (_, since), until in zip(turns, ends, strict=False)]
    times.append((turns[-1][1], None, known))
    return [(person, when) for (person, _), when in zip(turns, times, strict=True)]


def _intersect_times(one: Times, other: Times) -> Times | None:
    """The intersection of two times, or None if it is empty."""
    since = max((at for at in (one[0], other[0]) if at is not None), default=None)
    until = min((at for at in (one[1], other[1]) if at is not None), default=None)
    known = max((at for at in (one[2], other[2]) if at is not None), default=None) if until is None else None
    return None if since is not None and until is not None and since >= until else (since, until, known)


def _is_instant_within(at: datetime, when: Times) -> bool:
    """Whether an instant lies within these times."""
    since, until, _ = when
    return (since is None or since <= at) and (until is None or at < until)


def _format_identifier_time(at: datetime | None) -> str | None:
    """Formats an instant as identifiers have it."""
    return None if at is None else at.astimezone(UTC).isoformat()
