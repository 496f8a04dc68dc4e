"""Commands about this machine and this checkout: doctor, new pipeline, secrets, and the local Airflow.

`sluice up` and `sluice down` run the local Airflow with its UI in the background. `sluice secrets` takes values only from standard input, and
never prints one.
"""

from __future__ import annotations

import getpass
import sys
from dataclasses import asdict
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
    prepare_local_airflow,
    stop_running_airflow,
)
from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json, print_rows
from sluice.declare.assembly import subjects
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.doctor import MachineCheck
from sluice.errors import SluiceError, UsageError
from sluice.privacy import secrets as files
from sluice.settings import Settings, list_pipeline_names

new = typer.Typer(help="Write a new pipeline.", no_args_is_help=True)


def doctor(
    port: Annotated[bool, typer.Option("--port", help="Also check that Airflow can have its port.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only what fails.")] = False,
    lake: Annotated[
        str, typer.Option("--lake", metavar="URL", help="Only test this location on an object store, such as s3a://bucket/lake.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Say whether this machine can run Sluice, and what to do if it cannot."""
    from sluice import doctor as machine

    if lake:
        raise typer.Exit(machine.report_checks(_try_store(lake), quiet, as_json))
    given = {"--port": port, "--quiet": quiet, "--json": as_json}
    here = ["--environment", Path(sys.prefix).name]
    raise typer.Exit(machine.main([*here, *(name for name, asked in given.items() if asked)]))


def _try_store(url: str) -> list[MachineCheck]:
    from sluice.stores.opening import is_store_url
    from sluice.stores.trial import try_store

    if not is_store_url(url):
        raise UsageError(f"'{url}' is a path of this machine; expected a URL such as s3a://BUCKET/FOLDER.")
    return [MachineCheck(**asdict(finding)) for finding in try_store(url)]


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
    if find_running_airflow(settings):
        prepare_local_airflow(settings)  # Airflow finds the DAG by itself, but no task runs without the pool that it names
    printed.print(f"They are a guess: read and correct them. Then: sluice check {name} --plans", soft_wrap=True)


def tour(
    pipeline: PipelineName,
    from_path: Annotated[Path | None, typer.Option("--from", help="The folder or archive to take real deliveries from.")] = None,
) -> None:
    """Run the DAG through a real Airflow: land deliveries first, and show what each run did."""
    import_module("demonstrations.tour").run_tour(Settings.current(), escaping_console(), pipeline, from_path)


def demo_erasure() -> None:
    """Erase one member of a made-up gym, within minutes, and show the proof. In a lake of its own, without Airflow."""
    import_module("demonstrations.erasure").demonstrate_erasure(Settings.current(), escaping_console())


def up() -> None:
    """Start Airflow with its UI on 127.0.0.1, and leave it running."""
    start_local_airflow(Settings.current(), escaping_console())


def down() -> None:
    """Stop what `up` started."""
    stop_local_airflow(Settings.current(), escaping_console())


def _shorten_path(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


def start_local_airflow(settings: Settings, console: Console) -> None:
    """Start Airflow and leave it running; if it runs already, print its address, and prepare it for pipelines that came meanwhile.

    Raises SluiceError if it does not start.
    """
    running = find_running_airflow(settings)
    if running:
        prepare_local_airflow(settings)
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
    # Both lines may be set up, so each command names its own.
    before, after = ("AIRFLOW=2 ", " AIRFLOW=2") if airflow_line() == 2 else ("", "")
    for name in (*list_pipeline_names(settings), ERASURES):
        console.print(f"  schedule   {before}./airflow dags unpause {name}", highlight=False)
    console.print(f"  stop       make down{after}", highlight=False)


def stop_local_airflow(settings: Settings, console: Console) -> None:
    """Stop the Airflow that `start_local_airflow` started, with everything that it runs."""
    console.print("Airflow has stopped." if stop_running_airflow(settings) else "Airflow does not run.")


secrets = typer.Typer(help="Secret files: keys of pseudonyms, passwords of brokers.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name, as declarations use it.")]


@secrets.command("init")
def generate_secrets() -> None:
    """Generate the keys that every pipeline may need. Keep a copy elsewhere: a lost key cannot be made again."""
    settings = Settings.current()
    for name in files.MADE:
        there = files.find_secret(settings, name) is not None
        path = files.ensure_secret(settings, name)
        escaping_console().print(f"{'Is there already' if there else 'Made'}: {path}", soft_wrap=True)


@secrets.command("set")
def set_secret(
    name: Name,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the existing secret.")] = False,
) -> None:
    """Store a secret, read from standard input: openssl rand -hex 32 | sluice secrets set research.key."""
    path = files.store_secret(Settings.current(), name, _read_secret_from_stdin(name), replace)
    escaping_console().print(f"Kept: {path}", soft_wrap=True)


@secrets.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """List the secrets by name, with the pipelines that use them. No value is shown."""
    settings = Settings.current()
    uses = _find_secret_uses(settings)
    rows = {
        row["name"]: {**row, "there": True, "used_by": uses.get(row["name"], [])} for row in files.inspect_secret_files(settings)
    }
    for name, pipelines in uses.items():
        rows.setdefault(
            name, {"name": name, "changed_at": None, "private": None, "problem": None, "there": False, "used_by": pipelines}
        )
    found = [rows[name] for name in sorted(rows)]
    if as_json:
        print_json({"folder": str(settings.secrets), "secrets": found})
        return
    escaping_console().print(f"Folder {settings.secrets}", soft_wrap=True)
    shown = [{**row, "state": _describe_secret_state(row["there"], row["private"], row["name"])} for row in found]
    print_rows(shown, ("name", "state", "changed_at", "used_by"))
    for row in found:
        if row["problem"]:
            escaping_console().print(row["problem"], soft_wrap=True)


@secrets.command("delete")
def delete_secret(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it, although it cannot be made again.")] = False,
) -> None:
    """Remove a secret. Without --yes, only say what would be lost."""
    settings = Settings.current()
    path = files.require_known_secret(settings, name)
    used = _find_secret_uses(settings).get(name, [])
    by = f" It is used by {', '.join(used)}." if used else ""
    if not yes:
        raise UsageError(
            f"Nothing was removed. {files.secret_loss_consequence(name)}{by} To remove {path}: sluice secrets delete {name} --yes"
        )
    files.delete_secret(settings, name)
    escaping_console().print(f"Removed: {path}", soft_wrap=True)


def _describe_secret_state(there: bool, private: bool | None, name: str) -> str:
    if not there:
        return "made when first needed" if name in files.MADE else "missing"
    return "kept" if private else "REFUSED: see below"


def _find_secret_uses(settings: Settings) -> dict[str, list[str]]:
    """The pipelines that need each secret, by the secret's name. Leaves out pipelines with wrong declarations."""
    found: dict[str, list[str]] = {}
    for pipeline in list_pipeline_names(settings):
        try:
            graph = load_declaration_graph(settings, pipeline)
        except SluiceError:
            continue
        for name in subjects.find_needed_secrets(graph):
            found.setdefault(name, []).append(pipeline)
    return found


def _read_secret_from_stdin(name: str) -> bytes:
    if sys.stdin.isatty():
        return getpass.getpass(f"Value of '{name}' (it is not shown): ").encode()
    value = sys.stdin.buffer.read()
    return value[:-1] if value.count(b"\n") == 1 and value.endswith(b"\n") else value
