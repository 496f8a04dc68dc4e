"""The command line: `sluice ...` or `python -m sluice.cli ...`. Exit codes: 0 done, 1 failed, 2 wrong use, 3 lease held.

A command's module is loaded only when the command is called, so that help, and an error for a wrong name, load few libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

import typer
from typer.core import TyperGroup
from typer.main import get_group

from sluice.errors import SluiceError
from sluice.named_functions import NamedFunction
from sluice.printable import escape_keeping_lines, library_texts_withheld

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter


@dataclass(frozen=True)
class CommandEntry:
    """A command or a group of commands, with the name of its function. function: as "module:name". summary: its line in the list of commands."""

    function: str
    summary: str

    @property
    def name(self) -> str:
        """The name that users type."""
        return self.function.rpartition(":")[2].replace("_", "-")


COMMANDS = (
    CommandEntry("sluice.cli.running.plan:check", "Find mistakes in declarations."),
    CommandEntry("sluice.cli.running.plan:plan", "Say what a run would do."),
    CommandEntry("sluice.cli.running.run:run", "Bring a pipeline's tables up to date."),
    CommandEntry("sluice.cli.running.backfill:backfill", "Replay days, with today's code."),
    CommandEntry("sluice.cli.running.run:stop", "Ask a pipeline's run to stop, and wait until it has."),
    CommandEntry("sluice.cli.running.land:land", "Put deliveries into the landing folder."),
    CommandEntry("sluice.cli.tables.read:sql", "Query tables and views in SQL, through Spark."),
    CommandEntry("sluice.cli.tables.read:show", "Show some rows of a table or @view."),
    CommandEntry("sluice.cli.tables.changes:changes", "List the rows that each version of a table changed."),
    CommandEntry("sluice.cli.tables.verify:verify", "Compare tables with a full recompute from bronze."),
    CommandEntry("sluice.cli.tables.upkeep:optimize", "Say whether files need a rewrite; --now does it."),
    CommandEntry("sluice.cli.tables.upkeep:vacuum", "Remove files that nothing needs; --dry-run says which."),
    CommandEntry("sluice.cli.tables.catalog:catalog", "Register tables by name in a catalog, and say which are."),
    CommandEntry("sluice.cli.tables.copies:diff", "Compare a table with what it was, or with another lake."),
    CommandEntry("sluice.cli.tables.copies:clone", "Clone a pipeline's tables into another lake."),
    CommandEntry("sluice.cli.repair.restore:restore", "Bring a table back to an earlier version."),
    CommandEntry("sluice.cli.repair.restore:repair", "Repair damaged logs of tables."),
    CommandEntry("sluice.cli.monitoring.status:status", "Show tables, what waits, and the last runs."),
    CommandEntry("sluice.cli.monitoring.records:history", "List a table's versions, newest first."),
    CommandEntry("sluice.cli.monitoring.records:ledger", "List deliveries, newest first."),
    CommandEntry("sluice.cli.monitoring.records:runs", "List what each run did, newest first."),
    CommandEntry("sluice.cli.monitoring.why:why", "Say where the time of a run went, and what would help."),
    CommandEntry("sluice.cli.monitoring.report:report", "Write a page that shows a pipeline: tables, runs, rules."),
    CommandEntry("sluice.cli.monitoring.lineage:lineage", "Say which columns a table or column comes from."),
    CommandEntry("sluice.cli.monitoring.metrics:metrics", "Write numbers for Prometheus."),
    CommandEntry("sluice.cli.setup.machine:doctor", "Say whether this machine can run Sluice."),
    CommandEntry("sluice.cli.setup.machine:tour", "Run the DAG through a real Airflow."),
    CommandEntry("sluice.cli.setup.machine:demo_erasure", "Erase a member of a made-up gym, and show the proof."),
    CommandEntry("sluice.cli.setup.machine:up", "Start Airflow with its UI on 127.0.0.1."),
    CommandEntry("sluice.cli.setup.machine:down", "Stop what `up` started."),
    CommandEntry("sluice.cli.repair.quarantine:quarantine", "List, show, replay or discard quarantined rows."),
    CommandEntry("sluice.cli.repair.checkpoint:checkpoint", "Show how far flows have come, or make one start anew."),
    CommandEntry("sluice.cli.erasure:erase", "Erase people: ask for it, carry it out, prove it."),
    CommandEntry("sluice.cli.tables.copies:release", "Make de-identified copies of tables, with numbers."),
    CommandEntry("sluice.cli.setup.machine:secrets", "Keep the keys of pseudonyms and passwords of brokers."),
    CommandEntry("sluice.cli.setup.machine:new", "Write a new pipeline."),
)
"""All commands, in the order of the help. Each one's own help is the docstring of its function, or of the group of that name."""

_LOOKS: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


class _LoadedWhenCalled(TyperGroup):
    """The group of all commands; loads only the command that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._entries = {entry.name: entry for entry in COMMANDS}
        self.commands = cast("Any", dict.fromkeys(self._entries))  # only the names, to suggest the nearest one

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        entry = self._entries.get(cmd_name)
        return load_command(entry) if entry else None

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in COMMANDS])


def load_command(entry: CommandEntry) -> Command:
    """The command, or group of commands, of an entry."""
    found = NamedFunction[..., Any](entry.function).load()
    holder = typer.Typer(**_LOOKS)
    holder.callback()(lambda: None)  # makes it a group even with one command
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=entry.name)
    else:
        holder.command(entry.name)(found)
    command = get_group(holder).commands[entry.name]
    _name_option_values(command)
    return command


def _name_option_values(command: Command) -> None:
    """Have the help call an option's value by the option, as `--stage STAGE`, and not by a type of Python."""
    for below in getattr(command, "commands", {}).values():
        _name_option_values(below)
    for one in command.params:
        if one.param_type_name == "option" and one.metavar is None and not getattr(one, "is_flag", False):
            one.metavar = max(one.opts, key=len).strip("-").replace("-", "_").upper()


app = typer.Typer(name="sluice", cls=_LoadedWhenCalled, no_args_is_help=True, **_LOOKS)


@app.callback()
def describe_project() -> None:
    """Incremental medallion pipelines on Airflow, Spark and Delta Lake."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit. arguments: by default the process's. A failure is one message on standard error."""
    try:
        with library_texts_withheld():
            app(args=arguments, prog_name="sluice")
    except Exception as error:
        from sluice.runs.failures import describe_error_without_values

        sys.stdout.flush()
        print(escape_keeping_lines(f"sluice: {describe_error_without_values(error)}"), file=sys.stderr, flush=True)
        sys.exit(error.exit_code if isinstance(error, SluiceError) else 1)
    sys.exit(0)
