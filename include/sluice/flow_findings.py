"""What the run ledger keeps of one flow in one run. A new finding is a field here: reports and the run ledger take their lists from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from sluice.flow_counts import FlowCounts


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
