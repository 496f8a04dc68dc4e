"""The pages of docs: links lead somewhere, lines of prose are at most 120 wide, and code that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WIDTH = 120
CODE_ROOTS = (ROOT, ROOT / "include", ROOT / "include" / "sluice", ROOT / "tests")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)(?:::[^`]*)?`")


def prose(page: Path) -> list[tuple[int, str]]:
    """The lines of a page with their numbers, without blocks of code."""
    found, fenced = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            found.append((number, line))
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for _, line in prose(page):
        if heading := re.match(r"#+ (.*)", line):
            text = re.sub(r"[^\w\- ]", "", heading[1].strip().lower().replace("`", ""))
            found.add(text.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for number, line in prose(page):
        for link in LINK.findall(line):
            name, _, anchor = link.partition("#")
            if "://" in link:
                continue
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{page.name}:{number}: {link}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_are_not_too_wide(page: Path) -> None:
    generated = False
    wide = []
    for number, line in prose(page):
        generated = (generated or "refused: begin" in line) and "refused: end" not in line
        if len(line) > WIDTH and not generated and not line.startswith(("|", "    ", "#", "![")):
            wide.append(f"{page.name}:{number}: {len(line)}")
    assert wide == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_code_that_a_page_names_are_there(page: Path) -> None:
    gone = [
        f"{page.name}:{number}: {name}"
        for number, line in prose(page)
        for name in NAMED_FILE.findall(line)
        if not any((root / name).exists() for root in CODE_ROOTS) and "shop" not in name  # the pipeline of examples
    ]
    assert gone == []


def test_the_table_of_rooms_has_every_room_of_the_engine() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    inside = (ROOT / "include" / "sluice").iterdir()
    rooms = {one.stem for one in inside if one.suffix == ".py" or (one / "__init__.py").exists()}
    assert rooms - {"__init__"} - told == set()
