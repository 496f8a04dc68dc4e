"""Commands about this machine and this checkout: doctor, new pipeline, and the local Airflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sluice.cli.printing import AsJson, PipelineName, console
from sluice.settings import Settings

new = typer.Typer(help="Write a new pipeline.", no_args_is_help=True)


def doctor(
    port: Annotated[bool, typer.Option("--port", help="Also whether Airflow gets its port.")] = False,
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="In lower-case snake case.", show_default=False)],
    from_folder: Annotated[Path, typer.Option("--from", metavar="FOLDER", help="Files like those that will be delivered.")],
) -> None:
    """Write a first bronze, silver, gold and a DAG for the files of a folder, and copy them into the landing folder."""
    from sluice.cli.setup import new_pipeline as writing

    settings = Settings.current()
    *files, landing = writing.new_pipeline(settings, name, from_folder)
    printed = console()
    for path in files:
        printed.print(f"wrote   {_short(path, settings.root)}", soft_wrap=True)
    printed.print(f"copied  {from_folder} to {_short(landing, settings.root)}", soft_wrap=True)
    printed.print(f"Read them: what was guessed is guessed. Then: sluice check {name} --plans", soft_wrap=True)


def tour(
    pipeline: PipelineName,
    from_path: Annotated[Path | None, typer.Option("--from", help="Where real deliveries are taken from.")] = None,
) -> None:
    """Run the DAG through a real Airflow. Lands deliveries first, and says what each run did."""
    from sluice.cli.tour import command as touring

    touring.tour(Settings.current(), console(), pipeline, from_path)


def demo_erasure() -> None:
    """Erase one member of a made-up gym, within minutes, and show the proof. In a lake of its own, without Airflow."""
    from sluice.cli.erasure import demo

    demo.demo(Settings.current(), console())


def up() -> None:
    """Start Airflow with its UI on 127.0.0.1. It is left running."""
    from sluice.cli.setup import airflow_home

    airflow_home.up(Settings.current(), console())


def down() -> None:
    """Stop what `up` started."""
    from sluice.cli.setup import airflow_home

    airflow_home.down(Settings.current(), console())


def _short(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path
