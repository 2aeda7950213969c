"""Debian's Chromium, headless, over its DevTools protocol: opens a page, reads it, presses keys, takes pictures."""

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
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MISSING = "no Chromium here: apt-get install chromium"


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One tab of a browser that ends with its `with` block."""

    def __init__(self) -> None:
        self._profile = Path(tempfile.mkdtemp(prefix="chromium-"))
        self._loop = asyncio.new_event_loop()
        self._socket: WebSocketClientConnection | None = None
        self._number = 0
        self.errors: list[str] = []
        """Errors that the page's script threw, and requests that its policy refused."""
        self.requests: list[str] = []
        program = find_chromium()
        assert program is not None, MISSING
        self._process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
             "--remote-debugging-port=0",
             f"--user-data-dir={self._profile}", "about:blank"],
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
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> Any:
        return self._wait(self._call(method, parameters))

    def open(self, url: str) -> None:
        """Opens the page, and returns once its script has shown something."""
        self.call("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.shown > 0")

    def value(self, expression: str) -> Any:
        """Returns the value of an expression in the page."""
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

    def picture(self, file: Path, full_page: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full_page)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _wait(self, awaitable: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(awaitable, PATIENCE))

    async def _connect(self) -> WebSocketClientConnection:
        port_file = self._profile / "DevToolsActivePort"
        while not port_file.exists() or not port_file.read_text().strip():
            assert self._process.poll() is None, "Chromium ended"
            await asyncio.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
            if pages:
                return await websocket_connect(pages[0]["webSocketDebuggerUrl"], max_message_size=MAX_MESSAGE_BYTES)
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
            self._note_event(answer)

    def _note_event(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(event["params"]["exceptionDetails"])[:500])
            case "Log.entryAdded" if event["params"]["entry"]["level"] == "error":
                self.errors.append(event["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
