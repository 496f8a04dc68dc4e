"""The states of the run ledger: how a flow's part of a run ended. All rooms import them from here."""

from __future__ import annotations

DONE = "done"
FAILED = "failed"
