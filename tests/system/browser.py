"""A headless Chromium that is driven by the WebDriver protocol, which its chromedriver speaks; nothing else is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.system.deployment import end_process
from tests.waiting import patient_deadline

from orchestration.server.free_ports import find_free_port

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""How WebDriver names a reference to an element."""


def missing() -> str | None:
    """What is not installed of the browser, or None."""
    if not any(map(shutil.which, CHROMIUM)):
        return "chromium"
    return None if shutil.which(DRIVER) else "chromium-driver"


class Browser:
    """A window without a profile, open inside a with block."""

    def __enter__(self) -> Self:
        port = find_free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-browser-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name, "log").open("wb")
        self._driver = subprocess.Popen(
            [str(shutil.which(DRIVER)), f"--port={port}"], stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._address = f"http://127.0.0.1:{port}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            self._until_ready()
            arguments = [
                "--headless=new",
                f"--user-data-dir={self._folder.name}/profile",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--lang=en-GB",
                *(["--no-sandbox"] if os.getuid() == 0 else []),  # as root it refuses its sandbox
            ]
            binary = next(path for path in map(shutil.which, CHROMIUM) if path)
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"binary": binary, "args": arguments}}
            session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        except BaseException:
            self._end()
            raise
        self._address += f"/session/{session}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._send("DELETE", "")
        finally:
            self._end()

    def go(self, url: str) -> None:
        """Open a page."""
        self._send("POST", "/url", {"url": url})

    def cookie(self, name: str, value: str) -> None:
        """Set a cookie for the site that is open."""
        self._send("POST", "/cookie", {"cookie": {"name": name, "value": value, "path": "/"}})

    def text(self) -> str:
        """What can be read on the page, with what is in its fields."""
        fields = "[...document.querySelectorAll('input, textarea, select')].map(one => one.value)"
        return str(self.run(f"return [document.body.innerText, ...{fields}].join('\\n')"))

    def until(self, *texts: str, seconds: float = 180) -> str:
        """Wait until the page holds all of these texts; what it holds then. Raises AssertionError."""
        deadline = patient_deadline(seconds)
        while not all(text in (found := self.text()) for text in texts):
            assert time.monotonic() < deadline, f"the page does not hold {texts}:\n{found[:2000]}"
            time.sleep(0.3)
        return found

    def click(self, xpath: str, seconds: float = 90) -> None:
        """Click the first visible element that an XPath finds, once there is one. Raises AssertionError."""
        self._do_with_first(xpath, "click", {}, seconds)

    def write(self, xpath: str, text: str, seconds: float = 90) -> None:
        """Type into the first field that an XPath finds, once there is one. Raises AssertionError."""
        self._do_with_first(xpath, "value", {"text": text}, seconds)

    def _do_with_first(self, xpath: str, action: str, body: dict[str, Any], seconds: float) -> None:
        deadline = patient_deadline(seconds)
        while True:
            for found in self._send("POST", "/elements", {"using": "xpath", "value": xpath}):
                try:
                    self._send("POST", f"/element/{found[ELEMENT]}/{action}", body)
                    return
                except urllib.error.HTTPError:  # hidden, covered, or gone by now
                    continue
            assert time.monotonic() < deadline, f"nothing there for {action} at {xpath}"
            time.sleep(0.3)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body of JavaScript returns."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def view(self, width: int, height: int) -> None:
        """Give the page this size in pixels; without it the window's frame takes some of its height."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._send("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})

    def picture(self) -> bytes:
        """The page as PNG, as far as it is in view."""
        return base64.b64decode(self._send("GET", "/screenshot"))

    def _until_ready(self) -> None:
        deadline = patient_deadline(60)
        while True:
            try:
                if self._send("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            assert self._driver.poll() is None and time.monotonic() < deadline, f"{DRIVER} does not start"
            time.sleep(0.1)

    def _end(self) -> None:
        self._driver.terminate()
        end_process(self._driver, 60)
        self._log.close()
        self._folder.cleanup()

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=method)
        with self._opener.open(request, timeout=600) as answer:
            return json.load(answer)["value"]
