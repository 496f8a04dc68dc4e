"""What declarations say about each other's rules: the rules that alerts are on, and the tables that references are into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline
from sluice.errors import nearest_name_hint
from sluice.flow_counts import ALERT_COUNTS

Declared = Mapping[str, Source | Dataset[Any]]


def find_rule_mistakes(pipeline: Pipeline, declared: Declared) -> list[str]:
    """All mistakes, one a text."""
    return [*_find_alert_mistakes(pipeline, declared), *_find_reference_mistakes(pipeline, declared)]


def _find_alert_mistakes(pipeline: Pipeline, declared: Declared) -> Iterator[str]:
    """An alert on a rule that no table has would never be sent."""
    for place in pipeline.alert_when:
        name, _, rule = place.partition(".")
        if name not in declared:
            yield f"alert_when names the table '{name}'.{nearest_name_hint(name, declared)}"
            continue
        known = (*_rule_names(declared[name]), *ALERT_COUNTS)
        log = next((one for one in declared.values() if isinstance(one, Dataset) and one.serves == name), None)
        if log is not None and rule in (*_rule_names(log), *ALERT_COUNTS):
            yield f"alert_when names '{place}'; what comes of its feed is judged in its change log: write '{log.name}.{rule}'."
        elif rule not in known:
            yield f"alert_when names '{place}'; '{name}' has no such rule.{nearest_name_hint(rule, known)}"


def _rule_names(item: Source | Dataset[Any]) -> list[str]:
    if isinstance(item, Source):
        return []
    return [rule.name for rule in item.expectations] + [rule.name for rule in item.table_expectations]


def _find_reference_mistakes(pipeline: Pipeline, declared: Declared) -> Iterator[str]:
    for item in declared.values():
        for rule in () if isinstance(item, Source) else item.table_expectations:
            if rule.refers_to is not None:
                yield from _find_referenced_table_mistakes(pipeline, declared, item, rule.name, rule.refers_to)


def _find_referenced_table_mistakes(
    pipeline: Pipeline, declared: Declared, item: Source | Dataset[Any], rule: str, refers_to: str
) -> Iterator[str]:
    owner, other = f"table '{item.name}', expectation '{rule}'", declared.get(refers_to)
    if other is None:
        yield f"{owner} refers to '{refers_to}', which is not declared.{nearest_name_hint(refers_to, declared)}"
    elif isinstance(other, Source) and other.into:
        yield f"{owner} refers to '{refers_to}', whose records go into '{other.into}': write of='{other.into}'."
    elif _layer_position(pipeline, other) > _layer_position(pipeline, item):
        yield (
            f"{owner} refers to '{refers_to}', which is of a later layer and made only after it. "
            f"Let '{refers_to}' expect what it needs of '{item.name}', or refer to a table that it is made from."
        )


def _layer_position(pipeline: Pipeline, item: Source | Dataset[Any]) -> int:
    """Which layer it is in, from below. One in no layer is refused elsewhere."""
    return 0 if isinstance(item, Source) or item.module not in pipeline.layers else pipeline.layers.index(item.module)
