"""The options that every benchmark has, and its section in a file of results.

`make bench` runs the short form of each program in this folder whose name does not begin with an underscore; `make bench-full` runs each
with its default options. README.md lists what a program must have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from _results import write_section

_EVERYWHERE = ("short", "write", "explain")


class BenchmarkOptions(argparse.ArgumentParser):
    """The options of one program. Its own are added as to any parser."""

    def __init__(self, file: str, description: str | None, short: Mapping[str, object]) -> None:
        """file: of the program. short: values of its own options that make its short form, for at most two minutes on two cores."""
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.program = Path(file).stem
        self._short_form = short
        said = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in short.items())
        self.add_argument("--short", action="store_true", help=f"the short form: {said}".replace("%", "%%"))
        self.add_argument("--write", type=Path, metavar="FILE", help="put the results into this file, as a section")
        self.add_argument("--explain", action="store_true", help="say the options as JSON, and run nothing")

    def read_options(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """The options as they are asked for; in the short form what is not asked for is as that says. Raises SystemExit."""
        asked = self.parse_args(arguments)
        unknown = self._short_form.keys() - vars(asked).keys()
        assert not unknown, f"{self.program}: the short form has options that the program has not: {', '.join(sorted(unknown))}"
        if asked.short:
            self.set_defaults(**self._short_form)
            asked = self.parse_args(arguments)
        if asked.explain:
            print(json.dumps({name: value for name, value in vars(asked).items() if name not in _EVERYWHERE}))
            sys.exit(0)
        return asked

    def write_findings(self, asked: argparse.Namespace, title: str, text: str) -> None:
        """Put what was found into the file that is asked for, if one is. Both forms have sections of their own."""
        if asked.write is None:
            return
        own = {name: value for name, value in vars(asked).items() if name not in _EVERYWHERE and value not in (None, False)}
        said = ", ".join(f"{name.replace('_', '-')} {_format_value(value)}" for name, value in own.items())
        form = "Short form" if asked.short else "Options"
        section = f"{self.program} short" if asked.short else self.program
        heading = f"## {title} (`{self.program}.py`{', short form' if asked.short else ''})"
        write_section(asked.write, section, f"{heading}\n\n{form}: {said}; {os.cpu_count()} cores; {_describe_code()}.\n\n{text}")


@dataclass
class PrintedLines:
    """What a program says line by line: printed at once, and kept for its section."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Print and keep a text of one or more lines."""
        print(text, flush=True)
        self.lines.append(text)

    def format(self) -> str:
        """All of it, as it was printed."""
        return "\n".join(["```", *self.lines, "```"])


def _describe_code() -> str:
    """The day, and the commit of the checkout if git knows one: a number says something only about the code that it was measured on."""
    commit = _ask_git("describe", "--always")
    # Not the results themselves: the programs before this one have written them.
    changed = _ask_git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)benchmarks/results.md")
    return f"{datetime.now(UTC):%d %B %Y}{f', commit {commit}' if commit else ''}{', with changes' if changed else ''}"


def _ask_git(*words: str) -> str:
    asked = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _format_value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
