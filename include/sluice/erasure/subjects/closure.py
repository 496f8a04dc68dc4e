"""From any identifier of a person to all of them, by the declared links, each with the time during which it was the person's.

From what was asked the way leads up to the person, and from there down to everything that is, or was, the person's. Links are followed as
they are and as bronze has ever told them. Of an identifier that changes hands the first one to have it has it from the beginning on: what
it told before anybody had it can be nobody else's. Of two who got it in one instant the higher one has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.declare.erasure.links import Link
from sluice.erasure.subjects import link_rows
from sluice.erasure.subjects.holders import ALWAYS, Ambiguous, Times, held, overlap, text, within
from sluice.erasure.subjects.identifiers import PSEUDONYM, Identifier
from sluice.erasure.subjects.link_rows import Rows
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets, suppression, suppression_key
from sluice.privacy.pseudonyms import canonical_text, pseudonym


@dataclass
class _Known:
    """What was found: by domain and value, the times during which it was the person's."""

    times: dict[tuple[str, str], set[Times]] = field(default_factory=dict)

    def add(self, domain: str, value: str, when: Times) -> bool:
        """Whether that is new."""
        there = self.times.setdefault((domain, value), set())
        if ALWAYS in there or when in there:
            return False
        there.add(when)
        return True

    def identifiers(self) -> list[Identifier]:
        """Sorted; one that is open on both sides alone."""
        every = ((key, {ALWAYS} if ALWAYS in times else times) for key, times in self.times.items())
        return sorted(
            (
                Identifier(*key, since=text(since), until=text(until), known_until=text(known))
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
    asked = in_their_forms(workspace.graph, identifiers)
    # What is nobody's as far as links tell, and changes hands, is that of whoever asks now, until somebody else gets it.
    changing = workspace.graph.changing_hands()
    alone = (None, None, rows.at)
    people = _Known()
    for number, one in enumerate(_by_their_own_name(workspace, rows, asked), start=1):
        for domain, value in _people(workspace, rows, one, number):
            people.add(domain, value, alone if domain in changing else ALWAYS)
    found = _down(workspace, rows, people)
    for one in asked:
        if one.domain == PSEUDONYM:
            found.add(PSEUDONYM, one.value, ALWAYS)
    _spell(workspace, rows, found)
    _hash(workspace, found)
    return found.identifiers()


def in_their_forms(graph: Graph, identifiers: Iterable[Identifier]) -> list[Identifier]:
    """The identifiers in the forms in which those of their domains are compared, as the rows of links have them."""
    return [replace(one, value=canonical_text(one.value, graph.canonical(one.domain))) for one in identifiers]


def _by_their_own_name(workspace: Workspace, rows: Rows, asked: list[Identifier]) -> list[Identifier]:
    """What was asked, with the identifiers that pseudonyms were made of in the place of these."""
    hidden = [one.value for one in asked if one.domain == PSEUDONYM]
    behind = in_their_forms(workspace.graph, link_rows.behind(workspace, rows, hidden)) if hidden else []
    return [one for one in asked if one.domain != PSEUDONYM] + list(dict.fromkeys(behind))


def _people(
    workspace: Workspace, rows: Rows, asked: Identifier, number: int, passed: frozenset[tuple[str, str]] = frozenset()
) -> set[tuple[str, str]]:
    """Up from an identifier to the people whose it is, or was at the time that is said; itself where no link knows of anybody."""
    owners: set[tuple[str, str]] = set()
    _refuse_erased(workspace, rows, asked, number)
    for link in workspace.graph.links:
        if link.identifier[1] != asked.domain:
            continue
        had = held(rows.of_identifiers(link, {asked.value}), link, rows.at).get(asked.value, [])
        whose = {person for person, when in had if asked.at is None or within(datetime.fromisoformat(asked.at), when)}
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
    key, form = suppression_key.key(workspace.settings, workspace.suppression), workspace.graph.canonical(asked.domain)
    hashed = pseudonym(key, asked.domain, asked.value, form)
    for request, since, until in rows.erased.get((asked.domain, str(hashed)), ()):
        if asked.at is None or within(datetime.fromisoformat(asked.at), (since, until, None)):
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
    for identifier, had in held(rows.of_identifiers(link, linked), link, rows.at).items():
        for person, when in had:
            for known in people.get(person, ()):
                both = overlap(known, when)
                if both is not None:
                    yield identifier, both


def _spell(workspace: Workspace, rows: Rows, found: _Known) -> None:
    """Add how the same identifiers are written in the lake: the scan looks for bytes, and a pseudonym may be of one spelling."""
    for domain in workspace.graph.forms:
        known = {value: times for (of, value), times in list(found.times.items()) if of == domain}
        for form, written in rows.spellings(domain, set(known)):
            for when in list(known[form]):
                found.add(domain, written, when)


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
