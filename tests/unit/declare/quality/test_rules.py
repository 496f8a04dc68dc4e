"""Rule sets kept as data: what a file may say, and that one mistake in it is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.declare import Rules, expect_all_or_drop, expect_or_fail, expect_or_quarantine, table
from sluice.declare.quality.expectations import Action, Expectation
from sluice.errors import DeclarationError

CSV = """\ufeffname,condition,action,tags,null_ok,at_most
positive,heartrate > 0,quarantine,validity range,,
plausible,"heartrate BETWEEN 1 AND coalesce(most, 230)",warn,range,true,0.02
known,device_id IS NOT NULL,fail,validity,no,
"""
TOML = """
[[rules]]
name = "positive"
condition = "heartrate > 0"
action = "quarantine"
tags = ["validity", "range"]

[[rules]]
name = "plausible"
condition = "heartrate BETWEEN 1 AND coalesce(most, 230)"
action = "warn"
tags = ["range"]
null_ok = true
at_most = 0.02

[[rules]]
name = "known"
condition = "device_id IS NOT NULL"
action = "fail"
tags = ["validity"]
"""
JSON = """[
  {"name": "positive", "condition": "heartrate > 0", "action": "quarantine", "tags": ["validity", "range"]},
  {"name": "plausible", "condition": "heartrate BETWEEN 1 AND coalesce(most, 230)", "action": "warn", "tags": ["range"],
   "null_ok": true, "at_most": 0.02},
  {"name": "known", "condition": "device_id IS NOT NULL", "action": "fail", "tags": ["validity"]}
]"""
EXPECTED = (
    Expectation(name="positive", condition="heartrate > 0", action=Action.QUARANTINE),
    Expectation(
        name="plausible", condition="heartrate BETWEEN 1 AND coalesce(most, 230)", action=Action.WARN, null_ok=True, at_most=0.02
    ),
    Expectation(name="known", condition="device_id IS NOT NULL", action=Action.FAIL),
)
TAGS = {"positive": {"validity", "range"}, "plausible": {"range"}, "known": {"validity"}}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"), [("r.csv", CSV), ("r.toml", TOML), ("r.json", JSON), ("r.json", f'{{"rules": {JSON}}}')]
)
def test_the_same_rules_in_each_format(tmp_path: Path, name: str, text: str) -> None:
    rules = Rules.read(written(tmp_path, name, text))
    assert [(one.name, one.condition, one.action, one.null_ok, one.at_most) for one in rules.all().expectations] == [
        (one.name, one.condition, one.action, one.null_ok, one.at_most) for one in EXPECTED
    ]
    assert {one.name: set(one.tags) for one in rules.all().expectations if isinstance(one, Expectation)} == TAGS


def test_tables_choose_rules_by_tag_or_name_beside_their_own(tmp_path: Path) -> None:
    rules = Rules.read(written(tmp_path, "r.csv", CSV))

    @table(reads="readings", keys="device_id", expectations=(rules.named("plausible"),))
    @rules.tagged("validity")
    @expect_or_quarantine("dated", "time IS NOT NULL")
    def heart_rate(readings: object) -> object:
        return readings

    assert [one.name for one in heart_rate.expectations] == ["positive", "known", "dated", "plausible"]
    assert [one.name for one in rules.tagged("validity", "range").expectations] == ["positive", "plausible", "known"]


def test_a_relative_path_counts_from_the_file_that_asks(tmp_path: Path) -> None:
    written(tmp_path, "rules.csv", CSV)
    code = written(tmp_path, "silver.py", "from sluice.declare import Rules\nRULES = Rules.read('rules.csv')\n")
    found: dict[str, Rules] = {}
    exec(compile(code.read_text(), str(code), "exec"), found)
    assert len(found["RULES"].all().expectations) == 3


def test_a_rule_that_two_sets_give_a_table_is_refused(tmp_path: Path) -> None:
    rules = Rules.read(written(tmp_path, "r.csv", CSV))
    with pytest.raises(DeclarationError, match=r"Table 'heart_rate': two expectations are named 'positive'"):

        @table(reads="readings", keys="device_id")
        @rules.tagged("range")
        @rules.tagged("validity")
        def heart_rate(readings: object) -> object:
            return readings


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "r.csv",
            CSV.replace("condition", "conditon", 1),
            r"'r.csv, line 2': a rule has no 'conditon'. Did you mean 'condition'",
        ),
        ("r.csv", CSV.replace("quarantine", "quarantin"), r"line 2': there is no action 'quarantin'. Did you mean 'quarantine'"),
        ("r.csv", CSV.replace('"', ""), r"line 3': the line has another number of cells .* in double quotes"),
        ("r.csv", CSV.replace(",true,", ",maybe,"), "line 3': null_ok is true or false, not 'maybe'"),
        ("r.csv", CSV.replace("0.02", "2 %"), "line 3': at_most is a share of the rows, as in 0.02, not '2 %'"),
        ("r.csv", CSV.replace("0.02", "2"), "line 3': Expectation 'plausible': at_most is a share"),
        ("r.csv", CSV.replace("validity,no,", "validity,no,0.1"), "line 4': Expectation 'known': with at_most, use @expect"),
        ("r.csv", CSV.replace("known,", "positive,"), "Rules 'r.csv': two rules are named 'positive'"),
        ("r.csv", CSV.replace("known,", "dropped,"), "line 4': An expectation may not be named 'dropped'"),
        ("r.csv", CSV.splitlines()[0], "there is no rule in it"),
        ("r.csv", CSV.replace('230)"', '230)" or so'), "the file cannot be read as CSV"),
        ("r.toml", TOML.replace("[[rules]]", "[[rule]]"), "one list of rules, in TOML as"),
        (
            "r.toml",
            TOML.replace('action = "fail"', ""),
            "'r.toml, rule 3': the rule has no action; it needs name, condition, action",
        ),
        ("r.toml", TOML + "x", "the file cannot be read as TOML"),
        ("r.toml", TOML.replace('["range"]', "3"), "rule 2': tags are names"),
        ("r.json", JSON[:-3], "the file cannot be read as JSON"),
        ("r.json", '{"rules": [1]}', "one list of rules"),
        ("r.yaml", "", r"rules are kept as .csv, .toml, .json, not as '.yaml'"),
    ],
)
def test_a_mistake_is_named_with_where_it_is(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(DeclarationError, match=message):
        Rules.read(path)


def test_an_unknown_file_tag_or_name_is_named_with_the_nearest(tmp_path: Path) -> None:
    rules = Rules.read(written(tmp_path, "vitals.csv", CSV))
    with pytest.raises(DeclarationError, match=r"there is no file .*vital.csv. Did you mean 'vitals.csv'"):
        Rules.read(tmp_path / "vital.csv")
    with pytest.raises(DeclarationError, match=r"Rules 'vitals.csv': no rule has the tag 'valid'. Did you mean 'validity'"):
        rules.tagged("valid")
    with pytest.raises(DeclarationError, match=r"no rule has the name 'positiv'. Did you mean 'positive'"):
        rules.named("known", "positiv")
    with pytest.raises(DeclarationError, match="no rule has the tag ''"):
        rules.tagged()


def test_several_rules_of_one_action_may_have_a_threshold() -> None:
    found = expect_all_or_drop({"a": "x > 0", "b": "y > 0"}, at_most=0.5, null_ok=True).expectations
    assert [(one.name, one.at_most, one.null_ok) for one in found if isinstance(one, Expectation)] == [
        ("a", 0.5, True),
        ("b", 0.5, True),
    ]
    with pytest.raises(DeclarationError, match="@expect_all takes rules by name"):
        expect_all_or_drop(("a", "x > 0"))  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="may not be named 'quarantined'"):
        expect_or_fail("quarantined", "x > 0")
