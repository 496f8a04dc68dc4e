"""The stage `propagate_deletions`: what is too old leaves, then who asked to be erased."""

from __future__ import annotations

from collections.abc import Collection

from sluice.erasure import aging, propagation
from sluice.erasure.steps.erasing import Follow, NotFollowed
from sluice.errors import SluiceError, StopRequested
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace

STAGE = "propagate_deletions"
_AGING = "aging"


def run_deletion_stage(
    workspace: Workspace, follow: Follow, only: Collection[str] = ()
) -> tuple[list[FlowReport], dict[str, BaseException]]:
    """Both, whatever becomes of the first: a flow that fails there must not keep those in the tables who asked to leave.

    follow: runs the flows above bronze. only: ids of the requests that are carried out; none means all.
    Returns the reports of both, and by flow what failed. Raises what the second alone raises.
    """
    reports: list[FlowReport] = []
    errors: dict[str, BaseException] = {}
    try:
        reports += aging.delete_expired_rows(workspace, follow)
    except StopRequested:
        raise
    except NotFollowed as failed:
        reports, errors = failed.reports, dict(failed.errors)
    except Exception as error:
        reports, errors = [FlowReport(flow=_AGING, layer=STAGE)], {_AGING: error}
    try:
        return [*reports, *propagation.propagate_deletions(workspace, follow, only=only)], errors
    except SluiceError as error:
        if not errors or isinstance(error, StopRequested):
            raise
        return [*reports, FlowReport(flow=STAGE, layer=STAGE)], {STAGE: error, **errors}
