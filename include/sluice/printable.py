r"""Makes texts safe to print. Delivered texts may hold control sequences for a terminal; texts of libraries may quote a row.

In a file's name, a field's name or a cell, only what Unicode calls printable passes, and the space; everything else, such as a newline that
forges a line, is escaped as in Python: `\x1b`, `\n`, `\u202e`. Log records, warnings and uncaught errors are printed without their text,
unless this project's code or its pipelines log them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


def escape_to_one_line(text: str) -> str:
    """The text in one line. For everything from outside: names of files and fields, records, cells."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape_character(sign) for sign in text)


def escape_keeping_lines(text: str) -> str:
    """The text with its lines. For a whole message of ours, before it reaches a terminal or a log."""
    return "\n".join(escape_to_one_line(line) for line in text.split("\n"))


def format_size(number: int) -> str:
    """Bytes, short enough to read: 434 KB."""
    amount = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def format_seconds(seconds: float) -> str:
    """A length of time by its two largest units: 3 d 4 h."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((position for position, (number, _) in enumerate(parts) if number), 3)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number or unit == "s" == parts[first][1])


def join_names(names: Iterable[str], word: str = "and") -> str:
    """The names in a sentence, as "optimize, vacuum and verify". At least one."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def count_noun(number: int, noun: str, verb: str = "", verbs: str = "") -> str:
    """A count with its noun: 1 row, 2 rows, 1,234 deliveries. verb, verbs: what follows it where the count is one, and otherwise: 1 row was."""
    follows = " ".join(["", match_number(number, verb, verbs)]).rstrip()
    return f"{number:,} {match_number(number, noun, _form_plural(noun))}{follows}"


def _form_plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def match_number(number: float, singular: str, plural: str) -> str:
    """The verb, or another word, that goes with a count: 1 row was, 2 rows were."""
    return singular if number == 1 else plural


def _escape_character(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


_OURS = ("sluice", "pipelines")
_INSTEAD = "(not shown: it may quote rows)"


@contextmanager
def library_texts_withheld() -> Iterator[None]:
    """During the block, this process prints only the kind and origin of libraries' log records, warnings and errors of threads.

    SLUICE_DEBUG=1 prints them whole.
    """
    if os.environ.get("SLUICE_DEBUG"):
        yield
        return
    make, shown = logging.getLogRecordFactory(), warnings.formatwarning
    of_thread, of_nobody = threading.excepthook, sys.unraisablehook
    logging.setLogRecordFactory(lambda *words, **named: _strip_record_text(make(*words, **named)))
    warnings.formatwarning = _format_warning_without_text
    threading.excepthook = lambda failed: _print_error_kind(
        failed.exc_type, f"in thread {failed.thread.name if failed.thread else '?'}"
    )
    sys.unraisablehook = lambda failed: _print_error_kind(failed.exc_type, "where nobody could catch it")
    try:
        yield
    finally:
        logging.setLogRecordFactory(make)
        warnings.formatwarning = shown
        threading.excepthook, sys.unraisablehook = of_thread, of_nobody


def _strip_record_text(record: logging.LogRecord) -> logging.LogRecord:
    if record.name.split(".")[0] not in _OURS:
        record.msg, record.args = f"{record.name}: {_INSTEAD}", ()
    if record.exc_info and record.exc_info[0]:
        record.msg, record.args = f"{record.getMessage()} {record.exc_info[0].__name__}", ()
    record.exc_info = record.exc_text = record.stack_info = None
    return record


def _format_warning_without_text(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return f"{filename}:{lineno}: {category.__name__} {_INSTEAD}\n"


def _print_error_kind(kind: type[BaseException] | None, where: str) -> None:
    print(f"{kind.__name__ if kind else 'An error'} {where} {_INSTEAD}", file=sys.stderr, flush=True)
