"""Stateful flows: Spark's streams with state run what @windowed declares; the rows that they leave out are counted and kept.

Such a stream takes added rows once and cannot take one back. Each run has one batch of data, so that no row is late compared with others
that came with it. Rows that are late compared with earlier runs are found by Spark's own rule and kept.
"""

from sluice.flows.stateful.flow import preview_stream_schema, run_stateful_flow

__all__ = ["preview_stream_schema", "run_stateful_flow"]
