"""A headless Chromium that tests drive over its debugging pipe: no driver and no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from patience import HANG_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium():
    """Return the program; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """Chromium refused a command, or did not answer."""


class Browser:
    """One page. `events` holds what it said since the last `open`."""

    def __init__(self, program, profile):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        os.set_inheritable(to_read, True)
        os.set_inheritable(to_write, True)
        flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --mute-audio"
        flags += (
            " --no-first-run --disable-extensions --hide-scrollbars --disable-background-networking"
        )
        to_3_and_4 = f'exec "$@" 3<&{to_read} 4>&{to_write}'  # where Chromium looks for its pipe
        command = ["bash", "-c", to_3_and_4, "bash", program, *flags.split()]
        command += [f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(to_read, to_write), **quiet)
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._count = 0
        self._session = None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self._write)  # the pipe's end is the signal to go
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def call(self, method, **params):
        """Send a command and return its result; events that come before it are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._count:
                if "error" in got:
                    raise BrowserError(f"{method}: {got['error']}")
                return got["result"]

    def _next(self):
        end = time.monotonic() + HANG_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._read, 1 << 16) if ready else b""
            if not chunk:
                raise BrowserError("Chromium has ended, or does not answer")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path, *, width=1280, height=900, scripts=True, **media):
        """Load a file. `media` are features: `prefers_color_scheme="dark"`."""
        self.events.clear()
        is_phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)  # fmt: skip
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        features = [{"name": k.replace("_", "-"), "value": v} for k, v in media.items()]
        self.call("Emulation.setEmulatedMedia", media="", features=features)
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def js(self, expression):
        """Return the value of an expression in the page."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            raise BrowserError(str(got["exceptionDetails"]))
        return got["result"].get("value")

    def key(self, name):
        """Press a key as a person does; `Tab`, `ArrowRight`, `Enter`, ..."""
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
        common = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        text = {"text": "\r"} if name == "Enter" else {}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path, *, whole=False, clip=None):
        """Write a PNG of what is seen, of the whole page, or of a part (x, y, width, height)."""
        area = {}
        if clip is not None:
            area = {"clip": {**dict(zip(("x", "y", "width", "height"), clip, strict=True)),
                             "scale": 1}}  # fmt: skip
        got = self.call("Page.captureScreenshot", format="png",
                        captureBeyondViewport=whole or clip is not None, **area)  # fmt: skip
        Path(path).write_bytes(base64.b64decode(got["data"]))

    def complaints(self):
        """Return what went to the console as an error or a warning, and what was thrown."""
        found = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
        return found

    def requests(self):
        """Return every address that was asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def browser():
    """Start Chromium with a fresh profile, and end it."""
    program = find_chromium()
    if program is None:
        raise BrowserError(f"there is none of {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(
        prefix="rltune-browser-", ignore_cleanup_errors=True
    ) as profile:
        started = Browser(program, profile)
        try:
            yield started
        finally:
            started.close()
