"""The examples of docs/testing.md, and those of docs/quality.md with schemas and SQL texts, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str, section: str = "") -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return BLOCK.findall(text)


def test_the_examples_of_testing_are_tests_that_pass() -> None:
    ran = 0
    for block in blocks("testing.md"):
        names: dict[str, Any] = {"__name__": __name__}
        exec(compile(block, "docs/testing.md", "exec"), names)
        for name, value in names.items():
            if name.startswith("test_"):
                value()
                ran += 1
    assert ran == 3


def test_the_examples_of_schemas_and_texts_do_what_they_say() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    found = blocks("quality.md", "The schema of a table") + blocks("quality.md", "Tables as SQL text")
    assert len(found) == 4
    for block in found:
        exec(compile(block, "docs/quality.md", "exec"), names)
