"""What Python prints beside a command's own words holds no value."""

from __future__ import annotations

import subprocess
import sys

import pytest

CANARY = "SSN-078-05"
PROGRAM = f"""
import logging, threading, warnings
from sluice.withheld_texts import library_texts_withheld

def say():
    try:
        int("{CANARY}")
    except ValueError:
        logging.getLogger("py4j.clientserver").exception("failed with %s", "{CANARY}")
        logging.getLogger("pipelines.gym").exception("three files were late")
    warnings.warn("not understood: {CANARY}")
    thread = threading.Thread(target=lambda: int("{CANARY}"))
    thread.start()
    thread.join()

    class Careless:
        def __del__(self):
            int("{CANARY}")

    Careless()

with library_texts_withheld():
    say()
print("afterwards", logging.getLogger("py4j").makeRecord("py4j", 40, "", 0, "%s", ("whole",), None).getMessage())
"""


@pytest.mark.parametrize("debug", ["", "1"])
def test_libraries_records_warnings_and_errors_of_threads_are_shown_without_their_text(debug: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", PROGRAM], capture_output=True, text=True, check=True, env={"SLUICE_DEBUG": debug}
    )
    assert done.stdout == "afterwards whole\n"
    if debug:
        assert done.stderr.count(CANARY) > 4
        return
    assert CANARY not in done.stderr
    for said in (
        "py4j.clientserver: (not shown: it may quote rows) ValueError",
        "three files were late ValueError",
        "UserWarning (not shown",
        "ValueError in thread",
        "ValueError where nobody could catch it",
    ):
        assert said in done.stderr, (said, done.stderr)
