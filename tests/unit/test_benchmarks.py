"""The parts of benchmarks that run nothing: medians and ratios, a section of a file, and when a view counts as equal."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [{"k": 1, "total": Decimal("2.50"), "mean": Decimal("0.333333")}, {"k": 2, "total": None, "mean": None}]


@pytest.fixture(autouse=True)
def as_scripts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield


def test_the_first_contestants_median_is_compared_with_each_other_one() -> None:
    from _results import Medians

    found = Medians("CPU seconds", ("Sluice", "plain", "DuckDB"))
    for sluice, plain, duckdb in ((30, 10, 1), (10, 20, 2), (20, 40, 4)):
        found.add("refresh", "Sluice", sluice)
        found.add("refresh", "plain", plain)
        found.add("refresh", "DuckDB", duckdb)
    assert found.format().splitlines() == [
        "| CPU seconds | Sluice | plain | DuckDB | Sluice / plain | Sluice / DuckDB |",
        "| ----------- | ------ | ----- | ------ | -------------- | --------------- |",
        "| refresh     | 20.0   | 20.0  | 2.0    | 1.00           | 10.00           |",
    ]


def test_a_benchmark_replaces_its_own_section_only(tmp_path: Path) -> None:
    from _results import write_section

    file = tmp_path / "results.md"
    write_section(file, "one", "first \\1")
    write_section(file, "other", "second")
    write_section(file, "one", "third \\1")
    text = file.read_text()
    assert text.index("third \\1") < text.index("second") and "first" not in text
    assert text.startswith("# Results")
    before = text
    write_section(file, "other", "second")
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"total": Decimal("2.500")}, None),
        ({"mean": 1 / 3}, None),
        ({"mean": 0.3334}, "mean of (1,) is Decimal('0.333333'), and 0.3334 in DuckDB"),
        ({"total": Decimal("2.51")}, "total of (1,) is Decimal('2.50'), and Decimal('2.51') in DuckDB"),
        ({"total": None}, "total of (1,) is Decimal('2.50'), and None in DuckDB"),
        ({"k": 3}, "1 rows too many, 1 lacking"),
        ({"k": 2}, "a key comes twice"),
    ],
)
def test_sums_are_equal_to_the_last_digit_and_means_are_close(other: dict[str, object], said: str | None) -> None:
    from of_tpch.comparison import find_row_difference

    assert find_row_difference(ROWS, [{**ROWS[0], **other}, ROWS[1]], ("k",)) == said


def test_the_fraction_of_query_11_is_less_at_a_larger_scale() -> None:
    from of_tpch.queries import QUERIES, make_fraction

    assert [make_fraction(scale) for scale in ("0.01", "0.02", "1", "10")] == ["0.01", "0.005", "0.0001", "0.00001"]
    assert [query.name for query in QUERIES] == [f"q{number:02d}" for number in range(1, 23)]
