"""Stateful flows: what @windowed declares, run by Spark's streams with state, and what they leave out counted and kept.

A stream of this kind takes rows that are added, once, and cannot take one back. It has one batch of data a run, so that no row is late
beside the others that came with it; what is late beside earlier runs is found by Spark's own rule and kept.
"""

from sluice.flows.stateful.flow import preview_stream_schema, run_stateful_flow

__all__ = ["preview_stream_schema", "run_stateful_flow"]
