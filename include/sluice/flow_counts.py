"""What a flow counts and finds in a run, a field each: reports, the run ledger, alerts and summaries take their lists from here.

A new count is a field of `FlowCounts`, any other new finding one of `FlowFindings`. The run ledger gets a column for it, which is NULL in
earlier rows.
"""

from __future__ import annotations

from collections import Counter
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


@dataclass(kw_only=True)
class FlowFindings(FlowCounts):
    """The counts and findings of one flow in one run. A dictionary is a JSON object in the run ledger."""

    flow: str = field(kw_only=False)
    version_before: int | None = None
    version_after: int | None = None
    seconds: float = 0.0
    rules: Counter[str] = field(default_factory=Counter)
    """By expectation, how many rows did not meet it."""
    null_rules: Counter[str] = field(default_factory=Counter)
    """By expectation, for how many of these rows it was NULL."""
    rules_version: str | None = None
    """The version of the rules that judged rows; None if there were none."""
    table_rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By expectation on the whole table, what was found: met (None: unknown yet), count, text."""
    quarantine_reasons: Counter[str] = field(default_factory=Counter)
    recomputed: str | None = None
    """For a view, how much was made again and why, such as "keys: 12 of 80 rows" or "full: small table"; None if nothing was."""
    written_by: str | None = None
    """What wrote the new versions: "Spark", "delta-rs" or "delta-rs, Spark"; None if there are none."""
    verified_part: str | None = None
    """Which part of the table was compared, such as "3/8"; None if nothing could be said."""
    decision: str | None = None
    """For the stages that lay tables out and remove files, whether and why they did so or not."""
    questions: dict[str, dict[str, float]] = field(default_factory=dict)
    """What a new layout bought: by column, how many files and bytes a query for one value opens by the log's statistics, before and after."""
    steps: dict[str, float] = field(default_factory=dict)
    """The seconds of its steps (`sluice.step_times`)."""
    table_files: dict[str, int] = field(default_factory=dict)
    """For a table with a new version, how many files were added and removed, with how many bytes, how many rows were copied, and how many
    files and bytes there are now."""
    spark: dict[str, float] = field(default_factory=dict)
    """What Spark counted of its jobs (`sluice.lake.spark_counters`)."""
    stream: dict[str, float] = field(default_factory=dict)
    """What Spark counted of the flow's streams (`sluice.flows.progress.stream_numbers`)."""


FLOW_FINDINGS = tuple(one.name for one in fields(FlowFindings))
