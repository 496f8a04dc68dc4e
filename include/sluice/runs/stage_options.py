"""What a stage is asked for besides its mode: one record, from the arguments of a job to the function that carries the stage out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.pipeline_stages import VerifyChoice

if TYPE_CHECKING:
    from sluice.declare.datasets.dataset import Dataset
    from sluice.declare.ingest.source import Source


def is_always_due(item: Source | Dataset[Any]) -> bool:
    """Says of each flow that it is to run, which is so unless a process is kept running."""
    return True


@dataclass(frozen=True)
class StageOptions:
    """The options of a stage, for the stages that use them.

    tables: what a replay or a refresh is for; empty means all. verify: what the stage `verify` compares: the next table in turn, all, or the
    tables of these names. optimize_now: the tables whose files the stage `optimize` rewrites whether or not they need it. requests: the
    erasure requests to carry out; empty means all. due: says for each flow of a layer whether to run it, after those that it reads have run.
    """

    tables: Sequence[str] = ()
    verify: VerifyChoice | tuple[str, ...] = "next"
    optimize_now: Sequence[str] = ()
    requests: Sequence[str] = ()
    due: Callable[[Source | Dataset[Any]], bool] = is_always_due


SCHEDULED = StageOptions()
"""What a scheduled run asks of its stages."""
