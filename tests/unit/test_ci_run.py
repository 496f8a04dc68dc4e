"""The check of CI, with stand-ins for `make` and Python: it waits for what runs in parallel and fails with it; slow tests end in time."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = """#!/bin/bash
echo "$*" >>made
if [ -n "$LEFT_OUT" ] && [[ "$*" =~ ^"test WITHOUT".*cache_dir=([^ ]+) ]]; then
  mkdir -p "${BASH_REMATCH[1]}/v/sluice"; echo "\"$LEFT_OUT\"" >"${BASH_REMATCH[1]}/v/sluice/tests_in_time"
fi
case "$*" in $FAILS)
  if [[ "$*" =~ cache_dir=([^ ]+) ]] && [ -n "$FAILED_TESTS" ]; then
    mkdir -p "${BASH_REMATCH[1]}/v/cache"; echo "$FAILED_TESTS" >"${BASH_REMATCH[1]}/v/cache/lastfailed"
  fi
  [[ "$*" == *--last-failed* && -n "$ONCE" ]] || { echo "this went wrong"; exit 7; };;
esac
case "$*" in "setup AIRFLOW=2 "*) sleep "${SETUP_SECONDS:-0}";; esac
case "$*" in "installed AIRFLOW=2") sleep 0.3; echo "late, but there" | tee -a made;; esac
"""
PYTHON = """#!/bin/bash
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script alone, beside deliveries."""
    (tmp_path / "project" / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / "project" / ".ci" / "run")
    deliveries = tmp_path / "shared" / "data" / "italy_regions" / "deliveries.tar.xz"
    deliveries.parent.mkdir(parents=True)
    deliveries.write_text("there")
    (tmp_path / "bin").mkdir()
    for name, text in {"make": MAKE, "python3.11": PYTHON, "apt-get": "#!/bin/bash\n"}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path / "project"


def check(
    checkout: Path,
    elapsed: int = 0,
    fails: str = "nothing",
    failed_tests: tuple[str, ...] = (),
    once: bool = False,
    left_out: str = "",
    setup_seconds: int = 0,
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run it as if so many seconds were over; what it printed, and what it asked of make."""
    variables = {**os.environ, "PATH": f"{checkout.parent / 'bin'}:{os.environ['PATH']}", "FAILS": fails}
    variables |= {"SECONDS": str(elapsed), "SLUICE_SHARED": str(checkout.parent / "shared")}
    variables["FAILED_TESTS"] = (
        json.dumps(dict.fromkeys(failed_tests, True), indent=2) if failed_tests else ""
    )  # as pytest writes them
    variables["ONCE"] = "yes" if once else ""
    variables |= {"LEFT_OUT": left_out, "SETUP_SECONDS": str(setup_seconds)}
    done = subprocess.run([".ci/run"], cwd=checkout, env=variables, capture_output=True, text=True, check=False, timeout=600)
    return done, (checkout / "made").read_text().splitlines()


