"""A clone's description of itself, and what runs in a clone: views, as far as its columns allow. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.durable_files import load_kept_object
from sluice.errors import UsageError
from sluice.lake.flow_report import FlowReport
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import Workspace
from sluice.locations import Location, locate
from sluice.own_records import CLONE
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import Stage, all_stages_of_pipeline

if TYPE_CHECKING:
    from sluice.runs.execution.parallel_flows import Flow

COPY, SHALLOW = "copy", "shallow"
_REMEDY = "Put a copy of it back, or make the clone again: remove its lake, then sluice clone"
_NO_SUCH_COLUMN = "UNRESOLVED_COLUMN"


def read_clone_description(records: PipelineRecords) -> dict[str, Any] | None:
    """Returns what the settings' lake was cloned from, or None if it is not a clone."""
    try:
        return load_kept_object(clone_description_path(records), "what this clone was made from", _REMEDY)
    except FileNotFoundError:
        return None


def clone_description_path(records: PipelineRecords) -> Location:
    """Returns the file with a clone's description of itself."""
    return locate(records.bookkeeping(CLONE.name))


def refuse_in_clone(records: PipelineRecords, remedy: str) -> None:
    """Raises UsageError if the settings' lake is a clone. remedy: what to do instead."""
    clone = read_clone_description(records)
    if clone is not None:
        raise UsageError(f"The lake {records.settings.lake} is a clone of {clone['from']}. {remedy}")


def check_stage_in_clone(lake: PipelineLake, stage: str) -> None:
    """Raises UsageError for a stage that does nothing in a clone: it has no deliveries, and bronze and silver stay as they were cloned."""
    clone = read_clone_description(lake.records)
    if clone is None:
        return
    able = [one.name for one in all_stages_of_pipeline(lake.graph.pipeline) if _is_run_in_clones(lake.graph, one)]
    if stage not in able:
        raise UsageError(
            f"The lake {lake.settings.lake} is a clone of {clone['from']}: what was delivered is not in it, and its tables stay as they were "
            f"cloned; only views are brought up to date. Run: sluice run {lake.graph.pipeline.name} --stage {able[0]}"
        )
    hidden = [
        one.name
        for one in lake.graph.datasets.values()
        if one.restricted and (stage not in lake.graph.pipeline.layer_names or lake.graph.layer(one) == stage)
    ]
    refuse_shared_restricted_tables(lake, hidden)


def refuse_shared_restricted_tables(lake: PipelineLake, names: Sequence[str]) -> None:
    """Raises UsageError in a clone whose restricted tables would be those of the lake that it was cloned from.

    names: declared tables that would be written. The lease of a clone does not keep others from them.
    """
    clone = read_clone_description(lake.records)
    hidden = [name for name in names if lake.graph.datasets[name].restricted]
    if clone is not None and hidden and str(lake.settings.restricted) == clone["restricted"]:
        raise UsageError(
            f"'{hidden[0]}' is restricted, and would be written where {clone['from']} has it. "
            f"Set SLUICE_RESTRICTED to a folder of the clone's own."
        )


def find_left_out_columns(records: PipelineRecords) -> frozenset[str]:
    """Returns the names of columns that a clone leaves out of some table. None if the lake is not a clone."""
    clone = read_clone_description(records) or {"tables": {}}
    return frozenset(name for table in clone["tables"].values() for name in table["left_out"])


def _is_run_in_clones(graph: Graph, stage: Stage) -> bool:
    if stage.in_clone != "views":
        return stage.in_clone == "always"
    declared = [one for one in graph if graph.layer(one) == stage.name]
    return bool(declared) and all(one.folded_source is None for one in declared)


def adapt_view_flow_to_clone(workspace: Workspace, flow: Flow) -> Flow:
    """Returns a view's flow. In a clone, a view that names a left-out column stays as it was cloned, and its report says so."""
    gone = find_left_out_columns(workspace.records)
    if not gone:
        return flow

    def as_far_as_possible(workspace: Workspace, report: FlowReport) -> None:
        from pyspark.errors import AnalysisException  # imported here: the rest of this module needs no Spark

        try:
            flow(workspace, report)
        except AnalysisException as error:
            named = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "").rpartition(".")[2]
            if not (error.getCondition() or "").startswith(_NO_SUCH_COLUMN) or named not in gone:
                raise
            report.notes.append(f"as it was cloned: it needs the column '{named}', which the clone leaves out")

    return as_far_as_possible


def adapt_stream_flow_to_clone(workspace: Workspace, flow: Flow) -> Flow:
    """Returns a stream's flow. A clone has no checkpoint to resume from."""
    if read_clone_description(workspace.records) is None:
        return flow
    return lambda _, report: report.notes.append("a clone leaves what streams write as it was cloned")
