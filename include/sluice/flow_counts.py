"""What a flow counts in a run, a field each: reports, the run ledger, alerts and summaries take their lists of counts from here.

A new count is a field of `FlowCounts`. The run ledger gets a column for it, which is NULL in the rows of before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _count(*, is_news: bool = False, alerts: bool = False) -> Any:
    """A count that starts at 0.

    is_news: a flow that counted any of it has found something, though its table may be as it was. alerts: an alert may be on it, as on a
    rule; so no expectation has its name.
    """
    return field(default=0, metadata={"is_news": is_news, "alerts": alerts})


@dataclass(kw_only=True)
class FlowCounts:
    """The counts of one flow in one run. rows_in: bronze records read or source rows folded; rows_out: rows written or taken out.

    Of a stateful flow: late, the rows that came after the watermark; unfollowed, changes of inputs other than appends, which it cannot
    follow; expired, rows that were set aside or late, and are older than the pipeline keeps them;
    state_rows and state_bytes, what it keeps of open windows.
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
        """Count so many more under a name of `FLOW_COUNTS`."""
        setattr(self, name, getattr(self, name) + number)

    def has_news(self) -> bool:
        """Whether the flow was given anything, though its table may be as it was."""
        return any(getattr(self, name) for name in NEWS_COUNTS)


FLOW_COUNTS = tuple(one.name for one in fields(FlowCounts))
NEWS_COUNTS = tuple(one.name for one in fields(FlowCounts) if one.metadata["is_news"])
ALERT_COUNTS = tuple(one.name for one in fields(FlowCounts) if one.metadata["alerts"])
"""What is counted of every table beside its rules, and may stand for a rule in an alert."""
