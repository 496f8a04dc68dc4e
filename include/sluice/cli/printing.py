"""What commands share: common arguments, a question before a repair, and rows printed as a table for people or as one JSON object for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sluice.errors import UsageError
from sluice.printable import escape_keeping_lines, escape_to_one_line, format_seconds

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, as the last line.")]
PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="A folder of include/pipelines.", show_default=False)]
OnePipeline = Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; otherwise all.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="<pipeline>.<table>.")]
TableOrPipeline = Annotated[str, typer.Argument(metavar="PIPELINE[.TABLE]", help="A table, or a pipeline: all its tables.")]
OnlyTables = Annotated[list[str] | None, typer.Option("--table", help="Only this table; may be given again.")]
LeaseWait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many rows at most.")]

_PIPED = 2000
"""The width of a console that is no terminal, so that a pipe gets one row a line and nothing is cut."""


class _EscapingConsole(Console):
    """A console that shows control characters instead of sending them to the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(escape_keeping_lines(item) if isinstance(item, str) else item for item in objects), **options)


def escaping_console() -> Console:
    """Standard output, on which printed text is never markup, and never controls the terminal."""
    width = None if sys.stdout.isatty() else _PIPED
    return _EscapingConsole(width=width, markup=False, highlight=False, emoji=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on a line of its own."""
    print(json.dumps(_as_json_value(value), allow_nan=False), flush=True)


def print_run_report(report: dict[str, Any], as_json: bool) -> None:
    """What a run did: for people, or as one JSON object."""
    from sluice.runs import summary  # after a run its modules are loaded; whoever only prints rows does not wait for them

    if as_json:
        print_json(report)
    else:
        print(summary.format_run_summary(report), flush=True)


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str = "") -> None:
    """Print rows as a table with these columns. Numbers are aligned right, NULL is an empty cell."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for column in columns:
        numbers = [row.get(column) for row in rows if row.get(column) is not None]
        right = bool(numbers) and all(isinstance(number, int | float) for number in numbers)
        table.add_column(escape_to_one_line(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_to_one_line(_format_cell(row.get(column)))) for column in columns))
    printed = escaping_console()
    if title:
        printed.print(f"\n{title}", style="bold")
    printed.print(table)


def format_instant(instant: datetime | None) -> str | None:
    """An instant in UTC to the second: 2026-11-21 02:00:00."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if instant else None


def format_duration(time: timedelta | None) -> str | None:
    """A length of time by its two largest units: 3 d 4 h."""
    return None if time is None else format_seconds(time.total_seconds())


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return str(value)


def _as_json_value(value: Any) -> Any:
    """What JSON has for a value: a struct by its names, a map's keys as text, NaN and the infinities as text, as files are read with them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_as_json_key(key): _as_json_value(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "asDict"):  # a Row, known by its method: Spark is not loaded for its type
        return _as_json_value(value.asDict())
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json_value(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _as_json_key(key: Any) -> str:
    text = _as_json_value(key)
    return text if isinstance(text, str) else json.dumps(text)


def confirm_repair(what: str, question: str, yes: bool) -> None:
    """Asks at the terminal, unless somebody gave --yes, and exits with 1 if the answer is no. Raises UsageError if there is no terminal.

    what: what is done, as the error says it: "Repairing logs of 'gym'".
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what} asks for confirmation, and there is no terminal. Give --yes.")
    if not typer.confirm(question):
        raise typer.Exit(1)
