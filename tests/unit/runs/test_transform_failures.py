"""An error in a pipeline's own code is not called one of Sluice, and its line is named without a value."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.runs.failures import describe_error_without_values


def _failure_in(code: str, file: str, module: str, **names: Any) -> Exception:
    space: dict[str, Any] = {"__name__": module, **names}
    exec(compile(code, file, "exec"), space)
    with pytest.raises(Exception) as failure:
        space["transform"]()
    return failure.value


def test_a_mistake_in_a_transform_names_its_file_and_line() -> None:
    failure = _failure_in("def transform():\n    return missing('Ada')\n", "/shop/silver.py", "pipelines.shop.silver")
    said = describe_error_without_values(failure)
    assert said == "NameError in /shop/silver.py, line 2 (your transform). SLUICE_DEBUG=1 shows more (and may show data)."


def test_a_mistake_in_a_library_that_a_transform_calls_names_the_line_of_the_transform() -> None:
    code = "import json\n\ndef transform():\n    return json.loads('Ada')\n"
    said = describe_error_without_values(_failure_in(code, "/shop/silver.py", "pipelines.shop.silver"))
    assert said.startswith("JSONDecodeError in /shop/silver.py, line 4 (your transform).")


def test_a_mistake_in_the_engine_stays_one_of_sluice() -> None:
    def engine() -> Any:
        return _failure_in("def transform():\n    return missing\n", "/engine/lake.py", "sluice.lake")

    assert describe_error_without_values(engine()).startswith("NameError in Sluice itself.")
    space: dict[str, Any] = {"__name__": "sluice.lake"}
    exec(compile("def fail():\n    return missing\n", "/engine/lake.py", "exec"), space)
    failure = _failure_in("def transform():\n    return fail()\n", "/shop/silver.py", "pipelines.shop.silver", fail=space["fail"])
    assert describe_error_without_values(failure).startswith("NameError in Sluice itself.")
