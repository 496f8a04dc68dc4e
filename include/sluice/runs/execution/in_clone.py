"""What flows do in a clone: a view goes as far as the columns that are there allow, a stream's table stays as it was cloned."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import AnalysisException

from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.runs.execution import clones

Flow = Callable[[Workspace, FlowReport], None]
_NO_SUCH_COLUMN = "UNRESOLVED_COLUMN"


def adapt_view_flow_to_clone(workspace: Workspace, flow: Flow) -> Flow:
    """A view's flow. In a clone a view that names a column which the clone leaves out stays as it was cloned, and says so."""
    gone = clones.find_left_out_columns(workspace.settings, workspace.pipeline)
    if not gone:
        return flow

    def as_far_as_possible(workspace: Workspace, report: FlowReport) -> None:
        try:
            flow(workspace, report)
        except AnalysisException as error:
            named = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "").rpartition(".")[2]
            if not (error.getCondition() or "").startswith(_NO_SUCH_COLUMN) or named not in gone:
                raise
            report.notes.append(f"as it was cloned: it needs the column '{named}', which the clone leaves out")

    return as_far_as_possible


def adapt_stream_flow_to_clone(workspace: Workspace, flow: Flow) -> Flow:
    """A stream's flow. A clone has no checkpoint that it could go on from."""
    if clones.read_clone_description(workspace.settings, workspace.pipeline) is None:
        return flow
    return lambda _, report: report.notes.append("a clone leaves what streams write as it was cloned")
