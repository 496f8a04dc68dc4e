"""Copies of tables. `sluice clone` makes them in a development lake; `sluice diff` compares a table with its copy or an earlier version.

`sluice release` makes numbered, de-identified copies below SLUICE_RELEASED.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice import delta_log
from sluice.cli.name_lookup import resolve_table_name
from sluice.cli.printing import AsJson, OnlyTables, PipelineName, TableName, escaping_console, print_json, print_rows
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import SluiceError, UsageError
from sluice.lake import releases, versions
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.lake.releases import Release
from sluice.locations import locate, locate_given
from sluice.pipeline_records import PERSONAL_IN_QUARANTINE, PipelineRecords, name_quarantined_table
from sluice.runs.copies import cloning
from sluice.runs.execution import clones
from sluice.runs.execution.clones import COPY, SHALLOW
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.runs.copies.table_comparison import Comparison

_AGAINST = "A version or date of the same table; or the folder of another lake."


def clone(
    pipeline: PipelineName,
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER", help="The folder of the new lake; it must not have tables of the pipeline.")
    ],
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Refer to the existing files: quick, but with all personal data.")
    ] = False,
    table: OnlyTables = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the lease of the clone.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Clone a pipeline's tables into another lake, by default without personal data. Keys become random stand-ins that still join."""
    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline)
    report, made = cloning.clone_tables(lake, to, SHALLOW if shallow else COPY, table or (), wait)
    if as_json:
        print_json({**report, "clone": made})
        return
    _print_clone_report(pipeline, to, report, made)


def _print_clone_report(pipeline: str, to: str, report: dict[str, Any], made: dict[str, Any]) -> None:
    rows = [
        {"table": flow["flow"], "of version": made["tables"][flow["flow"]]["version"], "rows": flow["rows_out"] or None}
        | {"without": ", ".join(one["left_out"]), "stand-ins": ", ".join(one["stand_ins"])}
        for flow in report["flows"]
        if (one := made["tables"][flow["flow"]])
    ]
    print_rows(rows, ("table", "of version", "rows", "without", "stand-ins"), title=f"{pipeline} in {to}")
    if made["not_cloned"]:
        missing = [{"table": name, "why": why} for name, why in made["not_cloned"].items()]
        print_rows(missing, ("table", "why"), title="Not cloned")
    if made["kind"] == SHALLOW:
        escaping_console().print(
            f"\nThe files stay in {made['from']}: the clone shows personal data, "
            "keeps erased people until it is removed, and breaks when VACUUM removes those files there.",
            soft_wrap=True,
        )
    escaping_console().print(f"\nTo work in it: export SLUICE_LAKE={to}", soft_wrap=True)


@dataclass(frozen=True)
class ComparedSide:
    """A state of a table. version: None for the current one."""

    called: str
    path: str
    version: int | None = None


