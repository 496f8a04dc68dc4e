"""The records of the stages: everything about a stage follows from its entry, and its name stands nowhere else."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sluice import pipeline_stages
from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import DeclarationError, UsageError
from sluice.lake.flow_report import FlowReport
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import Workspace
from sluice.named_functions import NamedFunction
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import BRONZE, CLONE, ERASE, KNOWN_LAYERS, RELEASE, RESTORE, VACUUM, VERIFY, Stage
from sluice.runs.execution import clones, stages
from sluice.runs.execution.stages import StageOptions
from sluice.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "include" / "sluice" / "pipeline_stages.py"
COMMANDS = {
    # What people type, or a field of a record: the same word for something else.
    ("demonstrations/erasure.py", ERASE.name),
    ("cli/erasure/__init__.py", VERIFY.name),
    ("cli/monitoring/status.py", BRONZE.name),
    ("cli/tables/copies.py", CLONE),
    ("cli/tables/copies.py", RELEASE),
    ("lake/releases.py", RELEASE),
    ("erasure/request_record.py", ERASE.name),
}


def described() -> list[Stage]:
    return [*KNOWN_LAYERS, *pipeline_stages.stages_after_layers()]


def texts_of_code(tree: ast.AST) -> Iterator[str]:
    """All texts in the code, docstrings left out."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def names_in_code(path: Path, names: set[str]) -> list[str]:
    found = []
    for text in texts_of_code(ast.parse(path.read_text())):
        found += [text] if text in names else [name for name in re.findall(r"stage (\w+)", text) if name in names]
    return found


def test_the_name_of_a_stage_stands_nowhere_but_in_its_record() -> None:
    code = [
        *(ROOT / "include/sluice").rglob("*.py"),
        *(ROOT / "include/orchestration").rglob("*.py"),
        *(ROOT / "include/demonstrations").rglob("*.py"),
        *(ROOT / "spark_jobs").glob("*.py"),
    ]
    names = {stage.name for stage in described()} | {ERASE.name, CLONE, RELEASE, RESTORE}
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in code
        if path != RECORDS
        for name in names_in_code(path, names)
        if not any(str(path).endswith(file) and name == word for file, word in COMMANDS)
    }
    assert not found, "take it from sluice.pipeline_stages"
    assert names_in_code(RECORDS, names), "the search finds what is there"


def test_no_word_is_excepted_that_is_not_there() -> None:
    unused = [
        (file, word)
        for file, word in COMMANDS
        if not any(
            word in names_in_code(path, {word})
            for path in (ROOT / "include").rglob(file.rpartition("/")[2])
            if str(path).endswith(file)
        )
    ]
    assert not unused


@pytest.mark.parametrize("stage", described(), ids=lambda stage: stage.name)
def test_each_record_names_a_function_and_a_job_script_that_are_there(stage: Stage) -> None:
    assert stage.function is not None
    assert list(inspect.signature(stage.function.load()).parameters) == ["workspace", "stage", "options"]
    assert "run_stage_script(__file__)" in (ROOT / "spark_jobs" / f"{stage.name}.py").read_text()


def test_the_page_of_the_dag_has_each_stage_in_its_group_in_order() -> None:
    told, group = [], ""
    for line in (ROOT / "docs/dag.md").read_text().splitlines():
        if cells := re.fullmatch(r"\| (\w*) ?\| (`\w+`(?:, `\w+`)*) \|.*", line):
            group = cells[1]
            told += [(group, name) for name in re.findall(r"`(\w+)`", cells[2])]
    assert told[: len(described())] == [(stage.group.name if stage.group else "", stage.name) for stage in described()]


