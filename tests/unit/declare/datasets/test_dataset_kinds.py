"""A kind of declaration is one record: what it names is there, and a kind that nobody else knows runs, is planned, measured, checked and tested."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import pytest
from deltalake import DeltaTable
from tests.conftest import Lakehouse

from sluice import delta_log
from sluice.declare import KafkaSource, Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets import materialized_views
from sluice.declare.datasets.computed import TemporaryView, View
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.declaration import Declaration
from sluice.declare.expansion import DeclarationsByKind
from sluice.declare.kinds import CHANGE_TARGET, FILE_SOURCE, KINDS, TABLE, DatasetKind, FlowKind, SourceKind
from sluice.ingest.deliveries.arrivals import Look, SourceChanges, find_source_changes
from sluice.ingest.deliveries.discovery import group_into_micro_batches
from sluice.ingest.deliveries.known_files import KnownFiles, read_known_files
from sluice.lake import table_frames
from sluice.lake.flow_report import FlowReport
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import Workspace
from sluice.named_functions import NamedFunction
from sluice.runs.execution.parallel_flows import Flow
from sluice.runs.planning import plan, transforms
from sluice.runs.planning.steps import NOTHING, RECOMPUTE, PlannedStep
from sluice.runs.planning.transforms import Examination
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.runs.status.lag import FlowLag
from sluice.testing import run
from sluice.testing.running import TrialRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sluice.settings import Settings

WHOLE_COPY = FlowKind(
    name="whole copy",
    label="Copy",
    order=2,
    choose_flow=NamedFunction(f"{__name__}:choose_copy_flow"),
    plan_step=NamedFunction(f"{__name__}:plan_copy"),
    measure_lag=NamedFunction(f"{__name__}:measure_copy_lag"),
    measure_lag_anew=NamedFunction("sluice.runs.status.lag:measure_lag_of_all_inputs"),
    read_standing=NamedFunction(f"{__name__}:measure_copy_lag"),
    find_end_of_quiet=NamedFunction("sluice.runs.execution.quiet_marking:find_end_of_quiet_dataset"),
    examine_declaration=NamedFunction(f"{__name__}:examine_copy"),
    make_test_rows=NamedFunction(f"{__name__}:make_copy_rows"),
)


@dataclass(frozen=True, kw_only=True)
class WholeCopy(Dataset[Any]):
    """Written anew by every run that finds another version of its input."""

    kind: ClassVar[FlowKind] = WHOLE_COPY


def choose_copy_flow(workspace: Workspace, copy: WholeCopy, chosen: bool) -> Flow:
    def write_copy(inside: Workspace, report: FlowReport) -> None:
        rows = copy(table_frames.read_table(inside.session, inside.path(copy.reads[0])))
        rows.write.format("delta").mode("overwrite").save(inside.path(copy.name))
        report.notes.append(f"copied, {'named' if chosen else 'not named'}")

    return write_copy


def measure_copy_lag(books: PipelineBooks, copy: WholeCopy) -> FlowLag:
    behind = not delta_log.is_delta_table(books.path(copy.name))
    return FlowLag(table=copy.name, layer=books.graph.layer(copy), name=copy.name, versions=int(behind))


def plan_copy(
    books: PipelineBooks, copy: WholeCopy, flow: FlowLag, before: Sequence[PlannedStep], refreshed: bool
) -> PlannedStep:
    return PlannedStep(copy.name, flow.layer, RECOMPUTE if flow.waits else NOTHING, "a copy")


def examine_copy(examination: Examination, copy: WholeCopy) -> StructType:
    return copy(examination.make_empty_view_input(copy.reads[0])).schema


def make_copy_rows(running: TrialRun, copy: WholeCopy) -> DataFrame:
    return copy(running.read_given_rows(copy.reads[0], technical=False))


ORDERS = Source(name="orders", schema="id BIGINT, city STRING")


def copy_cities(orders: DataFrame) -> DataFrame:
    """The cities."""
    return orders.select("id", "city")


cities = WholeCopy(name="cities", function=copy_cities, reads=("orders",), keys=("id",))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_compared_and_copied_by_what_it_says(kind: DatasetKind) -> None:
    assert pickle.loads(pickle.dumps(kind)) == kind and len({kind, replace(kind), replace(kind, label="Other")}) == 2


def test_a_kind_with_a_flow_answers_whatever_is_asked_of_flows() -> None:
    said = {field.name: getattr(WHOLE_COPY, field.name) for field in fields(WHOLE_COPY)}
    asked = ("plan_step", "measure_lag", "measure_lag_anew", "read_standing", "find_end_of_quiet", "examine_declaration")
    for lacking in asked:
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{lacking}'"):
            FlowKind(**{name: value for name, value in said.items() if name != lacking})


def test_what_a_kind_names_no_function_for_is_told() -> None:
    told = str(CHANGE_TARGET.lacking_function_error("preview_rows"))
    assert told == "A change target has no function for 'preview_rows': name one in its DatasetKind."


MAILBOX = replace(
    FILE_SOURCE,
    name="mailbox",
    in_files=False,
    find_arrivals=NamedFunction(f"{__name__}:find_letters"),
    group_deliveries=NamedFunction(f"{__name__}:group_all"),
    count_waiting=NamedFunction(f"{__name__}:count_letters"),
)


@dataclass(frozen=True, kw_only=True)
class Mailbox(Source):
    """A kind of source that the engine does not know."""

    kind: ClassVar[SourceKind] = MAILBOX


def find_letters(source: Mailbox, landing: Path, known: KnownFiles, look: Look) -> SourceChanges:
    return SourceChanges(gone=[f"{source.name} of yesterday"])


def group_all(source: Mailbox, rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [list(rows)]


def count_letters(files: Sequence[str]) -> int:
    return 3 * len(files)


def test_a_kind_of_source_says_itself_what_came_and_how_it_is_taken(tmp_path: Path) -> None:
    post = Mailbox(name="post", comment="Letters.", max_files_per_trigger=1)
    known = read_known_files(str(tmp_path / "deliveries"), str(tmp_path / "outcomes"))
    assert find_source_changes(post, tmp_path, known, Look()).gone == ["post of yesterday"]
    rows = [{"file": "a", "size": 1}, {"file": "b", "size": 1}]
    assert group_into_micro_batches(post, rows) == [rows]
    assert group_into_micro_batches(Source(name="files", max_files_per_trigger=1), rows) == [rows[:1], rows[1:]]
    assert post.kind.count_waiting(["a", "b"]) == 6


def declare_one_of_each_kind() -> list[Any]:
    """A declaration of every kind that there is."""

    def pass_on(frame: DataFrame) -> DataFrame:
        return frame

    made: dict[str, Any] = {"name": "sample", "reads": ("orders",), "function": pass_on}
    return [
        ORDERS,
        KafkaSource(name="topic", servers="broker:9092", topics=("orders",)),
        Table(**made, keys=("id",)),
        Windowed(**made, keys=("id",), output="complete"),
        MaterializedView(**made, keys=("id",)),
        View(**made),
        TemporaryView(**made),
        AutoCdc(name="sample", reads=("orders",), keys=("id",), sequence_by=("at",)),
    ]


def test_every_kind_answers_whatever_the_engine_asks() -> None:
    """A fact that a kind lacked would be an error only in the run that asks it of such a declaration."""
    declared = declare_one_of_each_kind()
    assert {id(one.kind) for one in declared} == {id(kind) for kind in KINDS}
    facts = {name for name in (*Declaration.__annotations__, *vars(Declaration)) if not name.startswith("_")}
    for one in declared:
        assert isinstance(one, Declaration), one.kind.name
        assert all(hasattr(one, fact) for fact in facts), [fact for fact in facts if not hasattr(one, fact)]
        assert one.name_flow("layer") and one.find_layer_module((one.module,)) == one.module
        assert one.over(one.reads) is one


def test_what_a_kind_does_not_say_is_no_field_of_it() -> None:
    """Else what all kinds answer would stand in every repr and fingerprint."""
    assert "on_erasure" not in repr(ORDERS) and "also_subjects" not in repr(cities) and "folded_source" not in repr(ORDERS)


def test_each_kind_is_selected_once_and_two_of_one_name_are_both_there() -> None:
    declared = declare_one_of_each_kind()
    by_kind = DeclarationsByKind([*declared, *declared])
    found = (
        by_kind.sources,
        by_kind.datasets,
        by_kind.tables,
        by_kind.views,
        by_kind.streams,
        by_kind.computed,
        by_kind.unstored,
    )
    assert [len(one) for one in found] == [4, 6, 2, 2, 2, 2, 2]
    assert [item.kind.name for item in by_kind.queries[:4]] == ["table", "windowed stream", "materialized view", "computed view"]


def test_a_kind_is_no_field_of_a_declaration() -> None:
    """Fingerprints and comparisons are of fields, and tables that are there must go on as they are."""
    assert "kind=" not in repr(ORDERS) and "kind=" not in repr(cities)
    assert ORDERS.kind is not TABLE


@pytest.mark.spark
def test_a_new_kind_is_one_entry(settings: Settings, spark: SparkSession) -> None:
    pipeline = Pipeline(name="shop", description="x", owner="x", layers=("pipelines.shop.bronze", __name__))
    lake = Lakehouse(settings, spark, build_declaration_graph(pipeline, [ORDERS, cities]))
    books = PipelineBooks(settings, lake.graph)
    found = transforms.examine_transforms(spark, PipelineLake(settings, lake.graph))
    assert (found.mistakes, found.notes) == ([], [])
    (step,) = (one for one in plan.plan_run(PipelineLake(settings, lake.graph)).steps if one.table == "cities")
    assert (step.does, step.why) == (RECOMPUTE, "a copy")
    lake.land("orders/one.json", '{"id": 1, "city": "Rome"}\n{"id": 2, "city": "Oslo"}\n')
    assert lake.run()["cities"].notes == ["copied, named"]
    stored = DeltaTable(books.path("cities")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["city"]) for row in stored) == [(1, "Rome"), (2, "Oslo")]
    assert [flow.waits for flow in lag.measure_pipeline_lag(books)] == [False, False]
    assert run(cities, orders=[{"id": 3, "city": "Bern"}], using=[ORDERS]).rows == [{"id": 3, "city": "Bern"}]


@pytest.mark.spark
def test_what_a_new_kind_gives_wrong_is_told_under_its_label(settings: Settings, spark: SparkSession) -> None:
    wrong = WholeCopy(
        name="wrong", function=lambda orders: orders.select("town"), reads=("orders",), keys=("id",), declared_in=__name__
    )
    pipeline = Pipeline(name="shop", description="x", owner="x", layers=("pipelines.shop.bronze", __name__))
    (mistake,) = transforms.examine_transforms(
        spark, PipelineLake(settings, build_declaration_graph(pipeline, [ORDERS, wrong]))
    ).mistakes
    assert mistake.startswith("Copy 'wrong': ") and "town" in mistake


def test_each_value_of_recompute_has_its_rule() -> None:
    assert set(materialized_views.RECOMPUTE_RULES) == set(get_args(materialized_views.Recompute))
