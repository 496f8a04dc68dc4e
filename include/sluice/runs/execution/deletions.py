"""The stage `propagate_deletions`: what is too old leaves, then who asked to be erased."""

from __future__ import annotations

from sluice.erasure import aging, propagation
from sluice.erasure.steps.erasing import NotFollowed
from sluice.errors import SluiceError, StopRequested
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.runs.execution.stages import FlowsFailed, StageOptions, run_layers_above_bronze

_AGING = "aging"


def run_deletion_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Both, whatever becomes of the first: a flow that fails there must not keep those in the tables who asked to leave.

    Raises FlowsFailed with the reports of both where the first failed; otherwise what the second raises.
    """
    workspace = workspace.as_increment()

    def follow() -> list[FlowReport]:
        return run_layers_above_bronze(workspace)

    reports: list[FlowReport] = []
    errors: dict[str, BaseException] = {}
    try:
        reports += aging.delete_expired_rows(workspace, follow)
    except StopRequested:
        raise
    except NotFollowed as failed:
        reports, errors = failed.reports, dict(failed.errors)
    except Exception as error:
        reports, errors = [FlowReport(flow=_AGING, layer=stage)], {_AGING: error}
    try:
        reports += propagation.propagate_deletions(workspace, follow, only=options.requests)
    except SluiceError as error:
        if not errors or isinstance(error, StopRequested):
            raise
        reports, errors = [*reports, FlowReport(flow=stage, layer=stage)], {stage: error, **errors}
    if errors:
        raise FlowsFailed(reports, errors)
    return reports
