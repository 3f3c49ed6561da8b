"""A Chromium without a window, driven by its own protocol through two pipes: pages as a browser shows them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.patience import wait_until


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
        wait_until(lambda: self.value("document.readyState") == "complete", url)

    def value(self, script: str) -> Any:
        """Return the value of an expression on the page, a promise's when it has one."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        about = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path) -> None:
        """Write the whole page as a picture."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


__all__ = ["Browser", "binary"]
