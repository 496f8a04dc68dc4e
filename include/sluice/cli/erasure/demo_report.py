"""What the demonstration of an erasure prints: rows before and after, what each step did, and what the scan found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from sluice.cli.printing import print_rows, size
from sluice.declare.assembly.graph import Graph
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.erasure.scan import Hit


def print_tables(before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """What a query returns of the person."""
    rows = [{"table": name, "before": count, "after": after.get(name, 0)} for name, count in before.items() if count]
    print_rows(rows, ("table", "before", "after"), "Rows of the member, as a query sees them")


def print_steps(settings: Settings, name: str, request: str) -> None:
    """What the erasure ledger says of a request, a line a step."""
    from sluice.erasure import ledger

    steps: dict[str, dict[str, Any]] = {}
    for done in ledger.rows(settings, name):
        if done.request == request:
            step = steps.setdefault(done.step, {"step": done.step, "places": 0, "rows": 0, "files": 0})
            step["places"] += 1
            step["rows"] += done.rows or 0
            step["files"] += done.files or 0
    print_rows(list(steps.values()), ("step", "places", "rows", "files"), "What was done, by the erasure ledger")


@dataclass(frozen=True)
class Looked:
    """What one scan found: hits of the person and of the canary, in how many files, and how much was read."""

    when: str
    person: int
    person_files: int
    canary: int
    canary_files: int
    files: int
    bytes: int
    seconds: float


def look(settings: Settings, graph: Graph, request: str, when: str) -> Looked:
    """Scan every byte below the pipeline's roots for a request's person, as the certificate's scan does."""
    from sluice.erasure import requests
    from sluice.erasure.proof import sought

    asked = requests.one(settings, graph.pipeline.name, request)
    found = sought.looked(settings, graph, sought.of(settings, graph, [asked]))
    person, control = _counted(found.of_person()), _counted(found.of_control())
    return Looked(when, *person, *control, found.files, found.bytes, round(found.seconds, 1))


def _counted(hits: Sequence[Hit]) -> tuple[int, int]:
    """How many, and in how many files."""
    return sum(hit.times for hit in hits), len({(hit.root, hit.path) for hit in hits})


def print_looked(looked: Sequence[Looked]) -> None:
    """What the scans found, a line each. The canary is planted by the erasure itself, so a scan before it has none to find."""
    rows = [
        {
            "every byte, scanned": one.when,
            "hits of the member": one.person,
            "in files": one.person_files,
            "hits of the canary": one.canary,
            "in its files": one.canary_files,
            "files": one.files,
            "size": size(one.bytes),
            "s": one.seconds,
        }
        for one in looked
    ]
    print_rows(rows, tuple(rows[0]), "What the scans found")


def print_certificate(console: Console, record: Mapping[str, Any]) -> None:
    """What a certificate says, in short."""
    before, now = record["control"]["before"] or {}, record["control"]["now"]
    stores = [
        {"kind of store": name, "planted, found": count, "found now of another": now.get(name)} for name, count in before.items()
    ]
    print_rows(
        stores,
        ("kind of store", "planted, found", "found now of another"),
        "The control: a made-up person in every kind of store",
    )
    console.print(f"After the erasure it was found {record['control']['after']} times.")
    console.print("\nThe certificate", style="bold")
    rows = {
        "verdict": record["verdict"],
        "no query returns the person": record["stamps"]["logical"]["verdict"],
        "no byte holds the person": record["stamps"]["physical"]["verdict"],
        "the control": f"{record['control']['verdict']}, {record['control']['why']}",
        "forms looked for": sum(record["needles"].values()),
        "read": f"{record['files']:,} files, {size(record['bytes'])}, by {len(record['decoders'])} decoders",
        "not decoded": len(record["stamps"]["physical"]["unread"]),
        "exceptions": len(record["exceptions"]),
    }
    for name, value in rows.items():
        console.print(f"  {name:<30} {value}", highlight=False)
