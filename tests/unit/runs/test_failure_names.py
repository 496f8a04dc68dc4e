"""Which kind of failure it was: a few words that the run ledger keeps and the report shows, without any text of the error."""

from __future__ import annotations

import pytest

from sluice.errors import UsageError
from sluice.runs.failures import name_failure


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(28, "No space left on device", "/lake/ada.parquet"), "full disk"),
        (raised_from(RuntimeError("while writing 'ada'"), MemoryError()), "short memory"),
        (Exception("[DIVIDE_BY_ZERO] Division by zero in the row of 'ada'"), "DIVIDE_BY_ZERO"),
        (
            raised_from(RuntimeError("stopped"), Exception("[CAST_INVALID_INPUT] The value 'ada' cannot be cast")),
            "CAST_INVALID_INPUT",
        ),
        (UsageError("ada.json is no such file"), "UsageError"),
    ],
)
def test_a_failure_has_a_name_without_its_text(error: Exception, name: str) -> None:
    assert name_failure(error) == name
