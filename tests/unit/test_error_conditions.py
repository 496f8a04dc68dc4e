"""The call site of a refused query is reported only if Spark knows the Python line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sluice.error_conditions import explain_refused_query

MISMATCH = "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES"


class Refused(Exception):
    """What `refused_query` asks of an AnalysisException; its call site depends on how warm the JVM is, so it is given here."""

    def __init__(self, call_site: str) -> None:
        super().__init__(f"[{MISMATCH}] Cannot resolve 'SSN-078'")
        self.call_site = call_site

    def getCondition(self) -> str:
        return MISMATCH

    def getQueryContext(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(contextType=lambda: SimpleNamespace(name="DataFrame"), callSite=lambda: self.call_site)]


@pytest.mark.parametrize(
    ("call_site", "told"),
    [
        ("/pipelines/gym/silver.py:12", ", at /pipelines/gym/silver.py:12."),
        ("jdk.internal.reflect.GeneratedMethodAccessor763.invoke(Unknown Source)", "DIFF_TYPES. "),
    ],
)
def test_only_a_line_of_python_is_a_call_site(call_site: str, told: str) -> None:
    why = explain_refused_query(Refused(call_site))
    assert told in why and MISMATCH in why
    assert "SSN" not in why and "jdk." not in why
