"""`sluice verify`: checks whether every table equals a full recompute from bronze."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sluice.cli.printing import AsJson, LeaseWait, OnlyTables, PipelineName, print_json, print_rows
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.pipeline_stages import VERIFY
from sluice.settings import Settings, require_known_pipeline

if TYPE_CHECKING:
    from sluice.verification.verify import VerificationFinding

_WORDS = {True: "equal", False: "differs", None: "see note"}


def verify(
    pipeline: PipelineName,
    table: OnlyTables = None,
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Recompute tables from bronze by plain batch code, and compare them row for row. Writes no table. Exit code 1 if one differs."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    # Spark's modules are imported only now, so that a wrong name is reported at once.
    from sluice.runs import job
    from sluice.runs.execution import clones, verifying
    from sluice.verification.verify import check_verifiable_table

    lake = load_pipeline_lake(settings, pipeline)
    clones.check_stage_in_clone(lake, VERIFY.name)
    for name in table or ():
        check_verifiable_table(lake.graph, name)
    findings: list[VerificationFinding] = []

    def compare(workspace: Any) -> Any:
        return verifying.compare_with_recompute(workspace, tuple(table) if table else "all", findings.append)

    try:
        # Under the lease, like every run, so that nothing changes while it reads one table after the other.
        job.run_under_lease(lake, job.JobRequest(pipeline, VERIFY.name, wait=wait), compare)
    finally:
        _print_findings(pipeline, findings, as_json)


def _print_findings(pipeline: str, findings: list[VerificationFinding], as_json: bool) -> None:
    if as_json:
        print_json({"pipeline": pipeline, "equal": _judge_findings(findings), "tables": [asdict(one) for one in findings]})
        return
    rows = [_finding_as_row(one) for one in findings]
    if rows:
        print_rows(rows, list(rows[0]), "Against a full recompute from bronze")


def _judge_findings(findings: list[VerificationFinding]) -> bool | None:
    """Whether all comparable tables are equal; None if the only differences have a known reason, such as a restore."""
    if not findings or any(one.equal is False for one in findings):
        return False
    differ = any(one.equal is None and (one.missing or one.surplus or one.different or one.unlike) for one in findings)
    return None if differ else True


def _finding_as_row(one: VerificationFinding) -> dict[str, Any]:
    counts = {"missing": one.missing, "too many": one.surplus, "different": one.different}
    return {
        "table": one.table,
        "rows": one.rows,
        "verdict": _WORDS[one.equal],
        **counts,
        "seconds": one.seconds,
        "note": one.note,
    }
