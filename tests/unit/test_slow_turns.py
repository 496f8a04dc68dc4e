"""Slow tests have turns: each comes round within a bounded number of commits, and no turn takes longer than it may."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import slow_turns
from tests.slow_rotation import DURATIONS, commit_number
from tests.slow_turns import ROOM, choose_turn, expected_seconds, next_prime, plan_turns, time_limit

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
DURATIONS_OF_TESTS = st.dictionaries(st.text("abcdef:/_", min_size=1, max_size=6), st.floats(1, ROOM), max_size=40)


@settings(deadline=None, max_examples=60)
@given(DURATIONS_OF_TESTS, st.integers(0, 10_000), st.integers(1, 12))
def test_each_test_comes_round_also_where_not_every_commit_is_checked(seconds: dict[str, float], start: int, stride: int) -> None:
    turns = next_prime(len(plan_turns(seconds)))
    assert turns <= 2 * max(1, len(plan_turns(seconds))), "the bound: Bertrand's"
    if stride % turns:
        checked = range(start, start + stride * turns, stride)
        assert {name for commit in checked for name in choose_turn(seconds, commit).taken} == set(seconds)


@settings(deadline=None, max_examples=60)
@given(DURATIONS_OF_TESTS, st.integers(0, 10_000))
def test_no_turn_takes_more_than_its_room(seconds: dict[str, float], commit: int) -> None:
    turn = choose_turn(seconds, commit)
    assert sum(seconds[name] for name in turn.taken) <= ROOM + 1e-6
    assert not turn.left_over
    assert sorted((*turn.taken, *turn.later)) == sorted(seconds), "what is taken and what waits are all there are"


@settings(deadline=None, max_examples=60)
@given(DURATIONS_OF_TESTS, st.integers(0, 1_000))
def test_with_less_time_each_test_that_fits_comes_round_later(seconds: dict[str, float], start: int) -> None:
    left = ROOM / 3
    planned = plan_turns(seconds)
    rounds = next_prime(len(planned)) * max((len(turn) for turn in planned), default=1)
    taken: set[str] = set()
    for commit in range(start, start + rounds):
        turn = choose_turn(seconds, commit, left)
        assert sum(seconds[name] for name in turn.taken) <= left + 1e-6
        assert sorted((*turn.taken, *turn.left_over, *turn.later)) == sorted(seconds)
        taken |= set(turn.taken)
    assert taken == {name for name, duration in seconds.items() if duration <= left}


def test_consecutive_commits_have_consecutive_turns_in_the_order_of_names() -> None:
    seconds = dict.fromkeys(("c", "a", "b"), ROOM * 0.6)
    assert [choose_turn(seconds, commit).taken for commit in range(3, 7)] == [("a",), ("b",), ("c",), ("a",)]
    assert choose_turn(seconds, 3).later == ("b", "c")
    halves = dict.fromkeys(("a", "b"), ROOM / 2)
    assert plan_turns(halves) == [("a", "b")]
    assert choose_turn(halves, 2).taken == ("b", "a"), "another one first, the next time round"


def test_what_is_not_measured_counts_as_its_longest_sibling_or_as_the_stated_maximum() -> None:
    measured = {"f.py::test_a[1]": 20.0, "f.py::test_a[2]": 30.0, "f.py::test_b": 5.0}
    expected = {name: expected_seconds(name, measured) for name in ("f.py::test_a[1]", "f.py::test_a[3]", "f.py::test_c")}
    assert expected == {"f.py::test_a[1]": 20, "f.py::test_a[3]": 30, "f.py::test_c": slow_turns.UNMEASURED}


def test_no_slow_test_is_no_turn() -> None:
    assert choose_turn({}, 7).taken == ()


def test_a_test_hangs_when_it_takes_six_times_its_duration() -> None:
    assert time_limit(10) == 300
    assert time_limit(100) == 600


def test_every_committed_duration_fits_a_turn_and_is_of_a_test_that_is_there() -> None:
    for name, seconds in json.loads(DURATIONS.read_text()).items():
        assert 0 < seconds <= ROOM, f"{name} takes {seconds} s and can have no turn: part it"
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}" in (ROOT / path).read_text(), name


# What hangs rings its alarm itself once it runs, so that no slow machine lets it ring before.
CHECKED = """
import signal, time, weakref, pytest
@pytest.mark.slow
def test_a(): pass
@pytest.mark.slow
def test_b(): pass
def test_c(): pass
@pytest.mark.slow
@pytest.mark.skipif("not config.getoption('--hang')")
def test_hangs(request):
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= float(request.config.getoption("--hang"))
    if request.config.getoption("--unheard"):
        again = signal.getitimer(signal.ITIMER_REAL)[1]
        signal.setitimer(signal.ITIMER_REAL, again, again)
        target = type("Target", (), {})()
        callback = weakref.ref(target, lambda _: signal.raise_signal(signal.SIGALRM))
        del target
    else:
        signal.raise_signal(signal.SIGALRM)
    time.sleep(60)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite of its own with the same options: three slow tests and one that is not."""
    options = ("'--hang', metavar='SECONDS'", "'--unheard', action='store_true'")
    pytester.makeconftest("def pytest_addoption(parser):\n" + "".join(f"    parser.addoption({one})\n" for one in options))
    pytester.makeini("[pytest]\nmarkers =\n    slow: long\n")
    pytester.makepyfile(test_them=CHECKED)
    return pytester


def told(suite: pytest.Pytester, measured: dict[str, float], *options: str) -> tuple[int, str]:
    """The exit code of a run of it in this process, and what it says."""
    (suite.path / "durations.json").write_text(json.dumps(measured))
    off = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", "-p", "tests.slow_rotation")
    done = suite.runpytest_inprocess(*off, "--slow-durations=durations.json", "-rs", *options)
    return int(done.ret), done.stdout.str()


def test_a_check_runs_its_turn_and_tells_what_waits_and_until_when(suite: pytest.Pytester) -> None:
    measured = {"test_them.py::test_a": 400.0, "test_them.py::test_b": 200.0}
    code, text = told(suite, measured, "--slow-turn=4")
    assert code == 0 and "2 passed" in text, text
    assert "slow tests of commit 4: turn 1 of 2, 2 taken, 1 waits" in text
    assert "takes  test_them.py::test_a (400 s)" in text
    assert f"in 1 commit  test_them.py::test_hangs ({slow_turns.UNMEASURED:.0f} s, not measured yet)" in text
    assert "test_c" not in text and "0 s  test_them.py::test_b" in text
    text = told(suite, measured, "--slow-turn=5")[1]
    assert "takes  test_them.py::test_hangs" in text and "in 1 commit  test_them.py::test_a" in text


def test_what_time_is_left_is_spent_on_the_next_turns(suite: pytest.Pytester) -> None:
    code, text = told(suite, {"test_them.py::test_a": 600.0, "test_them.py::test_b": 500.0}, "--slow-turn=3")
    assert code == 0 and "1 taken, 2 wait" in text
    assert "2 passed, 1 skipped" in text, "each of them is there at once; the third has its own reason"
    code, text = told(suite, {"test_them.py::test_a": 600.0, "test_them.py::test_b": 700.0}, "--slow-turn=3")
    assert code == 0 and "1 passed, 1 deselected" in text, "from the first that finds none"


def test_durations_are_recorded_beside_those_that_were_measured_before(suite: pytest.Pytester) -> None:
    told(suite, {"test_them.py::test_a": 400, "test_gone.py::test_it": 5}, "--record-durations")
    recorded = json.loads((suite.path / "durations.json").read_text())
    assert recorded == {"test_them.py::test_a": 1, "test_them.py::test_b": 1}, "whole seconds; what was skipped has none"


def test_a_test_that_hangs_fails_and_ends_the_turn(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_turns, "SHORTEST_LIMIT", 30)
    monkeypatch.setattr(slow_turns, "UNMEASURED", 0.1)
    code, text = told(suite, {}, "--slow-turn=4", "--hang=30")
    assert code == 1 and "test_hangs took longer than 30 s, where 0 s are its duration: it hangs" in text
    assert "1 failed, 2 skipped" in text, "what comes after it begins with nothing that it left half done"


def test_the_clock_ends_a_turn_and_what_it_cut_waits(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_turns, "BEFORE_THE_FIRST", 0)
    monkeypatch.setattr(slow_turns, "UNMEASURED", 0.1)
    options = ("--slow-turn=0", "--slow-seconds=30", "--hang=30", "-k", "hangs")
    code, text = told(suite, {}, *options)
    assert code == 0 and "1 skipped" in text
    assert "the turn's time was over within this test" in text
    code, text = told(suite, {"test_them.py::test_hangs": 31}, *options)
    assert code == 0 and "0 taken" in text and "no time is left for  test_them.py::test_hangs" in text


def test_an_alarm_that_rings_where_nobody_hears_it_rings_again(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_turns, "BEFORE_THE_FIRST", 0)
    monkeypatch.setattr(slow_turns, "UNMEASURED", 0.1)
    options = ("--slow-turn=0", "--slow-seconds=30", "--hang=30", "-k", "hangs")
    code, text = told(suite, {}, *options, "--unheard", "-W", "error::pytest.PytestUnraisableExceptionWarning")
    assert code == 0 and "1 skipped" in text and "the turn's time was over within this test" in text, text


def test_the_number_of_a_commit_is_how_many_led_to_it(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, capture_output=True
        )

    git("init")
    for number in (1, 2, 3):
        git("commit", "--allow-empty", "-m", "one")
        assert commit_number(tmp_path) == number
    git("clone", "--depth=1", f"file://{tmp_path}", "shallow")
    later = commit_number(tmp_path / "shallow")
    assert later > 400_000, "hours: a shallow clone does not know how many led to it"
