"""The stages of a pipeline's run: one record each, which the DAG, the job scripts, the command line and the engine read.

A new stage is an entry of `_AFTER_LAYERS`, a job script with its name, and the function that it names. Loads neither Spark nor Airflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sluice.errors import UsageError, nearest_name_hint
from sluice.named_functions import NamedFunction
from sluice.printable import join_names

if TYPE_CHECKING:
    from sluice.declare.pipeline import Pipeline
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace
    from sluice.runs.execution.stages import StageOptions


@dataclass(frozen=True)
class StageGroup:
    """A group of tasks in the DAG. tooltip: its text in the UI."""

    name: str
    tooltip: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The record of a stage. It is a task of the DAG, which runs the script `spark_jobs/<name>.py`.

    title: its name in the UI. documentation: what it does. function: carries it out; it is loaded on the Spark side only, and called with
    the workspace and the stage's name. It raises FlowsFailed and other errors. None if its job script runs it otherwise. group: of tasks, in
    the DAG.

    in_clone: whether a clone runs it; "views": if it brings only views up to date. once_in_backfill: a backfill of many runs does it only in
    the last one. always_recorded: a process that is kept running records it in the run ledger even if nothing changed. moves_erasures: it
    may advance requests to erase people, so its report has their states. registers_names: after it, tables get their names in the catalog,
    if there is one. without_spark: says of a workspace whether the stage can do without Spark now; None if it always needs Spark.
    """

    name: str
    title: str
    documentation: str
    function: NamedFunction[[Workspace, str, StageOptions], list[FlowReport]] | None = None
    group: StageGroup | None = None
    in_clone: Literal["never", "views", "always"] = "never"
    once_in_backfill: bool = False
    always_recorded: bool = False
    moves_erasures: bool = False
    registers_names: bool = False
    without_spark: NamedFunction[[Workspace], bool] | None = None


def _layer_stage(name: str, title: str, documentation: str) -> Stage:
    return Stage(
        name=name,
        title=title,
        documentation=documentation,
        function=NamedFunction("sluice.runs.execution.layers:run_layer_stage"),
        group=_LAYER_GROUP,
        in_clone="views",
    )


_LAYER_GROUP = StageGroup("layers", "From deliveries to what is asked")
_UPKEEP_GROUP = StageGroup("upkeep", "Keep files few, large and needed")

BRONZE = _layer_stage(
    "bronze", "Bronze: new deliveries", "Finds new deliveries in the landing folder and appends all their records to bronze."
)
SILVER = _layer_stage(
    "silver",
    "Silver: clean and typed",
    "Brings the silver tables up to date: typed, valid, one row a key. The rest is quarantined.",
)
GOLD = _layer_stage(
    "gold", "Gold: what is asked", "Recomputes what changes touch of the gold tables, and merges the differences."
)
KNOWN_LAYERS = (BRONZE, SILVER, GOLD)
"""Layers that are described here. A pipeline may have others, which are described by their names."""

LAYERS = replace(
    _layer_stage("layers", "Layers: bronze to gold", "Brings all layers up to date, lowest first, in one Spark session."),
    function=None,
    group=None,  # it would hold only this task
)
"""The task of a pipeline with stages="together". It is no stage itself: its job runs the stages of the layers."""

DELETIONS = Stage(
    name="propagate_deletions",
    title="Propagate deletions",
    documentation="Removes the rows of erased people from all layers.",
    function=NamedFunction("sluice.runs.erasure_jobs:run_deletion_stage"),
    without_spark=NamedFunction("sluice.runs.erasure_jobs:needs_no_spark_to_erase"),
    always_recorded=True,
    moves_erasures=True,
    registers_names=True,
)
OPTIMIZE = Stage(
    name="optimize",
    title="Optimize",
    documentation="Rewrites small files into large ones and lays them out by the declared columns.",
    function=NamedFunction("sluice.runs.execution.upkeep:run_optimize_stage"),
    without_spark=NamedFunction("sluice.runs.execution.upkeep:needs_no_spark_to_optimize"),
    group=_UPKEEP_GROUP,
    in_clone="always",
    once_in_backfill=True,
)
VACUUM = Stage(
    name="vacuum",
    title="Vacuum",
    documentation="Removes data files that no table has needed for the pipeline's retention time.",
    function=NamedFunction("sluice.runs.execution.upkeep:run_vacuum_stage"),
    without_spark=NamedFunction("sluice.runs.execution.upkeep:needs_no_spark_to_vacuum"),
    group=_UPKEEP_GROUP,
    in_clone="always",
    once_in_backfill=True,
    moves_erasures=True,
)
VERIFY = Stage(
    name="verify",
    title="Verify against bronze",
    documentation=(
        "Recomputes one table, the next in turn, from bronze by plain batch code, and fails where a row differs. All tables, if asked."
    ),
    function=NamedFunction("sluice.runs.execution.verifying:run_verify_stage"),
    once_in_backfill=True,
    always_recorded=True,
)

