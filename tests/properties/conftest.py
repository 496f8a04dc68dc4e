"""Tables of these tests are tiny; what is to be shown is what flows do to large ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def affected_keys_whatever_the_size() -> Iterator[None]:
    """No view is recomputed in full because that is cheaper."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.flows.gold.choice.SMALL_ROWS", -1)
        patch.setattr("sluice.flows.gold.choice.MOST", 1_000)
        yield
