"""A Chromium without a window, driven by its own protocol through two pipes: pages as a browser shows them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from autotune.errors import MeasureError

_ATTEMPTS, _STEP_S = 30_000, 0.005
"""So often, with so many seconds between, something is expected of a page: also on a machine that stands still."""
_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
"""The numbers of keys that are no letters."""
_CONTROL = 2
"""The protocol's number of the key."""


def binary() -> str | None:
    """Return the path of an installed Chromium."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _high(end: int) -> int:
    """Return a file's number beyond those that the browser wants."""
    found = fcntl.fcntl(end, fcntl.F_DUPFD, 64)
    os.close(end)
    return found


class Browser:
    """A browser with one page; ``requests`` are the addresses that it has asked for, ``complaints`` what its console
    has said of errors."""

    def __init__(self, path: str, folder: Path) -> None:
        (to_it, self._out), (self._in, from_it) = os.pipe(), os.pipe()
        to_it, from_it = (_high(end) for end in (to_it, from_it))
        script = 'exec 3<&$0 4>&$1; shift; exec "$@"'
        flags = [
            f"--user-data-dir={folder}",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ]
        flags += ["--remote-debugging-pipe", "--disable-background-networking", "--disable-dev-shm-usage"]
        command = ["bash", "-c", script, str(to_it), str(from_it), path, *flags, "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(to_it, from_it), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_it)
        os.close(from_it)
        self._number, self._rest = 0, b""
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = next(each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters}
        call |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(call).encode() + b"\0")
        while (message := self._message()).get("id") != self._number:
            self._hear(message)
        assert "error" not in message, message
        found: dict[str, Any] = message["result"]
        return found

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _hear(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(about["exceptionDetails"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.complaints.append(about["entry"]["text"])
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(about["args"]))

    def open(self, url: str, width: int = 1400, height: int = 900, *, dark: bool = False) -> None:
        """Show a page, and wait until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """Return the value of an expression on the page, a promise's when it has one."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition: str) -> Any:
        """Return the value of an expression as soon as it is true; raises MeasureError where it stays false."""
        for _ in range(_ATTEMPTS):
            if found := self.value(condition):
                return found
            time.sleep(_STEP_S)
        raise MeasureError(f"{condition}: not after {_ATTEMPTS} attempts")

    def painted_s(self) -> float:
        """Return the seconds from the request of the page to its first paint with contents."""
        entry = "performance.getEntriesByName('first-contentful-paint')[0]"
        return float(self.until(f"{entry}?.startTime")) / 1e3

    def press(self, key: str) -> None:
        """Press a key."""
        code = _KEYS.get(key, ord(key[0]))
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {} if key in _KEYS and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse's left button in one place and leave it in another; a click where they are the same."""
        left = {"button": "left", "clickCount": 1}
        for kind, (x, y), more in (
            ("mousePressed", begin, left),
            ("mouseMoved", end, {"button": "left", "buttons": 1}),
            ("mouseReleased", end, left),
        ):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wheel(self, place: tuple[float, float], down: float, *, control: bool = False) -> None:
        """Turn the mouse's wheel."""
        (x, y), held = place, _CONTROL if control else 0
        self.ask(
            "Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=down, modifiers=held
        )

    def picture(self, path: Path) -> None:
        """Write the whole page as a picture."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


__all__ = ["Browser", "binary"]
