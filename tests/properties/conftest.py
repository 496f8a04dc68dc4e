"""Tables of these tests are tiny; what is to be shown is what flows do to large ones, and by either way of writing."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from sluice.lake import small_writes

ONE_BY_SPARK = 16
"""One in so many writes goes through Spark, though it is small. More would show no more, and take seconds each."""


@pytest.fixture(autouse=True, scope="module")
def affected_keys_whatever_the_size() -> Iterator[None]:
    """No view is recomputed in full because that is cheaper."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.flows.gold.choice.SMALL_ROWS", -1)
        patch.setattr("sluice.flows.gold.choice.FULL_RECOMPUTE_SHARE", 1_000)
        yield


@pytest.fixture(autouse=True, scope="module")
def written_by_either_way() -> Iterator[None]:
    """A table changes its way of being written at any commit: the coin is tossed for each of them."""
    random, alike = Random(1), small_writes.is_written_alike
    tossed: list[bool] = []

    def toss_for_a_way(*arguments: Any) -> bool:
        tossed.append(random.randrange(ONE_BY_SPARK) > 0)
        return tossed[-1] and alike(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_writes, "is_written_alike", toss_for_a_way)
        yield
    assert len(tossed) < 100 or len(set(tossed)) == 2
