"""Run every benchmark of this folder, one after the other, and print how long each took.

    .venv/bin/python benchmarks/_all.py [--long] [--write benchmarks/results.md] [--only bulk records]

The short form of all benchmarks takes at most 20 minutes on two cores. A program that fails, or misses a goal, does not stop the others;
the exit code is then 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _results import format_table, write_section

HERE = Path(__file__).resolve().parent
MOST_SECONDS = 1200
"""What the short forms of all programs may take together."""


def list_programs() -> list[Path]:
    """The benchmarks, by name."""
    return sorted(HERE.glob("[a-z]*.py"))


class Took(NamedTuple):
    """The seconds that a program took, and its exit code. What its JVMs cost is in its own results."""

    seconds: float
    code: int


def run_program(program: Path, options: Sequence[str]) -> Took:
    """Run a benchmark and say what it took."""
    print(f"== {program.name}", flush=True)
    began = time.monotonic()
    code = subprocess.run([sys.executable, str(program), *options], check=False).returncode
    took = Took(time.monotonic() - began, code)
    said = f"{took.seconds:.0f} s{'' if code == 0 else f', exit code {code}'}"
    print(f"   {program.name} took {said}", flush=True)
    return took


def main() -> int:
    """Run them all. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="each as it is by itself, which takes hours")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the results of each into this file, as sections")
    parser.add_argument("--only", nargs="+", choices=[program.stem for program in list_programs()], help="these only")
    asked = parser.parse_args()
    options = [*([] if asked.long else ["--short"]), *(["--write", str(asked.write)] if asked.write else [])]
    took = {
        program.name: run_program(program, options)
        for program in list_programs()
        if asked.only is None or program.stem in asked.only
    }
    total = sum(one.seconds for one in took.values())
    rows = [[name, f"{one.seconds:.0f}", one.code] for name, one in took.items()]
    table = format_table(["program", "seconds", "exit code"], [*rows, ["together", f"{total:.0f}", ""]])
    print(f"\n{table}")
    late = not asked.long and total > MOST_SECONDS
    if late:
        print(f"The short forms took {total:.0f} seconds; {MOST_SECONDS} is what they may take on two cores with nothing beside.")
    if asked.write and asked.only is None:
        form = "long" if asked.long else "short"
        write_section(asked.write, f"programs {form}", f"## What the programs took, {form} form\n\n{table}")
    return int(late or any(one.code for one in took.values()))


if __name__ == "__main__":
    sys.exit(main())
