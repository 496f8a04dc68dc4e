"""Whose rows are in a table, by kind of identifier (domain), as far as the declarations tell.

A @table has its source's domain. A view has the subjects of everything it is made from, and says by a column of the same name, or
by its own subject, whose its rows are; where it does not, an erased person cannot be found in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.declare.assembly.graph import PSEUDONYM, AnyDataset, Graph
from sluice.declare.ingest.source import Source
from sluice.declare.privacy.treat import Hmac


@dataclass(frozen=True)
class TableSubjects:
    """columns: by column of the table, the domain that its values are identifiers of. unknown: domains that no column tells of."""

    columns: tuple[tuple[str, str], ...] = ()
    unknown: frozenset[str] = frozenset()


def find_table_subjects(graph: Graph, dataset: AnyDataset, columns: list[str]) -> TableSubjects:
    """Of a table with these columns."""
    hashed = _find_pseudonym_columns(graph, dataset, columns)
    if dataset.folded_source:
        domain = graph.domain(dataset)
        return TableSubjects((*(((dataset.subject, domain),) if domain and dataset.subject else ()), *hashed))
    above = list(_walk_all_inputs(graph, dataset))
    treated = {name for one in (dataset, *above) for name in one.treatments}
    told = [(one, domain) for one in above if one.subject and (domain := graph.domain(one))]
    domains = {domain for _, domain in told}
    # What has the subject somewhere inside is no identifier as a whole.
    known = {(one.subject, domain) for one, domain in told if one.subject and not one.subject_in}
    # A treated value is no identifier any more: of a pseudonym the list has the pseudonym, of others nothing.
    found = {(column, domain) for column, domain in known if column in columns and column not in treated}
    missing = domains - {domain for _, domain in found}
    own = dataset.subject
    if own and len(missing) == 1 and own not in treated and own not in {column for column, _ in found}:
        found |= {(own, missing.pop())}
    return TableSubjects((*sorted(found), *hashed), frozenset(domains - {domain for _, domain in found}))


def find_subject_domains(graph: Graph, declared: Source | AnyDataset) -> frozenset[str]:
    """The domains of the people whose rows a table may have."""
    return frozenset(one.domain for one in (declared, *_walk_all_inputs(graph, declared))) - {""}


def find_other_subject_columns(graph: Graph, declared: Source | AnyDataset) -> dict[str, str]:
    """By column, of which domain the other person is that may stand in it: of bronze as declared, else of columns of the same name."""
    made_of = [*graph.sharing(declared), *_walk_all_inputs(graph, declared)]
    treated = {name for one in made_of for name in one.treatments}
    return {column: domain for one in made_of for column, domain in one.also_subjects if column not in treated}


def find_free_text_columns(graph: Graph, declared: Source | AnyDataset) -> tuple[str, ...]:
    """The columns of text, in a table or in what it is made from, that may name anybody."""
    made_of = (*graph.sharing(declared), *_walk_all_inputs(graph, declared))
    return tuple(dict.fromkeys(column for one in made_of for column in one.free_text))


def build_subject_expression(graph: Graph, declared: Source | AnyDataset, columns: Sequence[str]) -> str | None:
    """Whose a stored row is, as SQL that gives the subject as text, over a table with these columns. None where no column tells.

    Of bronze also where the subject did not fit its column and so stands among what was rescued. Of a quarantine it is `_subject`.
    """
    if declared.subject is None:
        return None
    if declared.subject_in:
        return f"CAST({declared.subject_in} AS STRING)" if declared.subject in columns else None
    told = [f"CAST(`{declared.subject}` AS STRING)"] if declared.subject in columns else []
    if declared.name in graph.sources and "_rescued_data" in columns:
        told.append(f"get_json_object(`_rescued_data`, '$.{declared.subject}')")
    return f"coalesce({', '.join(told)})" if len(told) > 1 else "".join(told) or None


def subject_time_expression(declared: Source | AnyDataset) -> str | None:
    """Of what time a row tells, as SQL over its columns: decides whose an identifier was that changes hands. None where it is not said."""
    return declared.subject_at


def _find_pseudonym_columns(graph: Graph, dataset: AnyDataset, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The columns with pseudonyms, of the table's own making or of that of what it is made from."""
    made = (dataset, *_walk_all_inputs(graph, dataset))
    names = {name for one in made for name, how in one.treatments.items() if isinstance(how, Hmac)}
    return tuple((name, PSEUDONYM) for name in sorted(names & set(columns)))


def _walk_all_inputs(graph: Graph, declared: Source | AnyDataset) -> Iterator[Source | AnyDataset]:
    """Everything that a table is made from, directly or through others."""
    for name in declared.reads:
        yield from graph.sharing(graph[name])
        yield from _walk_all_inputs(graph, graph[name])