def sweep_the_floor(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    return [FlowReport(flow=",".join(options.tables), layer=stage)]


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage that is added by its entry alone."""
    named = NamedFunction[[Workspace, str, StageOptions], list[FlowReport]](f"{__name__}:sweep_the_floor")
    stage = replace(VACUUM, name="sweep", title="Sweep", documentation="Sweeps.", function=named)
    monkeypatch.setattr(pipeline_stages, "_AFTER_LAYERS", (*pipeline_stages._AFTER_LAYERS, stage))
    return stage


@pytest.fixture
def gym(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Settings, Graph]:
    settings = replace(Settings.current(), root=ROOT, lake=str(tmp_path / "lake"), restricted=tmp_path / "restricted")
    return settings, load_declaration_graph(settings, "gym")


def test_a_stage_that_is_added_by_its_entry_is_run(swept: Stage, gym: tuple[Settings, Graph]) -> None:
    settings, graph = gym
    assert pipeline_stages.find_stage_of_pipeline(graph.pipeline, "sweep") is swept
    workspace = Workspace(settings, graph, cast(Any, None), "run")
    (report,) = stages.run_pipeline_stage(workspace, "sweep", StageOptions(("visit",)))
    assert (report.flow, report.layer) == ("visit", "sweep")


def test_a_stage_that_is_added_by_its_entry_is_told_where_stages_are_told(swept: Stage, gym: tuple[Settings, Graph]) -> None:
    pipeline = gym[1].pipeline
    assert pipeline_stages.list_stage_names(pipeline) == [*(stage.name for stage in described()[:-1]), "sweep"]
    once = [stage.name for stage in pipeline_stages.stages_after_layers() if stage.once_in_backfill]
    assert pipeline_stages.name_backfill_upkeep() == f"{', '.join(once[:-1])} and sweep"
    assert pipeline_stages.find_stage_of_pipeline(pipeline, "sweep") is swept
    with pytest.raises(UsageError, match=r"'gym' has no stage 'sweeep'\. Did you mean 'sweep'"):
        pipeline_stages.find_stage_of_pipeline(pipeline, "sweeep")


def test_a_stage_that_is_added_by_its_entry_is_run_in_clones_as_it_says(
    swept: Stage, gym: tuple[Settings, Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, graph = gym
    told = clones.clone_description_path(PipelineRecords(settings, "gym"))
    told.parent.mkdir(parents=True)
    told.write_text('{"from": "elsewhere", "restricted": "there", "tables": {}}')
    clones.check_stage_in_clone(PipelineLake(settings, graph), "sweep")
    monkeypatch.setattr(pipeline_stages, "_AFTER_LAYERS", (replace(swept, in_clone="never"),))
    with pytest.raises(UsageError, match="is a clone of elsewhere"):
        clones.check_stage_in_clone(PipelineLake(settings, graph), "sweep")


def test_a_layer_that_is_not_described_is_described_by_its_name() -> None:
    found = pipeline_stages.describe_layer("raw_copies")
    assert (found.title, found.documentation) == ("Raw copies", "Brings the tables of raw_copies up to date.")
    assert (found.function, found.group, found.in_clone) == (KNOWN_LAYERS[0].function, KNOWN_LAYERS[0].group, "views")


def test_stages_together_are_one_task_of_the_layers_and_the_stages_stay_as_they_are(gym: tuple[Settings, Graph]) -> None:
    apart = gym[1].pipeline
    together = replace(apart, stages="together")
    after = [stage.name for stage in pipeline_stages.stages_after_layers()]
    assert [task.name for task in pipeline_stages.tasks_of_pipeline(apart)] == pipeline_stages.list_stage_names(apart)
    assert [task.name for task in pipeline_stages.tasks_of_pipeline(together)] == ["layers", *after]
    assert pipeline_stages.list_stage_names(together) == pipeline_stages.list_stage_names(apart)
    assert pipeline_stages.list_stages_of_task(together, "layers") == list(apart.layer_names)
    assert pipeline_stages.list_stages_of_task(together, "vacuum") == ["vacuum"]
    for task in pipeline_stages.tasks_of_pipeline(together):
        assert "run_stage_script(__file__)" in (ROOT / "spark_jobs" / f"{task.name}.py").read_text()


def test_a_layer_may_be_called_like_the_task_of_all(gym: tuple[Settings, Graph]) -> None:
    pipeline = replace(gym[1].pipeline, layers=("shop.raw", "shop.layers"))
    assert pipeline_stages.list_stages_of_task(pipeline, "layers") == ["layers"]
    assert pipeline_stages.list_stages_of_task(replace(pipeline, stages="together"), "layers") == ["raw", "layers"]
    assert pipeline_stages.find_stage_of_pipeline(pipeline, "layers").title == "Layers", "not that of the task of all"


@pytest.mark.parametrize("name", [ERASE.name, CLONE, "sliver", "layers"])
def test_what_is_no_stage_of_the_pipeline_has_no_record(gym: tuple[Settings, Graph], name: str) -> None:
    with pytest.raises(UsageError, match=f"'gym' has no stage '{name}'"):
        pipeline_stages.find_stage_of_pipeline(gym[1].pipeline, name)


def test_stages_are_apart_or_together(gym: tuple[Settings, Graph]) -> None:
    with pytest.raises(DeclarationError, match=r"Pipeline 'gym': stages is 'apart' or 'together', not 'one'\."):
        replace(gym[1].pipeline, stages=cast(Any, "one"))
