"""The root folders are declared once: nobody lists them beside the record, and what lists them for readers agrees with it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
from tests.commands import use_roots_of

from sluice.root_folders import ROOT_FOLDERS, ROOTS_IN_FILE, SCANNED_ROOTS, RootFolder, build_root_variables
from sluice.runs import failures
from sluice.settings import Settings, build_root_settings

CHECKOUT = Path(__file__).parents[2]
NAMES = {root.name for root in ROOT_FOLDERS}
LISTED_WITH_REASON = {
    "include/demonstrations/tour.py": "a tour empties what tours leave: they land and run, but release nothing and erase nobody",
    "include/sluice/lake/restricted_tables.py": "a table moves between the lake and the restricted tables, whichever roots there are",
}
"""The files that name some root folders one by one, and why no property selects them."""
OTHER_LOCATIONS = {"root", "secrets_given"}
"""The fields of the settings that are locations of other kinds: the checkout, and a folder of this process alone."""


def _find_named_roots(item: ast.AST) -> set[str]:
    """The root folders that an item of a list names: by its text, or anywhere by an attribute of the settings or the record's name."""
    found = (
        {item.value.removeprefix("SLUICE_").lower()} if isinstance(item, ast.Constant) and isinstance(item.value, str) else set()
    )
    for one in ast.walk(item):
        if isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Name) and one.id.isupper():
            found.add(one.id.lower())
    return found & NAMES


def _list_items(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Dict):
        return [one for one in node.keys if one is not None]
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []


def _find_lists_by_hand(text: str) -> Iterator[str]:
    """Literals of which at least two items name a root folder each, and not the same."""
    for node in ast.walk(ast.parse(text)):
        named = [roots for item in _list_items(node) if len(roots := _find_named_roots(item)) == 1]
        if len(set().union(*named)) > 1:
            yield ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    [
        "('lake', 'vault')",
        "[locate(settings.lake) / name, settings.restricted / name]",
        "{LAKE: 1, 'SLUICE_TRUTH': 2}",
        "for root in (f'{settings.lake}/gym', str(settings.released)): pass",
    ],
)
def test_a_list_by_hand_is_found(text: str) -> None:
    assert [*_find_lists_by_hand(text)] != []


def test_what_lists_other_things_is_no_list_by_hand() -> None:
    assert [*_find_lists_by_hand("(settings.lake, name); ('the lake', 'the vault'); (root, LAKE); f(lake, vault)")] == []


def test_nobody_lists_root_folders_beside_the_record() -> None:
    files = [path for folder in ("include", "benchmarks") for path in (CHECKOUT / folder).rglob("*.py")]
    found = {
        str(path.relative_to(CHECKOUT)): listed
        for path in files
        if path.name != "root_folders.py" and (listed := [*_find_lists_by_hand(path.read_text())])
    }
    assert found.keys() == LISTED_WITH_REASON.keys(), found


def test_each_root_folder_is_a_field_of_the_settings_and_each_location_there_is_a_root_folder() -> None:
    located = {one.name for one in fields(Settings) if "Path" in str(one.type) or "Location" in str(one.type)} - OTHER_LOCATIONS
    assert {*located, "lake"} == NAMES
    # In code one may leave out what has a default; an environment's file says all but what has one beside the truth.
    required = {one.name for one in fields(Settings) if one.default is MISSING}
    assert required & NAMES <= {one.name for one in ROOTS_IN_FILE}


def test_every_process_is_told_of_each_and_tests_and_demonstrations_have_their_own(settings: Settings, tmp_path: Path) -> None:
    told = settings.driver_environment()
    assert {one.variable for one in ROOT_FOLDERS} <= told.keys()
    moved = replace(settings, **build_root_settings(tmp_path / "own"))
    assert moved.root_variables == build_root_variables(tmp_path / "own")
    assert all(Path(place).parent == tmp_path / "own" for place in moved.root_variables.values())


def test_a_full_disk_is_looked_for_below_each_root_that_runs_write(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    use_roots_of(monkeypatch, settings)
    written = [path for path in failures._list_written_folders() if path.is_relative_to(settings.landing.parent)]
    assert {path.name for path in written} == {"lake", "landing", "restricted", "vault", "released"}


def test_files_of_environments_and_the_check_of_ci_say_each_that_must_be_said() -> None:
    needed = {one.name for one in ROOTS_IN_FILE}
    for path in (CHECKOUT / "environments").glob("*.toml"):
        assert {name for name, said in tomllib.loads(path.read_text()).items() if isinstance(said, str)} - {"catalog"} == needed
    (runs,) = re.findall(r"^runs\(\) \{\n(.*?)^\}", (CHECKOUT / ".ci" / "run").read_text(), re.MULTILINE | re.DOTALL)
    assert {*re.findall(r"SLUICE_\w+(?==)", runs)} == {one.variable for one in ROOTS_IN_FILE}


def _find_rows(page: str, variable: str) -> list[str]:
    """The rows of a page's tables that name a variable."""
    lines = (CHECKOUT / "docs" / page).read_text().splitlines()
    return [line for line in lines if line.startswith("|") and f"`{variable}`" in line]


@pytest.mark.parametrize("root", ROOT_FOLDERS, ids=lambda root: root.name)
def test_the_pages_for_users_list_each_as_it_is(root: RootFolder) -> None:
    (said,) = [row for row in _find_rows("commands.md", root.variable) if row.startswith(f"| `{root.variable}` |")]
    assert f"| {root.meaning}" in said
    assert ("`released` beside `SLUICE_TRUTH`" in said) is (not root.in_environment_file)
    if not root.in_environment_file:
        assert f"except `{root.variable}`" in _find_rows("commands.md", "SLUICE_ENV")[0]
    assert any(row.startswith(f"| `{root.name}/") for row in _find_rows("operate.md", root.variable)), "where things are"
    on_store = [row for row in _find_rows("stores.md", root.variable) if "`s3://`" in row.rpartition("| on a")[2]]
    assert bool(on_store) is root.may_be_on_store
    assert all(("if the lake is" in row) is bool(root.on_store_with_lake) for row in on_store)


def test_the_page_of_erasure_names_the_roots_that_are_scanned() -> None:
    (said,) = [row for row in _find_rows("erasure.md", "SLUICE_LAKE") if "the certificate names its roots" in row]
    assert {*re.findall(r"`(SLUICE_\w+)`", said)} == {one.variable for one in SCANNED_ROOTS}
