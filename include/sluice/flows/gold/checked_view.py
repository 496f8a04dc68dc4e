"""Calls a view's transform on placeholders, and refuses a view that no run follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.errors import DeclarationError
from sluice.flows import plans
from sluice.flows.placeholders import (
    identify_placeholder,
    is_from_placeholder,
    make_empty_placeholder,
    make_untouchable_placeholder,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def check_view_plan(session: SparkSession, view: MaterializedView[Any], inputs: Mapping[str, StructType]) -> None:
    """Raises DeclarationError for a view that no run follows: it asks for rows, reads a clock or what it does not declare, or leaves out an input.

    Reads no data. inputs: their schemas by name, without technical columns. session: the active one afterwards, as before.
    """
    try:
        call_checked_view(session, view, inputs)
    finally:
        _make_active_again(session)


def call_checked_view(
    session: SparkSession, view: MaterializedView[Any], inputs: Mapping[str, StructType]
) -> tuple[dict[str, DataFrame], DataFrame]:
    """Returns placeholders for the inputs, and the view's frame over them, both in a session of their own. Errors are those of `check_view_plan`."""
    asking = session.newSession()
    asking.conf.set("spark.sql.constraintPropagation.enabled", "true")
    # A view that is always made anew in full is called only when all rows of its inputs are there.
    make_placeholder = make_empty_placeholder if view.recompute_rule.always_full else make_untouchable_placeholder
    leaves = {name: make_placeholder(asking, schema) for name, schema in inputs.items()}
    result = _call_view_on_placeholders(view, leaves)
    analysed = plans.analyzed_plan(result)
    plans.refuse_unfollowed_reads(session, view.name, analysed)
    names = {identify_placeholder(leaf): name for name, leaf in leaves.items()}
    unused = sorted(set(inputs) - plans.count_input_reads(analysed, names).keys())
    if unused:
        raise DeclarationError(f"View '{view.name}' reads '{unused[0]}' but does not use it.")
    return leaves, result


def _make_active_again(session: SparkSession) -> None:
    """Makes a session the active one: whatever makes a frame in another session makes that one active."""
    from pyspark.sql import SparkSession as AnySession

    AnySession._activeSession = session
    jvm: Any = session._jvm
    jvm.SparkSession.setActiveSession(session._jsparkSession)


def _call_view_on_placeholders(view: MaterializedView[Any], leaves: Mapping[str, DataFrame]) -> DataFrame:
    """Returns the view's frame over placeholders. Raises DeclarationError if its transform asks for rows before it returns."""
    try:
        return view(*(leaves[name] for name in view.reads))
    except (PySparkException, Py4JError) as error:
        if not is_from_placeholder(error):
            raise
    raise DeclarationError(
        f"View '{view.name}' asks for rows while its transform is called, as count(), collect(), first() and a pivot without its values "
        "do: where only a part of the view is recomputed, they would be that part's. Give the pivot its values, join the aggregate, "
        'or declare recompute="full".'
    )
