"""`sluice secrets`. A value comes by standard input only; none is ever printed."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from sluice.cli.printing import AsJson, escaping_console, print_json, print_rows
from sluice.declare.assembly import needed_secrets
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import SluiceError, UsageError
from sluice.privacy import secrets as files
from sluice.settings import Settings, list_pipeline_names

app = typer.Typer(help="Secret files: keys of pseudonyms, passwords of brokers.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name, as declarations use it.")]


@app.command()
def init() -> None:
    """Generate the keys that every pipeline may need. Keep a copy elsewhere: what is lost with them does not come back."""
    settings = Settings.current()
    for name in files.MADE:
        there = files.find_secret(settings, name) is not None
        path = files.ensure_secret(settings, name)
        escaping_console().print(f"{'Is there already' if there else 'Made'}: {path}", soft_wrap=True)


@app.command("set")
def set_secret(
    name: Name,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the existing secret.")] = False,
) -> None:
    """Store a secret, read from standard input: openssl rand -hex 32 | sluice secrets set research.key."""
    path = files.store_secret(Settings.current(), name, _read_secret_from_stdin(name), replace)
    escaping_console().print(f"Kept: {path}", soft_wrap=True)


@app.command("list")
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


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="I know what is lost.")] = False,
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
    """By the name of a secret, the pipelines that need it. A pipeline whose declarations are wrong is left out."""
    found: dict[str, list[str]] = {}
    for pipeline in list_pipeline_names(settings):
        try:
            graph = load_declaration_graph(settings, pipeline)
        except SluiceError:
            continue
        for name in needed_secrets.find_needed_secrets(graph):
            found.setdefault(name, []).append(pipeline)
    return found


def _read_secret_from_stdin(name: str) -> bytes:
    if sys.stdin.isatty():
        return getpass.getpass(f"Value of '{name}' (it is not shown): ").encode()
    value = sys.stdin.buffer.read()
    return value[:-1] if value.count(b"\n") == 1 and value.endswith(b"\n") else value
