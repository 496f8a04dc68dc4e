"""Checks that each name is declared once, and that none is the name of a table that Sluice keeps for a declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sluice.declare.expansion.stored import Declared
from sluice.pipeline_records import name_quarantine


def find_duplicate_names(declared: Sequence[Declared]) -> Iterator[str]:
    """Yields the mistake of each name that is declared twice."""
    seen: dict[str, Declared] = {}
    for item in declared:
        first = seen.setdefault(item.name, item)
        if first is not item and (same := first.serves or item.serves):
            yield f"'{item.name}' is the name of a table that '{same}' keeps for itself; give the other declaration another name."
        elif first is not item:
            places = "; ".join(one.declared_at for one in (first, item) if one.declared_at)
            yield (
                f"two declarations are named '{item.name}'{f' ({places})' if places else ''}. The names of all layers are one set: "
                "give one of them another name."
            )


def find_names_of_kept_tables(declared: Iterable[Declared], pipeline: str) -> Iterator[str]:
    """Yields the mistake of each declaration that has the name of a stream's late rows or of a quarantine."""
    by_name = {item.name: item for item in declared}
    yield from _find_names_of_late_tables(by_name)
    for item in by_name.values():
        if item.kind.sets_rows_aside and name_quarantine(item.name) in by_name:
            yield (
                f"'{name_quarantine(item.name)}' is the table in which Sluice keeps the rows that {item.mention} sets aside; give the other "
                f"declaration another name. To read those rows: sluice quarantine show {pipeline} {item.name}"
            )


def _find_names_of_late_tables(by_name: Mapping[str, Declared]) -> Iterator[str]:
    for stream in by_name.values():
        if stream.late in by_name:
            yield f"'{stream.late}' is the table in which '{stream.name}' keeps late rows; give the other declaration another name."
