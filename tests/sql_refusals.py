"""What `sluice sql` refuses of all that this version of Spark has, as docs/security.md lists it.

python -m tests.sql_refusals writes the list there; integration/cli/test_sql_judgement.py compares it.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyspark

from sluice.lake.sql_allowed import ASKING, FUNCTIONS, LISTING, NODES, TABLE_FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- refused: begin -->\n", "<!-- refused: end -->\n"
_JARS = ("spark-catalyst_", "spark-sql_", "spark-sql-api_", "spark-hive_", "spark-pipelines_", "delta-spark_")
_PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"


@cache
def concrete_classes() -> tuple[frozenset[str], frozenset[str]]:
    """Every class of a logical plan's node, and every one of an expression, that Spark and Delta have and that can have instances.

    From the jars, without loading them.
    """
    classes = dict(_classes())
    return tuple(
        frozenset(name for name, known in classes.items() if not known.abstract and _is_below(name, root, classes))
        for root in (_PLAN, _EXPRESSION)
    )  # type: ignore[return-value]


def function_names(spark: SparkSession) -> tuple[list[str], list[str]]:
    """Every function that is registered, and every one for FROM."""
    state: Any = spark._jsparkSession.sessionState()
    found = []
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        listed = registry.listFunction()
        found.append(sorted({str(listed.apply(position).funcName()) for position in range(listed.size())}))
    return found[0], found[1]


def page_part(spark: SparkSession) -> str:
    """The generated part of the page."""
    plans, _ = concrete_classes()
    functions, table_functions = function_names(spark)
    allowed = NODES | ASKING | LISTING
    nodes = sorted({name.rpartition(".")[2].rstrip("$") for name in plans - allowed})
    refused = sorted(set(functions) - FUNCTIONS)
    of_tables = sorted(set(table_functions) - TABLE_FUNCTIONS)
    return "".join((
        f"{BEGIN}<!-- written by: python -m tests.sql_refusals -->\n",
        f"Of Spark {pyspark.__version__} and Delta, with their {len(plans)} classes of plan nodes and {len(functions)} functions:\n\n",
        _folded(f"{len(refused)} functions that are refused", refused),
        _folded(f"{len(of_tables)} functions in FROM that are refused", of_tables),
        _folded(f"{len(nodes)} plan nodes that are refused", nodes),
        END,
    ))


def written_part() -> str:
    """The generated part as the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def _folded(title: str, names: list[str]) -> str:
    return f"<details><summary>{title}</summary>\n\n{' '.join(f'`{name}`' for name in names)}\n\n</details>\n\n"


class _Class(NamedTuple):
    above: str
    abstract: bool


def _classes() -> Iterator[tuple[str, _Class]]:
    folders = (Path(pyspark.__file__).parent / "jars", ROOT / ".sluice" / "jars")
    for jar in (jar for folder in folders for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(_JARS)):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and "/sql/" in name:
                    yield name[:-6].replace("/", "."), _class(archive.read(name))


def _is_below(name: str, root: str, classes: Mapping[str, _Class]) -> bool:
    while name in classes and name != root:
        name = classes[name].above
    return name == root


_LONGER = {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3}
"""How long the entries of a class file's constant pool are, by their tag."""


def _class(code: bytes) -> _Class:
    """What a class file says: which class is above, and whether there can be instances."""
    entries, position, number = {}, 10, 1
    for _ in range(1, int.from_bytes(code[8:10], "big")):
        if number >= int.from_bytes(code[8:10], "big"):
            break
        entries[number] = position
        tag = code[position]
        number += 2 if tag in (5, 6) else 1  # a long number counts twice
        position += 3 + int.from_bytes(code[position + 1 : position + 3], "big") if tag == 1 else _LONGER[tag]
    flags, above = (int.from_bytes(code[position + at : position + at + 2], "big") for at in (0, 4))
    if not above:
        return _Class("", True)
    text = entries[int.from_bytes(code[entries[above] + 1 : entries[above] + 3], "big")]
    name = code[text + 3 : text + 3 + int.from_bytes(code[text + 1 : text + 3], "big")].decode()
    return _Class(name.replace("/", "."), bool(flags & 0x0600))


def main() -> None:
    from tests.conftest import settings_at

    from sluice import session

    spark = session.start_spark_session(settings_at(ROOT), "sql_refusals")
    part, text = page_part(spark), PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(written_part(), part), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
