"""Commands about this machine and this checkout: doctor, new pipeline, and the local Airflow.

`sluice up` and `sluice down`: the local Airflow with its UI, in the background.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestration.local import DAG_ID as ERASURES
from orchestration.local import (
    LOGIN,
    LocalAirflow,
    airflow_line,
    find_running_airflow,
    local_airflow_address,
    local_airflow_home,
    local_airflow_password,
    stop_running_airflow,
)
from sluice.cli.printing import AsJson, PipelineName, escaping_console
from sluice.settings import Settings, list_pipeline_names

new = typer.Typer(help="Write a new pipeline.", no_args_is_help=True)


def doctor(
    port: Annotated[bool, typer.Option("--port", help="Also check that Airflow can have its port.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only what fails.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether this machine can run Sluice. And what to do where it cannot."""
    from sluice import doctor as machine

    given = {"--port": port, "--quiet": quiet, "--json": as_json}
    here = ["--environment", Path(sys.prefix).name]
    raise typer.Exit(machine.main([*here, *(name for name, asked in given.items() if asked)]))


@new.command("pipeline")
def new_pipeline(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The pipeline's name, in lower-case snake case.", show_default=False)
    ],
    from_folder: Annotated[Path, typer.Option("--from", metavar="FOLDER", help="Files like those that will be delivered.")],
) -> None:
    """Write a first bronze, silver, gold and a DAG for the files of a folder, and copy them into the landing folder."""
    from sluice.cli.setup import new_pipeline as writing

    settings = Settings.current()
    *files, landing = writing.write_new_pipeline(settings, name, from_folder)
    printed = escaping_console()
    for path in files:
        printed.print(f"wrote   {_shorten_path(path, settings.root)}", soft_wrap=True)
    printed.print(f"copied  {from_folder} to {_shorten_path(landing, settings.root)}", soft_wrap=True)
    printed.print(f"Read them: what was guessed is guessed. Then: sluice check {name} --plans", soft_wrap=True)


def tour(
    pipeline: PipelineName,
    from_path: Annotated[Path | None, typer.Option("--from", help="The folder or archive to take real deliveries from.")] = None,
) -> None:
    """Run the DAG through a real Airflow. Lands deliveries first, and says what each run did."""
    import_module("demonstrations.tour").run_tour(Settings.current(), escaping_console(), pipeline, from_path)


def demo_erasure() -> None:
    """Erase one member of a made-up gym, within minutes, and show the proof. In a lake of its own, without Airflow."""
    import_module("demonstrations.erasure").demonstrate_erasure(Settings.current(), escaping_console())


def up() -> None:
    """Start Airflow with its UI on 127.0.0.1. It is left running."""
    start_local_airflow(Settings.current(), escaping_console())


def down() -> None:
    """Stop what `up` started."""
    stop_local_airflow(Settings.current(), escaping_console())


def _shorten_path(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


def start_local_airflow(settings: Settings, console: Console) -> None:
    """Start Airflow and leave it running; where it runs already, say where.

    Raises SluiceError where it does not start.
    """
    running = find_running_airflow(settings)
    if running:
        console.print(
            f"Airflow runs already at {local_airflow_address(running[1])}, log in as {LOGIN} / {local_airflow_password(settings)}",
            soft_wrap=True,
        )
        return
    with console.status("Starting Airflow ..."):
        client = LocalAirflow(settings, with_parent=False).start()
    console.print(f"Airflow is at {client.address}", highlight=False)
    console.print(f"  log in as  {LOGIN} / {local_airflow_password(settings)}", highlight=False)
    console.print(f"  log files  {local_airflow_home(settings) / 'logs'}", highlight=False)
    # Both lines may be set up; each command says which it means.
    before, after = ("AIRFLOW=2 ", " AIRFLOW=2") if airflow_line() == 2 else ("", "")
    for name in (*list_pipeline_names(settings), ERASURES):
        console.print(f"  schedule   {before}./airflow dags unpause {name}", highlight=False)
    console.print(f"  stop       make down{after}", highlight=False)


def stop_local_airflow(settings: Settings, console: Console) -> None:
    """Stop the Airflow that `start_local_airflow` started, with whatever it runs."""
    console.print("Airflow has stopped." if stop_running_airflow(settings) else "Airflow does not run.")
