"""Fixes the rows a transform makes as soon as it is called, so every caller gets the same: in part, in full or to compare.

Empty texts in partition columns become NULL, as Delta stores them (PROTOCOL.md, "Partition Value Serialization"). Otherwise a computed
row would never equal the stored one.

A row about fewer than `at_least` people is no row of the view, so it is neither stored nor published. A group that shrinks, for
instance after an erasure, leaves the view as a deleted key does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from sluice.call_sites import call_sites_recorded
from sluice.declare.lazy_spark import TEXT_TYPES, WHOLE_NUMBER_TYPES, F
from sluice.declare.quoting import quote_column
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P = ParamSpec("P")


def call_transform(function: Callable[P, DataFrame], owner: str, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
    """Returns what a transform makes of these inputs. An error of Spark names the transform's line.

    Raises DeclarationError if it is no DataFrame, as after a forgotten `return`.
    """
    with call_sites_recorded():
        made = function(*args, **kwargs)
    given = (*args, *kwargs.values())
    if made is None or (any(_is_frame(one) for one in given) and not _is_frame(made)):
        hint = ": is a `return` missing?" if made is None else "."
        raise DeclarationError(f"{owner}: its function returned {type(made).__name__}, not a DataFrame{hint}")
    return made


def _is_frame(value: object) -> bool:
    return any(one.__name__ == "DataFrame" for one in type(value).__mro__)


def null_empty_partition_texts(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Returns the rows with NULL for empty texts in partition columns."""
    texts = [name for name in partition_by if name in rows.columns and rows.schema[name].dataType.typeName() in TEXT_TYPES]
    for name in texts:
        rows = rows.withColumn(name, F.nullif(quote_column(name), F.lit("")))
    return rows


def leave_out_small_groups(rows: DataFrame, at_least: int | None, subjects: str | None, owner: str) -> DataFrame:
    """Returns the rows without those of small groups. A group whose size is NULL counts as small.

    Raises DeclarationError if `subjects` is no column of the rows, or not a whole number.
    """
    if at_least is None or subjects is None:
        return rows
    if subjects not in rows.columns:
        raise DeclarationError(
            f"{owner}: subjects names '{subjects}', no column of it.{nearest_name_hint(subjects, rows.columns)}"
        )
    kind = rows.schema[subjects].dataType.typeName()
    if kind not in WHOLE_NUMBER_TYPES:
        raise DeclarationError(
            f"{owner}: subjects names '{subjects}', which is {kind.upper()}; it must count the people that a row is about, as in "
            f"F.count_distinct('user_id').alias('{subjects}')."
        )
    return rows.where(quote_column(subjects) >= F.lit(at_least))


def find_small_group_mistakes(at_least: int | None, subjects: str | None, private: frozenset[str]) -> list[str]:
    """Returns what is wrong with the declaration of small groups, as sentences."""
    if at_least is None and subjects is None:
        return []
    if at_least is None or subjects is None:
        return [
            "at_least and subjects come together: at_least=10, subjects='members' stores the rows whose column 'members', a count of "
            "different people, is at least 10."
        ]
    if not isinstance(at_least, int) or isinstance(at_least, bool) or at_least < 2:
        return [f"at_least is a whole number from 2 on, not {at_least!r}: a group of one is a person."]
    if subjects in private:
        return [f"subjects names the personal column '{subjects}'; name the column that counts people."]
    return []
