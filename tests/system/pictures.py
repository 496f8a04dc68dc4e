"""The pictures of docs/operate.md and docs/observe.md, taken of a running Airflow. SLUICE_KEEP_IMAGES=1 puts them into docs/images."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass

from tests.system.browser import Browser
from tests.waiting import until

from orchestration.rest.client import Client

PANELS = {"details-panel,main-panel": {"expandToSizes": {}, "layout": [36, 64]}}
"""How wide the grid is beside the details, in percent, as Airflow's UI remembers it."""


@dataclass(frozen=True)
class Picture:
    """png: the picture. text: what can be read on the page."""

    png: bytes
    text: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        assert self.png.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", self.png[16:24])
        return width, height


def taken(client: Client, dag: str) -> dict[str, Picture]:
    """The grid with its groups open beside the list of runs, the trigger form, and the report's page; by file name."""
    with Browser() as browser:
        browser.go(f"{client.address}/auth/login")
        browser.cookie("_token", client._authorization().removeprefix("Bearer "))
        browser.run("localStorage.setItem('react-resizable-panels:grid-ltr', arguments[0])", json.dumps(PANELS))
        browser.view(1400, 900)
        browser.go(f"{client.address}/dags/{dag}/runs")
        browser.until("Propagate deletions", "Run Type")
        _open_groups(browser)
        grid = _settled(browser)
        browser.view(1000, 1230)
        browser.click("//button[@data-testid='trigger-dag-button']")
        browser.until("Trigger Dag", "Run Parameters", "Tables")
        form = _settled(browser)
        return {
            "grid.png": grid,
            "trigger-form.png": form,
            "report.png": take_report(browser, f"{client.address}/sluice/{dag}/report"),
        }


def take_report(browser: Browser, url: str) -> Picture:
    """The beginning of a pipeline's report."""
    browser.view(1280, 1000)
    browser.go(url)
    browser.until("Tables, and what they are made of")
    return _settled(browser)


def _open_groups(browser: Browser) -> None:
    """Expand the task groups. The list of runs has a button of the same kind; this one does nothing until the groups are known."""
    button = "//button[@aria-label='Expand all task groups']"
    browser.click(button)

    def are_open() -> bool:
        if "Bronze: new deliveries" in browser.text():
            return True
        browser.click(button)
        return False

    until(are_open, what="the task groups")


def _settled(browser: Browser) -> Picture:
    """The page once it does not move any more."""
    before = browser.picture()
    for _ in range(20):
        time.sleep(0.5)
        now = browser.picture()
        if now == before:
            break
        before = now
    return Picture(before, browser.text())
