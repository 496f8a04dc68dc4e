"""The counts of a flow in a run, a field each: reports, the run ledger, alerts and summaries take their lists of counts from here.

A new count is a field of `FlowCounts`. The run ledger gets a column for it, which is NULL in earlier rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _count(*, is_news: bool = False, alerts: bool = False) -> Any:
    """A count that starts at 0.

    is_news: if it is not 0, the flow has found something, even if its table did not change. alerts: an alert may be on it, as on a rule, so
    no expectation may have its name.
    """
    return field(default=0, metadata={"is_news": is_news, "alerts": alerts})


@dataclass(kw_only=True)
class FlowCounts:
    """The counts of one flow in one run. rows_in: bronze records read or source rows folded; rows_out: rows written or removed.

    expired: quarantined or late rows that are older than the pipeline keeps them. For a stateful flow, late: rows that came after the
    watermark; unfollowed: changes of inputs other than appends, which it cannot follow; state_rows and state_bytes: its state of open
    windows.
    """

    batches: int = _count()
    deliveries: int = _count(is_news=True)
    rows_in: int = _count(is_news=True)
    rows_out: int = _count(is_news=True)
    inserted: int = _count()
    updated: int = _count()
    deleted: int = _count()
    quarantined: int = _count(is_news=True, alerts=True)
    dropped: int = _count(is_news=True, alerts=True)
    expired: int = _count()
    suppressed: int = _count(is_news=True, alerts=True)
    rescued: int = _count(alerts=True)
    late: int = _count(is_news=True)
    unfollowed: int = _count(is_news=True)
    state_rows: int = _count()
    state_bytes: int = _count()

    def add_to_count(self, name: str, number: int) -> None:
        """Add a number to a count of `FLOW_COUNTS`."""
        setattr(self, name, getattr(self, name) + number)

    def has_news(self) -> bool:
        """Whether the flow was given anything, even if its table did not change."""
        return any(getattr(self, name) for name in NEWS_COUNTS)


FLOW_COUNTS = tuple(one.name for one in fields(FlowCounts))
NEWS_COUNTS = tuple(one.name for one in fields(FlowCounts) if one.metadata["is_news"])
ALERT_COUNTS = tuple(one.name for one in fields(FlowCounts) if one.metadata["alerts"])
"""The counts of every table besides its rules that an alert may name instead of a rule."""