_AFTER_LAYERS = (DELETIONS, OPTIMIZE, VACUUM, VERIFY)
"""In the order in which they run. The last one verifies: if it fails, everything else is done."""

PUBLISHED_AFTER = DELETIONS
"""New versions are announced to other DAGs only after this stage, so that nobody copies rows of erased people."""

VerifyChoice = Literal["next", "all"]
"""What a run asks of the stage `verify`: the next table in turn, or all. It is the value of its job's argument --verify."""

VERIFY_NEXT, VERIFY_ALL = "one table in turn", "all tables"
"""What the trigger form offers for the stage `verify`."""

ERASE = Stage(
    name="erase",
    title="erase and certify",
    documentation=(
        "Removes the rows from every table and every other place, removes the bytes whose retention is over, scans the rest, "
        "and issues certificates."
    ),
)
"""The task of the DAG of erasures, and the work of a command. It is no stage of a pipeline's run."""

CLONE, RELEASE, RESTORE, READMISSION = "clone", "release", "restore", "quarantine"
"""Work of other commands, by its name as a stage in the run ledger. It is no task of a DAG."""


def is_demanded(stage: str, verify: VerifyChoice | tuple[str, ...], optimize_now: Sequence[str]) -> bool:
    """Whether more of this stage is asked for than it does in every run: `verify` of all or of named tables, `optimize` of named."""
    return {VERIFY.name: verify != "next", OPTIMIZE.name: bool(optimize_now)}.get(stage, False)


def stages_after_layers() -> tuple[Stage, ...]:
    """The stages that every pipeline has after its layers, in order."""
    return _AFTER_LAYERS


def names_no_layer_may_have() -> frozenset[str]:
    """Names that the run ledger or a folder of the lake uses otherwise: the stages after the layers, and the work of other commands."""
    return frozenset({*(stage.name for stage in _AFTER_LAYERS), ERASE.name, CLONE, RELEASE, RESTORE, READMISSION})


def describe_layer(name: str) -> Stage:
    """The record of the stage that brings a layer up to date. One that is not described here is described by its name."""
    own = _layer_stage(name, name.replace("_", " ").capitalize(), f"Brings the tables of {name} up to date.")
    return {stage.name: stage for stage in KNOWN_LAYERS}.get(name, own)


def _layer_stages_of_pipeline(pipeline: Pipeline) -> list[Stage]:
    """The stages that bring the pipeline's own layers up to date, lowest first."""
    return [describe_layer(name) for name in pipeline.layer_names]


def all_stages_of_pipeline(pipeline: Pipeline) -> list[Stage]:
    """All of a pipeline's stages, in order."""
    return [*_layer_stages_of_pipeline(pipeline), *stages_after_layers()]


def list_stage_names(pipeline: Pipeline) -> list[str]:
    """The names of a pipeline's stages, in order."""
    return [stage.name for stage in all_stages_of_pipeline(pipeline)]


def tasks_of_pipeline(pipeline: Pipeline) -> list[Stage]:
    """The tasks of a run, in order: one per stage, or one for all layers if the pipeline has stages="together"."""
    return [LAYERS, *stages_after_layers()] if pipeline.stages == "together" else all_stages_of_pipeline(pipeline)


def list_stages_of_task(pipeline: Pipeline, task: str) -> list[str]:
    """The names of the stages that the job of a task runs, in order."""
    return list(pipeline.layer_names) if task == LAYERS.name and pipeline.stages == "together" else [task]


def find_stage_of_pipeline(pipeline: Pipeline, name: str) -> Stage:
    """The stage of that name. Raises UsageError, with the nearest name, if the pipeline has none."""
    for stage in all_stages_of_pipeline(pipeline):
        if stage.name == name:
            return stage
    raise UsageError(f"Pipeline '{pipeline.name}' has no stage '{name}'.{nearest_name_hint(name, list_stage_names(pipeline))}")


def name_backfill_upkeep() -> str:
    """The stages that a backfill of many runs does once, in a sentence."""
    return join_names(stage.name for stage in stages_after_layers() if stage.once_in_backfill)
