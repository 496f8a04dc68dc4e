"""Declared identifiers of people: which belong to one person and from when on, and which rows ask for an erasure.

An erasure follows links from one identifier of a person to all of them. The form in which a domain's identifiers are compared comes
from `Pipeline(canonical=)`, else from the pseudonyms made from them (`treat.hmac(canonical=)`); else they are compared as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.field_values import check_declared_name, check_field_types
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline
from sluice.declare.privacy.treat import AS_TEXT, Canonical, Hmac
from sluice.declare.recorded_declarations import find_calling_module, record_declaration
from sluice.errors import DeclarationError, nearest_name_hint

Of = tuple[str, str]
"""A column of a table, and the domain of the identifiers in it."""

DeclarationsByName = Mapping[str, Source | Dataset[Any]]


@dataclass(frozen=True)
class Link:
    """A row of `table` says that from `since` until the identifier's next row, the identifier belongs to that person.

    person, identifier: (column, domain). since: a TIMESTAMP column. None: the identifier is the person's for ever, as an e-mail address
    is. Identifiers of a domain that has a link with `since` change hands, and tables with such subjects need `subject_at`, the time
    that a row is about.
    """

    table: str
    person: Of
    identifier: Of
    since: str | None = None
    declared_in: str = ""

    def __post_init__(self) -> None:
        for of in ("person", "identifier"):
            _check_column_domain_pair(self.owner, of, getattr(self, of))
        check_field_types(self, self.owner)
        check_declared_name(self.table, "The table of a Link")
        object.__setattr__(self, "declared_in", self.declared_in or find_calling_module())
        if self.person[1] == self.identifier[1]:
            raise DeclarationError(f"{self.owner}: person and identifier have the same domain, '{self.person[1]}'.")
        record_declaration(self)

    @property
    def owner(self) -> str:
        """The name that messages use for it."""
        return f"Link of table '{self.table}'"

    @property
    def name(self) -> str:
        """Its key among the links, which are declared without names."""
        return f"{self.table}.{self.identifier[0]}"

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.declared_in


@dataclass(frozen=True)
class ErasureRequests:
    """Rows of a source, or of a temporary view of it, that ask for the erasure of the person they name.

    where: an SQL condition that selects the rows. identifier: (column, domain). Each stage `propagate_deletions` makes requests of
    them.
    """

    reads: str
    where: str
    identifier: Of
    declared_in: str = ""

    def __post_init__(self) -> None:
        _check_column_domain_pair(self.owner, "identifier", self.identifier)
        check_field_types(self, self.owner)
        if not self.where.strip():
            raise DeclarationError(f"{self.owner}: where is an SQL condition over a row, as in \"change = 'delete'\".")
        record_declaration(self)

    @property
    def owner(self) -> str:
        """The name that messages use for it."""
        return f"erasure_requests of '{self.reads}'"

    @property
    def name(self) -> str:
        """Its key among the requests, which are declared without names."""
        return f"{self.reads}.{self.identifier[0]}"

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.declared_in


def erasure_requests(*, reads: str, where: str, identifier: Of) -> ErasureRequests:
    """Declares that rows ask for the erasure of the person they name. See `ErasureRequests`."""
    return ErasureRequests(reads=reads, where=where, identifier=identifier, declared_in=find_calling_module())


def _check_column_domain_pair(owner: str, name: str, value: object) -> None:
    if not is_column_domain_pair(value):
        raise DeclarationError(f"{owner}: {name} is a column and its domain, as in ('user_id', 'user_id').")


def is_column_domain_pair(of: object) -> bool:
    """Whether it is a pair of a column and a domain."""
    return isinstance(of, tuple) and len(of) == 2 and all(isinstance(one, str) and one for one in of)


def canonical_forms_by_domain(pipeline: Pipeline, declared: DeclarationsByName, links: Iterable[Link]) -> dict[str, Canonical]:
    """The canonical forms of the domains that are not compared as text."""
    treated = {domain: how.canonical for domain, how in _find_treatments_with_form(declared, tuple(links))}
    every: dict[str, Any] = {**treated, **pipeline.canonical}
    return {domain: form for domain, form in every.items() if form != AS_TEXT}


def find_canonical_form_mistakes(pipeline: Pipeline, declared: DeclarationsByName, links: Iterable[Link]) -> Iterator[str]:
    """Yields what is wrong with the canonical forms, as sentences."""
    every = tuple(links)
    known = _declared_domains(declared, every)
    for domain, form in pipeline.canonical.items():
        if domain not in known:
            yield f"canonical names '{domain}', no kind of identifier.{nearest_name_hint(domain, known)}"
        if form not in get_args(Canonical):
            yield f"canonical has no form '{form}' for '{domain}'.{nearest_name_hint(form, get_args(Canonical))}"
    said: dict[str, str] = dict(pipeline.canonical)
    for domain, how in _find_treatments_with_form(declared, every):
        if said.setdefault(domain, how.canonical) != how.canonical:
            yield (
                f"identifiers of kind '{domain}' are compared as '{said[domain]}', and treat.hmac('{how.domain}') makes their pseudonyms of "
                f"another form, '{how.canonical}'. Use one form for each kind of identifier."
            )


def _find_treatments_with_form(declared: DeclarationsByName, links: tuple[Link, ...]) -> Iterator[tuple[str, Hmac]]:
    """The treatments that set a form, each with the domain it is for: one named like the treatment's domain, or like its column."""
    domains, columns = _declared_domains(declared, links), _domains_by_column(declared, links)
    for item in declared.values():
        for column, how in item.treatments.items():
            if isinstance(how, Hmac) and how.canonical != AS_TEXT:
                named = {how.domain} if how.domain in domains else columns.get(column, set())
                if len(named) == 1:
                    yield min(named), how


def _domains_by_column(declared: DeclarationsByName, links: tuple[Link, ...]) -> dict[str, set[str]]:
    """By column name, the domains of the identifiers in columns of this name."""
    pairs = [(one.subject, one.domain) for one in declared.values() if one.subject and one.domain]
    pairs += [of for link in links for of in (link.person, link.identifier)]
    pairs += [of for one in declared.values() for of in one.also_subjects]
    found: dict[str, set[str]] = {}
    for column, domain in pairs:
        found.setdefault(str(column), set()).add(domain)
    return found


def _declared_domains(declared: DeclarationsByName, links: tuple[Link, ...]) -> set[str]:
    return {domain for domains in _domains_by_column(declared, links).values() for domain in domains}
