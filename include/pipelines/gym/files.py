"""A delivery as the maker knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(kw_only=True)
class File:
    """A file to be delivered: its lines, and for each record what the maker knows about it. header: a first line that is no record."""

    name: str
    delivered_at: datetime
    header: str = ""
    lines: list[str] = field(default_factory=list)
    told: list[dict[str, object]] = field(default_factory=list)

    def add(self, kind: str, line: str, **known: object) -> None:
        """Deliver a record with this file. known: what it says; nothing of a record that says nothing."""
        self.lines.append(line)
        self.told.append({"kind": kind, "file": self.name, **known})

    @property
    def text(self) -> str:
        """What the file holds."""
        return "".join(f"{line}\n" for line in ([self.header] if self.header else []) + self.lines)
