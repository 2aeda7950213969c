"""Debian's Chromium, headless, over its own protocol: opens a page, looks at it, presses keys, takes pictures."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0
LARGEST = 64 * 1024 * 1024
MISSING = "no Chromium here: apt-get install chromium"


def command() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One tab. For `with`."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="chromium-"))
        self._loop = asyncio.new_event_loop()
        self._socket: WebSocketClientConnection | None = None
        self._number = 0
        self.errors: list[str] = []
        """Errors that the page's script threw, and requests that its policy refused."""
        self.requests: list[str] = []
        found = command()
        assert found is not None, MISSING
        self._process = subprocess.Popen(
            [found, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--no-first-run",
             f"--user-data-dir={self._place}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> Chromium:
        try:
            self._socket = self._wait(self._connect())
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._process.kill()
        self._process.wait()
        self._loop.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> Any:
        return self._wait(self._call(method, parameters))

    def open(self, url: str) -> None:
        """Returns when the page's script has shown something."""
        self.call("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.shown > 0")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, (
                f"not within {seconds:g} s: {expression}\n{self.errors}\n{self.text()[:2000]}"
            )
            self._wait(asyncio.sleep(0.05))

    def text(self, selector: str = "body") -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def press(self, key: str, text: str = "") -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        for letter in text:
            self.press(letter, letter)

    def screen(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _wait(self, coming: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(coming, PATIENCE))

    async def _connect(self) -> WebSocketClientConnection:
        told = self._place / "DevToolsActivePort"
        while not told.exists() or not told.read_text().strip():
            assert self._process.poll() is None, "Chromium ended"
            await asyncio.sleep(0.05)
        port = told.read_text().splitlines()[0]
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
            if pages:
                return await websocket_connect(pages[0]["webSocketDebuggerUrl"], max_message_size=LARGEST)
            await asyncio.sleep(0.05)

    async def _call(self, method: str, parameters: dict[str, Any]) -> Any:
        assert self._socket is not None
        self._number += 1
        number = self._number
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = await self._socket.read_message()
            assert message is not None, "Chromium closed the connection"
            answer = json.loads(message)
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(event["params"]["exceptionDetails"])[:500])
            case "Log.entryAdded" if event["params"]["entry"]["level"] == "error":
                self.errors.append(event["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
