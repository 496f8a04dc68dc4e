"""Which kind of failure it was: a few words that the run ledger keeps and the report shows, without any text of the error."""

from __future__ import annotations

import pytest

from sluice import error_conditions
from sluice.errors import RuleNotMet, SluiceError, UsageError
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
        (SluiceError("The landing folder: Permission denied"), "SluiceError"),
        (RuleNotMet("Table 'order': 3 rows do not meet 'paid'"), "RuleNotMet"),
    ],
)
def test_a_failure_has_a_name_without_its_text(error: Exception, name: str) -> None:
    assert name_failure(error) == name


def test_whatever_state_the_jars_are_in_a_failure_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_broken_jar(_: str) -> str:
        raise KeyError("error/delta-error-classes.json")

    monkeypatch.setattr(error_conditions, "last_error_condition", read_broken_jar)
    assert name_failure(ValueError("'ada'")) == "ValueError", "the record of the run is not lost for it"