def test_every_step_is_taken_and_what_went_on_aside_is_waited_for(checkout: Path) -> None:
    done, made = check(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = {
        "setup-python delta-jars",
        "store-jars",
        "setup",
        "lint",
        "test WITHOUT_STORE=yes THOROUGH=yes ARGS=--durations=60",
        "test-store-first ARGS=",
        "test-system ARGS=--durations=12",
        "test AIRFLOW=2 WITHOUT_ARCHIVE=yes ARGS=tests/airflow tests/unit/test_setup.py",
        "run",
        "compose-check",
        "kafka-jars",
        "setup AIRFLOW=2 WITHOUT_ARCHIVE=yes",
    }
    assert steps <= {one.partition(" -o cache_dir=")[0] for one in made}
    assert not any("--last-failed" in one for one in made) and "UNSTEADY" not in done.stdout
    assert made.index("late, but there") < made.index("setup AIRFLOW=2 WITHOUT_ARCHIVE=yes"), "the second environment's packages"
    assert "late, but there" in done.stdout and "s  airflow, aside" in done.stdout
    assert made[-1].startswith("test-slow ARGS=--slow-seconds=300 "), "of six minutes, one for ending"


@pytest.mark.parametrize(
    "fails",
    ["installed*", "store-jars", "test AIRFLOW=2*", "test-system*", "test-store-first*", "compose-check", "kafka-jars"],
)
def test_what_fails_aside_fails_the_check_with_what_it_said(checkout: Path, fails: str) -> None:
    done, _ = check(checkout, fails=fails)
    assert done.returncode == 7
    assert "this went wrong" in done.stdout and "FAILED (7)" in done.stdout


TESTS = "test WITHOUT_STORE=yes*"
ONE, ANOTHER = "tests/unit/test_a.py::test_one[a b-'c']", "tests/unit/test_b.py::test_another"


def test_what_passes_when_it_is_tried_alone_is_named_at_the_end_and_fails_nothing(checkout: Path) -> None:
    done, made = check(checkout, fails=TESTS, failed_tests=(ONE, ANOTHER), once=True)
    assert done.returncode == 0, done.stdout
    again = [one for one in made if "--last-failed" in one]
    assert len(again) == 1 and again[0].startswith("test WITHOUT_STORE=yes ") and again[0].endswith("--numprocesses 0")
    last = done.stdout.splitlines()[-2:]
    assert last == [f"UNSTEADY  failed, and passed alone: {name}" for name in (ONE, ANOTHER)]


@pytest.mark.parametrize(
    ("failed_tests", "once"),
    [((ONE,), False), (tuple(f"{ANOTHER}{number}" for number in range(4)), True), ((), True)],
    ids=["fails again", "too many for chance", "no test says that it failed"],
)
def test_what_is_no_chance_fails_the_check(checkout: Path, failed_tests: tuple[str, ...], once: bool) -> None:
    done, made = check(checkout, fails=TESTS, failed_tests=failed_tests, once=once)
    assert done.returncode == 7 and not any(one.startswith("test-slow") for one in made)


def test_tests_begin_until_minute_75_but_not_where_one_is_tried_again(checkout: Path) -> None:
    began = time.time()
    done, made = check(checkout, fails=TESTS, failed_tests=(ONE,), once=True, left_out="2 of 9, exit 1")
    assert done.returncode == 0, done.stdout
    for step in ("test WITHOUT_STORE", "test AIRFLOW=2", "test-system", "test-store-first"):
        (until,) = {int(found[1]) for one in made if one.startswith(step) and (found := re.search(r"--begin-until=(\d+)", one))}
        assert until == pytest.approx(began + 75 * 60, abs=60)
    assert not any("--begin-until" in one for one in made if "--last-failed" in one or one.startswith("test-slow"))
    assert "LEFT OUT  for want of time, of all: 2 of 9 tests. Their names" in done.stdout.splitlines()[-2]


@pytest.mark.parametrize("said", ["9 of 9, exit 0", "0 of 9, exit 3"], ids=["no test had time", "pytest itself failed"])
def test_what_shows_nothing_about_the_tests_fails_the_check_and_is_not_tried_again(checkout: Path, said: str) -> None:
    fails = TESTS if said.endswith("3") else "nothing"
    done, made = check(checkout, fails=fails, failed_tests=(ONE,), once=True, left_out=said)
    assert done.returncode in (1, 7) and not any("--last-failed" in one or one.startswith("test-slow") for one in made)


def test_without_time_for_it_nothing_is_tried_again(checkout: Path) -> None:
    done, made = check(checkout, elapsed=84 * 60 - 50, fails=TESTS, failed_tests=(ONE,), once=True)
    assert done.returncode == 7 and not any("--last-failed" in one for one in made) and ONE in done.stdout


def test_a_failed_step_ends_what_goes_on_aside(checkout: Path) -> None:
    done, made = check(checkout, fails="lint", setup_seconds=5)
    assert done.returncode == 7 and not any(one.startswith(("test-slow", "test-system")) for one in made)


@pytest.mark.parametrize(
    ("elapsed", "seconds"), [(3000, 300), (80 * 60 - 300, 240), (80 * 60 - 100, None), (80 * 60 + 100, None)]
)
def test_slow_tests_take_what_is_left_until_minute_80(checkout: Path, elapsed: int, seconds: int | None) -> None:
    done, made = check(checkout, elapsed)
    assert done.returncode == 0, done.stdout
    if seconds is None:
        assert not any(one.startswith("test-slow") for one in made) and "No slow test: " in done.stdout
    else:
        left = int(made[-1].removeprefix("test-slow ARGS=--slow-seconds=").split()[0])
        assert seconds - 90 <= left <= seconds, "less what the steps before took"
