"""The errors, by what the caller should do about them.

A message names the offender, what was expected and what to do. It never holds a cell's value: values may be personal data.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class SluiceError(Exception):
    """A run failed. Exit code 1: trying again may help.

    report: of a stage that failed, what its flows did nevertheless, as a stage that succeeded returns it; None if that is not known.
    retry_helps: False if the same work, done again, is known to fail in the same way.
    """

    exit_code = 1
    retry_helps = True
    report: dict[str, Any] | None = None


class UsageError(SluiceError):
    """An argument, a path, a date or a name is wrong. Exit code 2: trying again does not help."""

    exit_code = 2
    retry_helps = False


class DeclarationError(UsageError):
    """A pipeline's declaration is wrong. Exit code 2."""


class LakeTooNew(UsageError):
    """The lake was written by a newer Sluice. Exit code 2."""


class LeaseHeld(SluiceError):
    """Another job holds the pipeline's lease. Exit code 3."""

    exit_code = 3


class StageEnded(SluiceError):
    """What ends a whole stage, also one that goes on with other tables if one fails. Exit code 1."""


class LeaseLost(StageEnded):
    """This process may not commit any more: its lease ran out before it could be renewed, or another took it. Exit code 1."""


class SparkNeeded(StageEnded):
    """A stage that was begun without Spark needs it. What it has committed stays; a job with Spark does the rest. Exit code 1."""


class RuleNotMet(SluiceError):
    """Rows do not meet a rule that must hold, or too many do not meet one. Exit code 1."""


class StopRequested(StageEnded):
    """Somebody asked this run to stop; it did so at a batch boundary. Exit code 1."""


def table_collision(path: object) -> SluiceError:
    """The error of a commit that another writer's came before."""
    return SluiceError(f"Somebody else wrote to the table {path} meanwhile. Nothing was changed. Run again.")


def find_nearest_name(name: str, valid: Iterable[str]) -> str | None:
    """The valid name most similar to `name`; None if none is similar."""
    close = difflib.get_close_matches(name, sorted(valid), n=1, cutoff=0.65)
    return close[0] if close else None


def nearest_name_hint(name: str, valid: Iterable[str]) -> str:
    """A hint to append to a message: the valid name most similar to `name`, or all valid names."""
    names = sorted(valid)
    if close := find_nearest_name(name, names):
        return f" Did you mean '{close}'?"
    return f" There are: {', '.join(names)}." if names else ""
