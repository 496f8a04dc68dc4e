"""The results of benchmarks as tables of medians and ratios: printed, and kept as sections of a file such as benchmarks/results.md.

A section stands between two comments with its name. A benchmark replaces only its own section.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Medians:
    """Amounts of contestants, by what was measured. The first contestant is the one that all others are compared with.

    what: the first column's title, with the unit, as in "CPU seconds of". digits: of a median, behind the point.
    """

    what: str
    contestants: Sequence[str]
    digits: int = 1
    amounts: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, measured: str, contestant: str, amount: float) -> None:
        """Add what a contestant took in one round."""
        self.amounts.setdefault(measured, {name: [] for name in self.contestants})[contestant].append(amount)

    def median(self, measured: str, contestant: str) -> float:
        """Of all rounds."""
        return statistics.median(self.amounts[measured][contestant])

    def ratio(self, measured: str, contestant: str) -> float:
        """The first contestant's median as a multiple of another's; not a number where that one took nothing."""
        other = self.median(measured, contestant)
        return self.median(measured, self.contestants[0]) / other if other else math.nan

    def describe_goal(self, measured: str, contestant: str, most: float) -> str:
        """A line that says whether the first contestant's ratio to another one is what was wanted. most: the largest ratio wanted."""
        found = self.ratio(measured, contestant)
        return f"{measured}, against {contestant}: {found:.2f}; at most {most:g} is the goal: {'met' if found <= most else 'missed'}."

    def format(self, ratios: bool = True) -> str:
        """A line for each thing that was measured: medians, and the first contestant's ratio to each other one, if they are contestants."""
        first, *others = self.contestants if ratios else self.contestants[:1]
        header = [self.what, *self.contestants, *(f"{first} / {other}" for other in others)]
        rows = [
            [
                measured,
                *(f"{self.median(measured, name):.{self.digits}f}" for name in self.contestants),
                *(f"{self.ratio(measured, name):.2f}" for name in others),
            ]
            for measured in self.amounts
        ]
        return format_table(header, rows)


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown that can be read as it is."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines)


def write_section(file: Path, name: str, text: str) -> None:
    """Put a benchmark's section in the place of its former one, or at the file's end. A file that is not there is made."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}\n"
    before = file.read_text(encoding="utf-8") if file.exists() else "# Results of the benchmarks\n"
    former = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}\n", re.DOTALL)
    after, replaced = former.subn(lambda _: section, before, count=1)
    if not replaced:
        after = f"{before.rstrip()}\n\n{section}"
    file.write_text(after, encoding="utf-8")
