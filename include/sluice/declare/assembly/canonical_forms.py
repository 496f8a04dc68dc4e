"""In which form the identifiers of a domain are compared: two spellings of one form are one person's.

Said by `Pipeline(canonical=)`, else by the pseudonyms that are made of the domain's identifiers (`treat.hmac(canonical=)`); else as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from sluice.declare.datasets.tables import Dataset
from sluice.declare.erasure.links import Link
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline
from sluice.declare.privacy.treat import AS_TEXT, Canonical, Hmac
from sluice.errors import nearest_name_hint

Declared = Mapping[str, Source | Dataset[Any]]


def canonical_forms_by_domain(pipeline: Pipeline, declared: Declared, links: Iterable[Link]) -> dict[str, Canonical]:
    """The forms of the domains that have another one than text."""
    treated = {domain: how.canonical for domain, how in _find_treatments_with_form(declared, tuple(links))}
    every: dict[str, Any] = {**treated, **pipeline.canonical}
    return {domain: form for domain, form in every.items() if form != AS_TEXT}


def find_canonical_form_mistakes(pipeline: Pipeline, declared: Declared, links: Iterable[Link]) -> Iterator[str]:
    """What is wrong with the forms, as sentences."""
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
                f"another form, '{how.canonical}'. One form for one kind of identifier."
            )


def _find_treatments_with_form(declared: Declared, links: tuple[Link, ...]) -> Iterator[tuple[str, Hmac]]:
    """The treatments that say a form, with the domain whose identifiers they are of: as their own domain or their column is called."""
    domains, columns = _declared_domains(declared, links), _domains_by_column(declared, links)
    for item in declared.values():
        for column, how in item.treatments.items():
            if isinstance(how, Hmac) and how.canonical != AS_TEXT:
                named = {how.domain} if how.domain in domains else columns.get(column, set())
                if len(named) == 1:
                    yield min(named), how


def _domains_by_column(declared: Declared, links: tuple[Link, ...]) -> dict[str, set[str]]:
    """By column, the domains of the identifiers that columns of this name hold."""
    pairs = [(one.subject, one.domain) for one in declared.values() if one.subject and one.domain]
    pairs += [of for link in links for of in (link.person, link.identifier)]
    pairs += [of for one in declared.values() for of in one.also_subjects]
    found: dict[str, set[str]] = {}
    for column, domain in pairs:
        found.setdefault(str(column), set()).add(domain)
    return found


def _declared_domains(declared: Declared, links: tuple[Link, ...]) -> set[str]:
    return {domain for domains in _domains_by_column(declared, links).values() for domain in domains}
