# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium over a pipe, with nothing but Python's own library: the protocol is JSON messages, each ended by a zero byte.

    with Browser() as browser:
        page = browser.open("file:///tmp/report.html", width=1280, height=900)
        title = page.evaluate("document.title")
        page.screenshot("/tmp/report.png")
        assert not page.complaints
"""

import base64
import collections
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE_SECONDS = 60


class BrowserError(Exception):
    pass


def find_chromium():
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        raise BrowserError("there is no Chromium: apt-get install chromium, or say where it is in the environment variable CHROMIUM")
    return found


class Page:
    """One tab. `complaints` collects what the page writes to the console as a warning or an error, and exceptions nobody caught; `requests`
    the addresses it asked for."""

    def __init__(self, browser, session):
        self._browser = browser
        self._session = session
        self.complaints = []
        self.requests = []

    def call(self, method, **parameters):
        return self._browser.call(method, parameters, self._session)

    def evaluate(self, expression):
        """The value of a JavaScript expression; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details.get("text")))
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=PATIENCE_SECONDS):
        """Returns the expression's value as soon as it is true."""
        end = time.monotonic() + seconds
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise BrowserError(f"within {seconds} s this did not come true: {expression}")
            time.sleep(0.1)

    def go(self, address):
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.settle()

    def settle(self):
        """Returns when the browser has drawn twice."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def size(self, width, height, scale=1, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        self.settle()
        self.settle()

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])
        self.settle()
        self.settle()

    def key(self, name, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, text=text if kind == "keyDown" else "",
                      windowsVirtualKeyCode={"Enter": 13, " ": 32, "ArrowLeft": 37}.get(name, 0))
        self.settle()

    def drag(self, start, end):
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], button="left", buttons=1, clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=end[0], y=end[1], button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left", clickCount=1)
        self.settle()

    def screenshot(self, path, clip=None, whole=False):
        parameters = {"format": "png", "captureBeyondViewport": whole or clip is not None}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        if clip:
            parameters["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"])

    def _hear(self, method, parameters):
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(each.get("value", each.get("description"))) for each in parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])


class Browser:
    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="starling-browser-")
        flags = ["--headless=new", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--disable-extensions",
                 "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb", "--hide-scrollbars",
                 "--remote-debugging-pipe", f"--user-data-dir={self._profile}"]
        # Chromium's sandbox cannot be set up by root, nor without user namespaces; the pages are our own.
        flags += ["--no-sandbox"]
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # Away from 3 and 4, where the browser expects its ends.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]

        def place_ends():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen([find_chromium(), *flags, "about:blank"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, preexec_fn=place_ends, pass_fds=(3, 4), start_new_session=True)
        for end in (commands, answers, *ends):
            os.close(end)
        self._number = 0
        self._rest = b""
        self._messages = collections.deque()
        self._pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self._write)
        os.close(self._read)
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(timeout=10)
        except ProcessLookupError:
            self._process.wait()
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, address, width=1280, height=900, dark=False):
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Runtime", "Log", "Network", "Page"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        page.dark(dark)
        page.go(address)
        return page

    def call(self, method, parameters, session=None):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            heard = self._receive(end, method)
            if heard.get("id") == self._number:
                if "error" in heard:
                    raise BrowserError(f"{method}: {heard['error']['message']}")
                return heard["result"]
            page = self._pages.get(heard.get("sessionId"))
            if page and "method" in heard:
                page._hear(heard["method"], heard["params"])

    def _receive(self, end, method):
        while not self._messages:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise BrowserError(f"Chromium did not answer to {method} within {PATIENCE_SECONDS} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise BrowserError("Chromium has ended")
            *whole, self._rest = (self._rest + part).split(b"\0")
            self._messages.extend(json.loads(each) for each in whole)
        return self._messages.popleft()
