"""The stages of a pipeline's DAG as people read them: each is a task that runs a job."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.declare import Pipeline


@dataclass(frozen=True)
class Stage:
    """A task that runs a job. title: what people read in the UI. text: what it does."""

    name: str
    title: str
    text: str


_LAYERS = (
    Stage(
        "bronze", "Bronze: new deliveries", "Finds new deliveries in the landing folder and appends all their records to bronze."
    ),
    Stage(
        "silver",
        "Silver: clean and typed",
        "Brings the silver tables up to date: typed, valid, one row a key. The rest is quarantined.",
    ),
    Stage("gold", "Gold: what is asked", "Recomputes what changes touch of the gold tables, and merges the differences."),
)
DELETIONS = Stage("propagate_deletions", "Propagate deletions", "Takes the rows of erased people out of all layers.")
UPKEEP = (
    Stage("optimize", "Optimize", "Rewrites small files into large ones and lays them out by the declared columns."),
    Stage("vacuum", "Vacuum", "Removes data files that no table has needed for the pipeline's retention time."),
)
VERIFY = Stage(
    "verify",
    "Verify against bronze",
    "Recomputes one table, the next in turn, from bronze by plain batch code, and fails where a row differs. All tables, if asked.",
)


def layer_stages_of_pipeline(pipeline: Pipeline) -> list[Stage]:
    """The stages that bring the pipeline's own layers up to date, in order."""
    described = {stage.name: stage for stage in _LAYERS}
    return [
        described.get(name) or Stage(name, name.replace("_", " ").capitalize(), f"Brings the tables of {name} up to date.")
        for name in pipeline.layer_names
    ]


def all_stages_of_pipeline(pipeline: Pipeline) -> list[Stage]:
    """All of a pipeline's stages, in order."""
    return [*layer_stages_of_pipeline(pipeline), DELETIONS, *UPKEEP, VERIFY]


VERIFY_NEXT, VERIFY_ALL = "one table in turn", "all tables"
"""What the trigger form offers for the last stage."""