def diff(
    name: TableName,
    against: Annotated[str, typer.Option("--against", metavar="VERSION|LAKE", help=_AGAINST)],
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Show the keys of this many rows, if they are not personal.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare a table with an earlier version, or with another lake. Exit code 1 if they differ. Prints no values."""
    settings = Settings.current()
    records, wanted, path = resolve_table_name(settings, name)
    graph = load_declaration_graph(settings, records.pipeline)
    there = _find_other_side(records, name, path, against)
    keys, private = _find_comparison_columns(graph, wanted)
    from sluice.lake import batch_sizes
    from sluice.runs.copies import table_comparison
    from sluice.session import start_spark_session

    session = start_spark_session(settings, "sluice diff").newSession()
    batch_sizes.choose_evaluation_settings(session, [path, there.path])
    frames = []
    for side in (ComparedSide("here", path), there):
        reader = session.read.format("delta")
        frames.append((reader if side.version is None else reader.option("versionAsOf", side.version)).load(side.path))
    found = table_comparison.compare_table_states(frames[0], frames[1], keys, private, examples)
    notes = _list_stand_in_notes(records, wanted, against, keys)
    if as_json:
        print_json({"table": name, "against": there.called, "equal": found.same, **_comparison_as_json(found), "notes": notes})
    else:
        _print_comparison(name, there, found, notes)
    if not found.same:
        raise typer.Exit(1)


def _find_other_side(records: PipelineRecords, name: str, path: str, against: str) -> ComparedSide:
    """The state to compare with. Raises UsageError if `against` is neither a version nor a lake with the table."""
    lake = locate_given(against)
    if not lake.is_dir():
        try:
            version = versions.resolve_version(name, path, against)
        except UsageError as error:
            raise UsageError(f"{error} Nor is there a folder '{against}', to be a lake.") from None
        versions.check_version_readable(name, path, version)
        return ComparedSide(f"version {version}", path, version)
    if path.startswith(f"{records.settings.restricted}/"):
        raise UsageError(f"'{name}' is restricted and lies in no lake; compare it with a version of it.")
    other = str(lake.absolute()) + path.removeprefix(records.settings.lake)
    if not delta_log.is_delta_table(other):
        raise SluiceError(f"The lake {against} has no table '{name}'. It would lie in {other}.")
    return ComparedSide(against, other)


def _find_comparison_columns(graph: Graph, wanted: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The columns by which rows are matched, and those whose values are never shown."""
    declared = next((one for one in graph if one.name == (name_quarantined_table(wanted) or wanted)), None)
    if declared and declared.keys and declared.name == wanted:
        return declared.keys, declared.private
    return ("_delivery", "_row"), PERSONAL_IN_QUARANTINE | (declared.private if declared else frozenset())


def _list_stand_in_notes(records: PipelineRecords, wanted: str, against: str, keys: tuple[str, ...]) -> list[str]:
    notes = []
    for lake in (records.settings.lake, against):
        clone = (
            clones.read_clone_description(replace(records, settings=replace(records.settings, lake=str(locate(lake).absolute()))))
            if locate(lake).is_dir()
            else None
        )
        made = (clone or {"tables": {}})["tables"].get(wanted, {})
        standing = [key for key in keys if key in made.get("stand_ins", [])]
        if standing:
            notes.append(
                f"{lake} is a clone with stand-ins in {', '.join(standing)}, by which its rows cannot be matched with others."
            )
    return notes


def _comparison_as_json(found: Comparison) -> dict[str, Any]:
    return {("same" if name == "equal" else name): value for name, value in asdict(found).items()}


def _print_comparison(name: str, there: ComparedSide, found: Comparison, notes: list[str]) -> None:
    printed = escaping_console()
    verdict = "equal" if found.same else "different"
    printed.print(f"{name} here and {there.called} there: {verdict}; by {', '.join(found.keys)}.", soft_wrap=True)
    rows = [{"rows": kind, "number": number} for kind, number in (*found.rows.items(), ("equal", found.equal))]
    if found.repeated:
        rows.append({"rows": "with a key that occurs twice, not compared", "number": found.repeated})
    print_rows(rows, ("rows", "number"))
    if found.columns:
        differing = [{"column": column, "rows": number} for column, number in found.columns.items()]
        print_rows(differing, ("column", "rows"), title="Columns that differ")
    for where, names in (("here", found.only_here), ("there", found.only_there)):
        if names:
            printed.print(f"\nColumns only {where}: {', '.join(names)}", soft_wrap=True)
    for column, (here, other) in found.types.items():
        printed.print(f"\nColumn {column} is {here} here and {other} there, and was not compared.", soft_wrap=True)
    if found.arrival:
        counts = ", ".join(f"{column} of {number:,}" for column, number in found.arrival.items())
        printed.print(f"\nOtherwise equal rows have another origin: {counts}", soft_wrap=True)
    if found.examples:
        print_rows(
            [{"row": one["row"], **one["key"]} for one in found.examples], ("row", *found.examples[0]["key"]), title="Such as"
        )
    for note in notes:
        printed.print(f"\n{note}", soft_wrap=True)


release = typer.Typer(
    help="Numbered, de-identified copies of tables, for people who may not read the lake.", no_args_is_help=True
)


@release.command("make")
def make_release(
    pipeline: PipelineName,
    table: Annotated[list[str], typer.Argument(metavar="TABLE...", help="Tables and materialised views.")],
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the pipeline's lease.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Release the current tables, without personal columns and with pseudonyms of this release alone."""
    from sluice.runs.copies import releasing

    settings = Settings.current()
    made = releasing.release_tables(load_pipeline_lake(settings, pipeline), table, wait)
    if as_json:
        print_json(_release_as_json(made))
        return
    _print_releases([made], f"Release {made.number} of {pipeline}: {made.folder}")


@release.command("list")
def list_releases(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List a pipeline's releases, their tables, and how many rows were erased from them since."""
    records = PipelineRecords.of_known(Settings.current(), pipeline)
    found = releases.read_pipeline_releases(records)
    if as_json:
        print_json({"pipeline": pipeline, "releases": [_release_as_json(release) for release in found]})
    elif found:
        _print_releases(found, f"Releases of {pipeline} in {releases.releases_folder(records)}")
    else:
        escaping_console().print(f"Nothing of '{pipeline}' was released yet.")


@release.command("remove")
def remove_release(
    pipeline: PipelineName,
    number: Annotated[int, typer.Argument(help="The number of the release.")],
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without this, only say what would be removed.")] = False,
) -> None:
    """Remove a release. Its number is not used again."""
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
