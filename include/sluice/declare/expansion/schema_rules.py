"""What `schema=` says of rows, as expectations: bad rows go to quarantine, and the table's own constraints are the last guard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table
from sluice.declare.quality.expectations import Action, Expectation
from sluice.declare.sql.schema import SchemaText, parsed
from sluice.errors import DeclarationError, nearest


def ruled(dataset: Dataset[Any]) -> Dataset[Any]:
    """The dataset with the rules of its `schema=`: of a table they quarantine, of a view they fail.

    Raises DeclarationError where the schema is not understood, lacks a column that the declaration names, or has a rule's name twice.
    """
    if dataset.schema is None:
        return dataset
    view = isinstance(dataset, MaterializedView)
    owner = f"{'View' if view else 'Table'} '{dataset.name}'"
    text = parsed(dataset.schema, owner)
    _check_names(dataset, text, owner)
    rules = text.expectations(Action.FAIL if view else Action.QUARANTINE)
    return replace(dataset, expectations=_together(rules, dataset.expectations, owner))


def of_feed(cdc: AutoCdc) -> AutoCdc:
    """The declaration with the rules of its `schema=` on the rows of its feeds, as far as they are about columns that come as they are.

    Its target has all of them. With `ignore_null_updates` NULL in a change says nothing of the target.
    """
    if cdc.schema is None:
        return cdc
    text = parsed(cdc.schema, cdc.owner)
    made_here = {*cdc.treatments, *cdc.of_intervals}
    late = {check.name for check in text.checks if check.columns & made_here}
    late |= {
        rule.name for rule, column in zip(text.expectations(Action.FAIL), text.not_null, strict=False) if column in made_here
    }
    rules = [rule for rule in text.expectations(Action.QUARANTINE) if rule.name not in late]
    if cdc.ignore_null_updates:
        checks = {check.name for check in text.checks}
        rules = [replace(rule, null_ok=True) for rule in rules if rule.name in checks]
    return replace(cdc, expectations=_together(rules, cdc.expectations, cdc.owner))


def _together(rules: Sequence[Expectation], others: Sequence[Expectation], owner: str) -> tuple[Expectation, ...]:
    own = {rule.name: rule for rule in rules}
    for one in others:
        if one.name in own and one != own[one.name]:
            raise DeclarationError(
                f"{owner}: the expectation '{one.name}' has the name of a rule of its schema=; give it another."
            )
    return (*rules, *(one for one in others if one.name not in own))


def _check_names(dataset: Dataset[Any], text: SchemaText, owner: str) -> None:
    """Raises DeclarationError where the declaration names a column that its schema has not. A change log has columns of its own."""
    if isinstance(dataset, Table) and dataset.shape:
        return
    named = {"keys": dataset.keys, "zorder_by": dataset.zorder_by, "partition_by": dataset.partition_by}
    named["subject"] = (dataset.subject,) if dataset.subject else ()
    named["personal"] = tuple(dataset.treatments)
    if isinstance(dataset, Table) and dataset.sequence_by:
        named["sequence_by"] = (dataset.sequence_by,)
    for of, columns in named.items():
        for column in columns:
            if column not in text.columns:
                raise DeclarationError(
                    f"{owner}: {of} names '{column}', no column of its schema=.{nearest(column, text.columns)}"
                )
