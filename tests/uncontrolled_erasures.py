"""Asks for erasures that nobody will prove: of each, a control is planted and erased in every kind of store, which takes half of its time.

The tests of the certificate have controls, and so have `test_erasure_histories.py` and the first test of `test_erasure_shared_keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.erasure import receiving, vault
from sluice.erasure.subjects import settling

if TYPE_CHECKING:
    from tests.conftest import Lakehouse

    from sluice.erasure.vault import Identifier


def ask_for_uncontrolled_erasure(lake: Lakehouse, asked: Iterable[str | Identifier], domain: str | None = None) -> None:
    """Ask for people's erasure, settle it, and let the vault forget them: such a request is carried out, and never proved.

    asked, domain: as for `receive_erasure_request`.
    """
    request = receiving.receive_erasure_request(lake.settings, lake.graph, asked, domain)
    settling.settle_erasure_request(lake.workspace(), request)
    vault.remove_vault_entry(lake.records, request.request)
