"""What a stage is asked for besides its mode: the arguments, the names, and when it is done although nothing is new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import UsageError
from sluice.pipeline_stages import VerifyChoice
from sluice.runs.execution import stages
from sluice.runs.execution.stages import StageOptions
from sluice.runs.job import JobRequest
from sluice.runs.script import build_stage_parser, read_stage_request
from sluice.settings import Settings


def test_the_jobs_argument_says_which_tables() -> None:
    parsed = build_stage_parser("optimize").parse_args(["--pipeline", "gym", "--optimize-now", "heart_rate, visits"])
    assert read_stage_request(parsed).options == StageOptions(optimize_now=("heart_rate", "visits"))
    assert read_stage_request(build_stage_parser("optimize").parse_args(["--pipeline", "gym"])).options == StageOptions()


@pytest.mark.parametrize(("given", "wanted"), [([], "next"), (["--verify", "next"], "next"), (["--verify", "all"], "all")])
def test_the_jobs_argument_says_what_is_verified(given: list[str], wanted: VerifyChoice) -> None:
    parsed = build_stage_parser("verify").parse_args(["--pipeline", "gym", *given])
    asked = replace(read_stage_request(parsed), stage="verify")
    assert asked.options == StageOptions(verify=wanted)
    assert asked.takes_what_is_new is (wanted == "next")


def test_a_table_that_is_not_there_is_refused_with_the_nearest(settings: Settings) -> None:
    graph = load_declaration_graph(settings, "gym")
    stages.check_tables_to_optimize(graph, ["heart_rate"])
    with pytest.raises(UsageError, match="heart_rate"):
        stages.check_tables_to_optimize(graph, ["heart_rat"])


@pytest.mark.parametrize(("stage", "new"), [("bronze", True), ("vacuum", True), ("optimize", False)])
def test_only_the_stage_that_lays_tables_out_does_more_than_what_is_new(stage: str, new: bool) -> None:
    assert JobRequest("gym", stage, options=StageOptions(optimize_now=("heart_rate",))).takes_what_is_new is new
    assert JobRequest("gym", stage).takes_what_is_new
