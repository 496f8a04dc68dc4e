"""`sluice release`: de-identified copies with numbers, below SLUICE_RELEASED."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake import releases
from sluice.lake.releases import Release
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings, require_known_pipeline

app = typer.Typer(help="De-identified copies of tables, with numbers, for those who may not read the lake.", no_args_is_help=True)


@app.command()
def make(
    pipeline: PipelineName,
    table: Annotated[list[str], typer.Argument(metavar="TABLE...", help="Tables and materialised views.")],
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the pipeline's lease.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Release tables as they are now: without personal columns, and with pseudonyms that belong to this release alone."""
    from sluice.runs.copies import releasing

    settings = Settings.current()
    made = releasing.release_tables(
        settings, load_declaration_graph(settings, require_known_pipeline(settings, pipeline)), table, wait
    )
    if as_json:
        print_json(_release_as_json(made))
        return
    _print_releases([made], f"Release {made.number} of {pipeline}: {made.folder}")


@app.command("list")
def list_releases(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List a pipeline's releases, their tables, and what was erased from them since."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    found = releases.read_pipeline_releases(records)
    if as_json:
        print_json({"pipeline": pipeline, "releases": [_release_as_json(release) for release in found]})
    elif found:
        _print_releases(found, f"Releases of {pipeline} in {releases.releases_folder(records)}")
    else:
        escaping_console().print(f"Nothing of '{pipeline}' was released yet.")


@app.command()
def remove(
    pipeline: PipelineName,
    number: Annotated[int, typer.Argument(help="The number of the release.")],
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without this, only say what would go.")] = False,
) -> None:
    """Remove a release. Its number is not given again."""
    release = releases.find_release(PipelineRecords.of_known(Settings.current(), pipeline), number)
    if yes:
        releases.remove_release(release)
    names = ", ".join(release.tables)
    escaping_console().print(
        f"Release {number} of {pipeline} ({names}) {'is removed' if yes else 'would be removed: add --yes'}.", soft_wrap=True
    )


def _release_as_json(release: Release) -> dict[str, Any]:
    return {**release.said, "release": release.number, "folder": str(release.folder)}


def _print_releases(found: list[Release], title: str) -> None:
    rows = [
        {
            "release": release.number,
            "at": release.said.get("at"),
            "table": name,
            "rows": "withdrawn" if "withdrawn" in told else told["rows"],
            "erased": sum(one["rows"] for one in told["erased"]) or None,
            "pseudonyms": ", ".join(told["pseudonyms"]),
            "left out": ", ".join(told.get("left_out", ())),
        }
        for release in found
        for name, told in release.tables.items()
    ]
    print_rows(rows, ("release", "at", "table", "rows", "erased", "pseudonyms", "left out"), title=title)
