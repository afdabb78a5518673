"""A headless Chromium that tests drive, over the pipe of its DevTools protocol: nothing but the browser itself is
needed.

    with Browser(chromium(), folder) as browser:
        page = browser.open(path_of_a_file)
        page.evaluate("document.title")

Every wait ends; the browser ends with the pipe, and so with the process that holds it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LIMIT = 90.0
"""Seconds that an answer may take."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_LAUNCH = """
import os, sys
pipes = [os.dup(int(word)) for word in sys.argv[1:3]]
for pipe, place in zip(pipes, (3, 4)):
    os.dup2(pipe, place)
    os.set_inheritable(place, True)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from 3 and writes answers to 4."""


def chromium() -> str | None:
    """The browser of this machine, if any."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(AssertionError):
    """The browser, or a script in it, said no."""


class Browser:
    """A running browser; its profile is in `folder`."""

    def __init__(self, program: str, folder: Path, size: tuple[int, int] = (1500, 950)) -> None:
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-extensions", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(theirs), str(answers), program, *options],
            pass_fds=(theirs, answers), start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(answers)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in (self._write, self._read):
            os.close(pipe)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(20)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The answer of one command. Raises `BrowserError` where it is an error, or does not come."""
        self._number += 1
        message = {
            "id": self._number, "method": method, "params": parameters, **({"sessionId": session} if session else {})
        }
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LIMIT
        while True:
            answer = self._message(end)
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise BrowserError(
                    "the browser has ended" if ready else f"the browser has said nothing for {LIMIT:.0f} s"
                )
            self._rest += data
        message, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, path: Path, fragment: str = "", dark: bool = False) -> Page:
        """A page from a file, when it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        )
        page.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        page.until("document.readyState === 'complete' && document.querySelector('main')")
        return page


class Page:
    """One open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it is. Raises `BrowserError` with what it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(
                f"{expression}: "
                f"{answer['exceptionDetails'].get('exception', {}).get('description', answer['exceptionDetails'])}"
            )
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds. Raises `BrowserError` where it never does."""
        end = time.monotonic() + LIMIT
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise BrowserError(f"it never came: {condition}")
            self.evaluate("new Promise((done) => setTimeout(done, 20))")

    def press(self, key: str) -> None:
        """Press and release a key: a letter, or `Enter`, `ArrowDown` …"""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def write(self, text: str) -> None:
        """Write into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click, with the pointer, on the first element that is selected."""
        self.evaluate(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', inline: 'nearest'}})"
        )
        x, y = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getClientRects()[0]; return [b.x + "
            f"Math.min(b.width / 2, 60), b.y + b.height / 2]; }})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self) -> str:
        """What is seen, as PNG in base64."""
        return str(self.call("Page.captureScreenshot", format="png")["data"])

    @property
    def complaints(self) -> list[str]:
        """What went wrong in pages so far: exceptions, errors in the log, requests that leave the file."""
        found = []
        for event in self._browser.events:
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(event["params"]["exceptionDetails"]))
                case "Log.entryAdded" if event["params"]["entry"]["level"] == "error":
                    found.append(str(event["params"]["entry"]["text"]))
                case "Network.requestWillBeSent" if not event["params"]["request"]["url"].startswith(
                    ("file:", "data:", "blob:", "about:")
                ):
                    found.append(str(event["params"]["request"]["url"]))
        return found
