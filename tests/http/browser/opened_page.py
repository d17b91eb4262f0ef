"""A page that stays open in a headless Chromium, so that a test sees what a user sees, and clicks.

with OpenedPage(chromium, "http://127.0.0.1:8000", tmp_path) as page:
    page.until("document.title === 'Orders'")
    page.evaluate("document.querySelector('button').click()")
    page.screenshot(tmp_path / "page.png")

It is controlled over the browser's debugging port, whose number only this process knows.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from tests.http.browser.chromium import FLAGS, PATIENCE_S

LOOK_AGAIN_S = 0.05


class OpenedPage:
    """Started by `with`, and ended with it. Waits end with an AssertionError after PATIENCE_S."""

    def __init__(self, chromium: str, url: str, folder: Path, *, width: int = 1280, height: int = 800) -> None:
        profile = folder / "profile"
        shutil.rmtree(profile, ignore_errors=True)
        self._port_file = profile / "DevToolsActivePort"
        self._log = folder / "chromium.log"
        with self._log.open("wb") as log:
            self._browser = subprocess.Popen(
                [
                    chromium, *FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}",
                    "--remote-debugging-port=0", url,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._url = url
        self._calls = 0
        self._opened = ExitStack()
        self._connection: ClientConnection | None = None

    def __enter__(self) -> Self:
        try:
            self._connection = self._opened.enter_context(
                connect(self._debugger(), max_size=None, open_timeout=PATIENCE_S)
            )
            self.until(f"location.href.startsWith({json.dumps(self._url)}) && document.readyState === 'complete'")
        except BaseException:
            self._opened.close()
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._opened.close()
        self._end()

    @property
    def pid(self) -> int:
        """The process of the browser, which is also the session of all its processes."""
        return self._browser.pid

    def _end(self) -> None:
        self._browser.terminate()
        self._browser.wait(PATIENCE_S)

    def _debugger(self) -> str:
        """The address for commands to this page, once it exists."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self._port_file.exists() and (text := self._port_file.read_text()):
                with urllib.request.urlopen(f"http://127.0.0.1:{text.split()[0]}/json/list", timeout=PATIENCE_S) as got:
                    for target in json.loads(got.read()):
                        if target["type"] == "page" and target["url"].startswith(self._url):
                            return target["webSocketDebuggerUrl"]
            assert self._browser.poll() is None, self._log.read_text(errors="replace")
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")
            time.sleep(LOOK_AGAIN_S)

    def call(self, method: str, **params: Any) -> Any:
        """The result of a command of the debugging protocol."""
        assert self._connection is not None, "used outside of its `with` block"
        self._calls += 1
        self._connection.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        while True:
            told = json.loads(self._connection.recv(timeout=PATIENCE_S))
            if told.get("id") == self._calls:
                assert "error" not in told, told
                return told["result"]

    def evaluate(self, script: str) -> Any:
        """The JSON value of an expression, evaluated in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    @property
    def text(self) -> str:
        """The visible text of the page."""
        return self.evaluate("document.body?.innerText")

    def until(self, condition: str) -> None:
        """Wait until the expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                self.screenshot(self._log.with_name("page.png"))
                raise AssertionError(
                    f"{condition} did not come true (see page.png in {self._log.parent}):\n{self.text}"
                )
            time.sleep(LOOK_AGAIN_S)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
