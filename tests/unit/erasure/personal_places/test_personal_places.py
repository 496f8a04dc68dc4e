"""The list of the places where personal data can be: an entry is all that a place needs, and what no entry claims is not passed over."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import canary, steps
from sluice.erasure.personal_places import claims, registry
from sluice.erasure.personal_places.place import (
    CanaryMarks,
    CertificateException,
    ControlFinding,
    ControlStore,
    PersonalPlace,
)
from sluice.erasure.proof import search_scope
from sluice.lake.pipeline_lake import PipelineLake
from sluice.named_functions import NamedFunction
from sluice.own_records import OWN_FOLDER, OWN_RECORDS
from sluice.pipeline_records import PipelineRecords
from sluice.root_folders import LAKE
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

DOCS = Path(__file__).parents[4] / "docs" / "erasure.md"


def test_names_of_places_and_of_stores_are_each_the_only_one() -> None:
    stores = list(registry.list_control_stores())
    for names in (
        [place.name for place in registry.PERSONAL_PLACES],
        [store.folder for store in stores],
        [finding.title for store in stores for finding in store.findings],
    ):
        assert len(names) == len(set(names)) > 5


def test_the_documentation_has_the_steps_of_the_list_in_its_order() -> None:
    steps = [f"| `{place.name}` | {place.description} |" for place in registry.PERSONAL_PLACES if place.erase]
    assert "\n".join(steps) in DOCS.read_text(encoding="utf-8")


@pytest.fixture
def house() -> Graph:
    pipeline = Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze",))
    return build_declaration_graph(pipeline, (Source(name="notes", pattern="*.jsonl", schema="who STRING", comment="Notes."),))


def test_the_checkpoints_of_a_flow_are_claimed_whatever_its_layer_is_called(settings: Settings) -> None:
    pipeline = Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.raw",))
    graph = build_declaration_graph(pipeline, (Source(name="notes", comment="Notes."),))
    flow, folder = PipelineBooks(settings, graph).flow_checkpoints(graph["notes"])
    claim = claims.claim_checkpoints(PipelineLake(settings, graph))
    assert claim(LAKE.name, Path(folder)) and Path(folder).name == flow == "bronze_notes"
    assert not claim(LAKE.name, Path(folder).with_name("raw_notes"))


def test_each_of_sluice_s_own_records_is_claimed_by_its_name_and_what_it_keeps_by_table_entry_by_entry(
    settings: Settings, house: Graph
) -> None:
    folder = Path(settings.lake) / "house" / OWN_FOLDER
    for one in OWN_RECORDS:
        (folder / one.name / "of_no_table").mkdir(parents=True)
    (folder / "by_hand").mkdir()
    found = {path.path for path in search_scope.find_undeclared_paths(PipelineLake(settings, house))}
    by_table = {f"{OWN_FOLDER}/{one.name}/of_no_table" for one in OWN_RECORDS if one.by_table}
    assert found == {f"{OWN_FOLDER}/by_hand", *by_table} and len(by_table) == 4


def _plant_letter(path: Path, marks: CanaryMarks, _: str) -> None:
    path.mkdir(parents=True)
    (path / "letter.txt").write_text(f"Dear {marks.text},\n")


def test_a_place_that_is_added_is_planted_claimed_and_named_by_its_entry_and_its_module_alone(
    settings: Settings, house: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Path(settings.lake) / "house" / "letters" / "1"
    module = SimpleNamespace(
        burn_letters=lambda erasing: None,
        burn_canary=lambda workspace, place: 0,
        plant_letter=_plant_letter,
        claim_letters=lambda lake: lambda root, path: path == there,
    )
    module_name = f"{steps.__name__}.letters"
    monkeypatch.setitem(sys.modules, module_name, cast(ModuleType, module))
    there.mkdir(parents=True)
    (lost,) = search_scope.find_undeclared_paths(PipelineLake(settings, house))
    assert (lost.root, lost.path) == ("lake", "letters/1"), "what no entry claims"
    letters = PersonalPlace(
        "letters",
        "letters are burnt",
        NamedFunction(f"{module_name}:burn_letters"),
        controls=(
            ControlStore(
                "letters",
                "letters",
                NamedFunction(f"{module_name}:plant_letter"),
                NamedFunction(f"{module_name}:burn_canary"),
                (ControlFinding("letter", "", "text"),),
            ),
        ),
        claims=NamedFunction(f"{module_name}:claim_letters"),
        exceptions=lambda lake: [CertificateException("copies of letters", None)],
    )
    everywhere = (*registry.PERSONAL_PLACES, letters)
    for module in (registry, search_scope):
        monkeypatch.setattr(module, "PERSONAL_PLACES", everywhere)
    found = canary.scan_fresh_canary(PipelineRecords(settings, "house"))
    assert found["letter"] and all(found.values())
    assert search_scope.find_undeclared_paths(PipelineLake(settings, house)) == []
    assert {"what": "copies of letters", "until": None} in search_scope.list_unreachable_places(PipelineLake(settings, house))
    blind = replace(letters, controls=(replace(letters.controls[0], findings=(ControlFinding("letter", "", "sqlite"),)),))
    monkeypatch.setattr(registry, "PERSONAL_PLACES", (blind,))
    assert canary.scan_fresh_canary(PipelineRecords(settings, "house")) == {"letter": 0}
