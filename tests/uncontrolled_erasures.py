"""Erasures that nobody will prove: of each, a control would be planted and erased in every kind of store, which takes half of its time.

`integration/erasure/test_certificate.py` proves one whose control lies in every kind of store, and so do the slow histories.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.erasure import canary


@contextmanager
def controls_left_out() -> Iterator[None]:
    """Erasures go on as for a request that has no control: it is carried out as any other, and cannot be proved."""
    with pytest.MonkeyPatch.context() as patch:  # of its own, since tests undo theirs
        patch.setattr(canary, "plant_canary", lambda _, asked: list(asked))
        yield


@pytest.fixture
def uncontrolled() -> Iterator[None]:
    """No erasure of the test has a control."""
    with controls_left_out():
        yield
