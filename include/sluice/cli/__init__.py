"""The command line: `sluice ...` or `python -m sluice.cli ...`. Exit codes: 0 done, 1 failed, 2 wrong use, 3 lease held."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from sluice.cli.erasure import certificates, people
from sluice.cli.monitoring import records, status
from sluice.cli.repair import checkpoint, quarantine, restore
from sluice.cli.running import backfill, land, plan, run
from sluice.cli.setup import machine
from sluice.cli.tables import changes, copies, read, verify
from sluice.errors import SluiceError
from sluice.printable import escape_keeping_lines, library_texts_withheld

app = typer.Typer(
    name="sluice",
    help="Incremental medallion pipelines on Airflow, Spark and Delta Lake.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(plan.check)
app.command()(plan.plan)
app.command()(run.run)
app.command()(backfill.backfill)
app.command()(run.stop)
app.command()(land.land)
app.command()(read.sql)
app.command()(read.show)
app.command()(changes.changes)
app.command()(verify.verify)
app.command()(copies.diff)
app.command()(copies.clone)
app.command()(restore.restore)
app.command()(restore.repair)
app.command()(status.status)
app.command()(records.history)
app.command()(records.ledger)
app.command()(records.runs)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(checkpoint.app, name="checkpoint")
people.erase.command()(people.run)
people.erase.command()(people.approve)
people.erase.command()(certificates.certificate)
people.erase.command()(certificates.verify)
people.erase.command()(certificates.public_key)
people.erase.command()(certificates.scan)
app.add_typer(people.erase, name="erase")
app.add_typer(copies.release, name="release")
app.add_typer(machine.secrets, name="secrets")
app.command()(machine.doctor)
app.add_typer(machine.new, name="new")
app.command()(machine.tour)
app.command()(machine.demo_erasure)
app.command()(machine.up)
app.command()(machine.down)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit. arguments: those of the process unless given. A failure is one message on standard error."""
    try:
        with library_texts_withheld():
            app(args=arguments, prog_name="sluice")
    except Exception as error:
        from sluice.runs.job import describe_error_without_values

        sys.stdout.flush()
        print(escape_keeping_lines(f"sluice: {describe_error_without_values(error)}"), file=sys.stderr, flush=True)
        sys.exit(error.exit_code if isinstance(error, SluiceError) else 1)
    sys.exit(0)
