"""The modes of a run: one record each, with what a run in it may and must name. Loads neither Spark nor Airflow.

The trigger form, the command line, the plan and the job scripts check a run by `check_run_mode`, and give only how each calls its options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.errors import UsageError, nearest_name_hint
from sluice.printable import join_names


@dataclass(frozen=True, kw_only=True)
class RunMode:
    """The record of a mode.

    summary: what a run in it takes, in the trigger form. takes_days: whether it works on days, and so needs the first and the last of them.
    takes_tables: whether it may be for some tables alone. needs_tables: whether somebody must name them. left_to_kept_running: whether a
    process that is kept running does the same by itself.
    """

    name: str
    summary: str
    takes_days: bool = False
    takes_tables: bool = True
    needs_tables: bool = False
    left_to_kept_running: bool = False


INCREMENT = RunMode(name="increment", summary="what is new since the last run", takes_tables=False, left_to_kept_running=True)
REPLAY = RunMode(name="replay", summary="the days below again, with today's code", takes_days=True)
REFRESH = RunMode(name="refresh", summary="the tables below from scratch, with all that read them", needs_tables=True)

MODES = (INCREMENT, REPLAY, REFRESH)


@dataclass(frozen=True)
class OptionNames:
    """How a caller's messages call its options. mode: with {} for the mode's name. left_out: what to do with one that does not belong there."""

    mode: str
    days: str
    tables: str
    left_out: str

    def name_mode(self, mode: RunMode) -> str:
        """Returns how the caller names the mode, as "--mode replay"."""
        return self.mode.format(mode.name)


def find_run_mode(name: str) -> RunMode:
    """Returns the mode of that name. Raises UsageError, with the nearest name, if there is none."""
    for mode in MODES:
        if mode.name == name:
            return mode
    raise UsageError(f"There is no mode '{name}'.{nearest_name_hint(name, [mode.name for mode in MODES])}")


def check_run_mode(name: str, days: Sequence[object], tables: Sequence[str], options: OptionNames) -> RunMode:
    """Returns the mode of that name. Raises UsageError, in the caller's words, for days or tables that it does not allow or that it lacks.

    days: what the run was given as its first and its last day, or as both in one; what is empty was not given.
    """
    mode = find_run_mode(name)
    named = options.name_mode(mode)
    sentence = named[0].upper() + named[1:]
    if mode.takes_days and not all(days):
        raise UsageError(f"{sentence} needs {options.days}: the first and the last day to replay.")
    if any(days) and not mode.takes_days:
        others = join_names((options.name_mode(other) for other in MODES if other.takes_days), "or")
        raise UsageError(f"{sentence} takes no days. {options.left_out.format(options.days)}, or choose {others}.")
    if mode.needs_tables and not tables:
        raise UsageError(f"{sentence} needs {options.tables}: what to make from scratch, with everything that reads it.")
    if tables and not mode.takes_tables:
        others = join_names((options.name_mode(other) for other in MODES if other.takes_tables), "or")
        raise UsageError(
            f"{sentence} takes {mode.summary}, for all tables. {options.left_out.format(options.tables)}, or choose {others}."
        )
    return mode


def name_all_modes() -> str:
    """Returns the names of all modes, in a sentence."""
    return join_names((mode.name for mode in MODES), "or")
