"""The parts of benchmarks that run nothing: options, medians and ratios, sections of a file, and when a view counts as equal."""

from __future__ import annotations

import importlib
import json
import os
import sys
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
    from of_tpch.queries import ALL_QUERIES, make_fraction

    assert [make_fraction(scale) for scale in ("0.01", "0.02", "1", "10")] == ["0.01", "0.005", "0.0001", "0.00001"]
    assert [query.name for query in ALL_QUERIES] == [f"q{number:02d}" for number in range(1, 23)]


@pytest.mark.parametrize("program", sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_each_benchmark_has_a_short_form_and_a_section_of_its_own(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(program)
    said = []
    for form in (["--short"], []):
        monkeypatch.setattr(sys, "argv", [program, *form, "--explain"])
        with pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == 0
        said.append(json.loads(capsys.readouterr().out))
    short, long = said
    assert short == long | module.SHORT != long
    assert "write_findings(" in Path(module.__file__ or "").read_text()


def test_what_is_asked_for_goes_before_the_short_form_and_each_form_has_a_section(tmp_path: Path) -> None:
    from _options import BenchmarkOptions

    file = tmp_path / "results.md"
    for form, found in ((["--short", "--rounds", "2"], (5, 2)), ([], (100, 3))):
        parser = BenchmarkOptions("/somewhere/rows.py", "Rows.", {"rows": 5, "rounds": 1})
        parser.add_argument("--rows", type=int, default=100)
        parser.add_argument("--rounds", type=int, default=3)
        asked = parser.read_options([*form, "--write", str(file)])
        assert (asked.rows, asked.rounds) == found
        parser.write_findings(asked, "Rows", f"{found}")
    text = file.read_text()
    assert "## Rows (`rows.py`, short form)\n\nShort form: rows 5, rounds 2; " in text
    assert "## Rows (`rows.py`)\n\nOptions: rows 100, rounds 3; " in text


def test_a_short_form_of_an_option_that_is_not_there_is_refused() -> None:
    from _options import BenchmarkOptions

    with pytest.raises(AssertionError, match="that the program has not: sclae"):
        BenchmarkOptions("rows.py", None, {"sclae": 1}).read_options(["--short"])


def test_a_benchmark_that_fails_does_not_keep_the_others_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import _all

    for name, text in (("a", "raise SystemExit(1)"), ("b", "import sys; print(sys.argv[1:])"), ("_c", "raise AssertionError")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(_all, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["_all", "--write", str(tmp_path / "results.md")])
    assert _all.main() == 1
    printed = capfd.readouterr().out
    assert "a.py took" in printed and "exit code 1" in printed
    assert f"['--short', '--write', '{tmp_path / 'results.md'}']" in printed
    assert "| b.py " in (tmp_path / "results.md").read_text() and "_c.py" not in printed
    monkeypatch.setattr(sys, "argv", ["_all", "--only", "b"])
    assert _all.main() == 0
    monkeypatch.setattr(_all, "MOST_SECONDS", 0)
    assert _all.main() == 1


def test_a_slope_is_by_which_power_of_the_size_the_cost_grows() -> None:
    from scale import MEASURES, SHORT, SIZES, Measured, compute_slope, format_measured

    small, large = Measured("files", 100, 0.5), Measured("files", 10_000, 5.0, 3 * 2**20)
    assert compute_slope(small, large) == pytest.approx(0.5)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in format_measured([large, small]).splitlines()]
    assert lines[2:] == [["files", "100", "0.5", "", ""], ["files", "10,000", "5", "0.50", "3"]]
    assert MEASURES.keys() == SHORT.keys() == SIZES.keys()


def test_what_grows_without_a_jvm_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from _checkout import use_roots_below
    from scale import MEASURES, WITHOUT_JVM

    monkeypatch.setattr("os.environ", dict(os.environ))
    for name in WITHOUT_JVM:
        root = tmp_path / name
        root.mkdir()
        use_roots_below(root)
        found = list(MEASURES[name](root, 30))
        assert found and all(one.size == 30 and one.cpu_seconds > 0 for one in found), name
