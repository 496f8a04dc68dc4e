"""`sluice erase`. Identifiers come by a file or standard input, not as arguments; none is printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sluice.cli.places import chosen
from sluice.cli.printing import AsJson, PipelineName, console, print_json, print_rows
from sluice.declare.loading import load
from sluice.errors import UsageError
from sluice.settings import Settings, known_pipeline

erase = typer.Typer(help="Erase people: requests, and what became of them.", no_args_is_help=True)


@erase.command()
def request(
    pipeline: PipelineName,
    identifier: Annotated[
        str | None, typer.Option(metavar="DOMAIN", help="Which kind: the subject's column in the source.")
    ] = None,
    subject_file: Annotated[Path | None, typer.Option(help="Identifiers, one a line; otherwise standard input.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for the erasure of people. Their identifiers are read one a line, from --subject-file or standard input."""
    from sluice.erasure import requests

    settings = Settings.current()
    graph = load(settings, pipeline)
    lines = _from_file(subject_file) if subject_file else _from_input()
    made = requests.receive(settings, graph, lines, identifier)
    if as_json:
        print_json({"request": made.request, "domain": made.domain, "identifiers": len(made.pseudonyms)})
        return
    printed = console()
    printed.print(f"Request {made.request}: identifiers of kind '{made.domain}': {len(made.pseudonyms)}.")
    printed.print(f"The next run of '{pipeline}' carries it out, or: sluice run {pipeline} --stage propagate_deletions")


@erase.command("list")
def list_requests(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List a pipeline's requests, oldest first."""
    settings = Settings.current()
    rows = _requests(settings, known_pipeline(settings, pipeline))
    if as_json:
        print_json({"pipeline": pipeline, "requests": rows})
    elif rows:
        print_rows(rows, ("request", "identifier", "people", "received_at", "done_at"))
    else:
        console().print(f"Nobody has asked to be erased from '{pipeline}'.")


@erase.command("status")
def status_of_requests(as_json: AsJson = False) -> None:
    """Say how many requests wait and how many are done, per pipeline."""
    settings = Settings.current()
    rows = []
    for pipeline in chosen(settings, None):
        found = _requests(settings, pipeline)
        waiting = sum(row["done_at"] is None for row in found)
        rows.append({"pipeline": pipeline, "waiting": waiting, "done": len(found) - waiting})
    if as_json:
        print_json({"pipelines": rows})
    else:
        print_rows(rows, ("pipeline", "waiting", "done"))


def waiting(settings: Settings, pipeline: str) -> int:
    """How many requests are not carried out yet."""
    return sum(row["done_at"] is None for row in _requests(settings, pipeline))


def _requests(settings: Settings, pipeline: str) -> list[dict[str, Any]]:
    from sluice.erasure import requests

    return [
        {
            "request": found.request,
            "identifier": found.domain,
            "people": len(found.pseudonyms),
            "received_at": found.received_at,
            "done_at": found.done_at,
        }
        for found in requests.all_of(settings, pipeline)
    ]


def _from_file(path: Path) -> list[str]:
    try:
        return path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"--subject-file {path}: {why}.") from None


def _from_input() -> list[str]:
    if sys.stdin.isatty():
        print("Write identifiers, one a line; end with Ctrl-D.", file=sys.stderr, flush=True)
    return sys.stdin.read().splitlines()
