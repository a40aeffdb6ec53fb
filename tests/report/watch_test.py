# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""`starling train --watch`: python3 watch_test.py PROGRAM [TEST...]. The page of a run that goes on, its end, and who may ask for it."""

import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tools")]

from browser import Browser  # noqa: E402

PROGRAM = ""
PATIENCE_SECONDS = 60
SLACK_SECONDS = 5  # Of a busy machine.


class WatchTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="starling-watch-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def train(self, *flags, epochs=400, watch=("--watch",)):
        """A run with real delays, of about 50 ms per epoch and so about 20 s. Returns the process and the address it printed."""
        self.run_path = os.path.join(self.folder, "run")
        process = subprocess.Popen([PROGRAM, "train", "--model", "dense 8, relu, dense 3", "--data", "blobs:classes=3,samples=320", "--batch", "16", "--workers", "2",
                                    "--strategy", "async", "--delay", "all:5ms", "--epochs", str(epochs), "--metrics-every", "2", "--json", "--out", self.run_path,
                                    *watch, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, process)
        for line in process.stderr:
            found = re.match(r"watch it at (http://127\.0\.0\.1:\d+/)$", line)
            if found:
                return process, found.group(1)
        self.fail(f"no address was printed; exit code {process.wait()}")

    def stop(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def ask(self, address, path="/data.json", host=None, method="GET"):
        port = int(address.rstrip("/").rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, answer

    def slow_clients(self, address, count):
        """Clients whose request never ends: its beginning, and then a byte every half second, for as long as the test runs."""
        port = int(address.rstrip("/").rsplit(":", 1)[1])
        over = threading.Event()

        def drip():
            while not over.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
                        client.sendall(b"GET / HTTP/1.1\r\nX: ")
                        while not over.wait(0.5):
                            client.sendall(b"x")
                except OSError:
                    over.wait(0.2)  # Cut off, or there is no server any more: it comes again.

        threads = [threading.Thread(target=drip) for _ in range(count)]
        for thread in threads:
            thread.start()
            self.addCleanup(thread.join)
        self.addCleanup(over.set)
        time.sleep(1)  # Until all of them have a connection.

    def samples(self, address):
        return len(json.loads(self.ask(address)[1])["runs"][0]["steps"].get("samples", []))

    def wait_until(self, condition):
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end, "it did not come true")
            time.sleep(0.05)

    def test_the_page_follows_the_run_to_its_end(self):
        with Browser() as browser:
            process, address = self.train(epochs=160)
            page = browser.open(address)
            line = "Chart.getChart([...document.querySelectorAll('.card')].find((card) => card.querySelector('h3')?.textContent === 'Test accuracy').querySelector('canvas'))?.data.datasets[0].data.length ?? 0"
            first = page.evaluate(line)
            page.wait_for(f"({line}) > {first + 3}")
            self.assertIn("Live", page.evaluate("document.getElementById('live').textContent"))
            self.assertIn("running", page.evaluate("document.querySelector('.badge').textContent"))
            # A choice stays while data come in.
            page.evaluate("document.querySelector('[data-choice=step]').click()")
            page.wait_for("document.getElementById('live').textContent.startsWith('The run has ended')")
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
            self.assertEqual(process.returncode, 0)
            result = json.loads(output.strip().split("\n")[-1])
            self.assertEqual(page.evaluate("document.querySelector('.figure dd').firstChild.textContent"), f"{100 * result['test_accuracy']:.2f} %")
            self.assertEqual(page.evaluate("document.querySelector('.badge').textContent"), "finished")
            self.assertEqual(page.evaluate("document.querySelector('[data-choice=step]').getAttribute('aria-pressed')"), "true")
            self.assertTrue(page.evaluate("document.querySelector('.confusion') !== null"))
            self.assertEqual(page.complaints, [])
            for request in page.requests:
                self.assertTrue(request == address or request.startswith(address + "data.json?page="), request)
            with self.assertRaises(OSError):
                self.ask(address)

    def test_a_page_whose_program_is_killed_keeps_what_it_has(self):
        with Browser() as browser:
            process, address = self.train()
            page = browser.open(address)
            page.wait_for("document.querySelectorAll('.figure').length > 2")
            process.kill()
            page.wait_for("document.getElementById('live').textContent.includes('cannot be reached')")
            self.assertGreater(page.evaluate("document.querySelectorAll('.figure').length"), 2)

    def test_a_page_recovers_when_it_can_reach_a_program_again(self):
        with Browser() as browser:
            process, address = self.train()
            page = browser.open(address)
            page.wait_for("document.querySelectorAll('.figure').length > 2")
            state = json.loads(self.ask(address)[1])
            self.assertEqual(page.evaluate("document.querySelector('.badge').textContent"), "running")
            process.kill()
            process.wait()
            page.wait_for("document.querySelector('.badge').textContent === 'unknown'")
            # Another that answers at the same address.
            state["live"]["ended"] = True
            text = json.dumps(state).encode()

            class Answer(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(text)

                def log_message(self, *_):
                    pass

            with http.server.HTTPServer(("127.0.0.1", int(address.rstrip("/").rsplit(":", 1)[1])), Answer) as server:
                thread = threading.Thread(target=server.serve_forever)
                thread.start()
                try:
                    page.wait_for("document.getElementById('live').textContent.startsWith('The run has ended')")
                finally:
                    server.shutdown()
                    thread.join()

    def test_a_hidden_page_goes_on_asking_and_does_not_leave(self):
        with Browser() as browser:
            _, address = self.train(epochs=1000)
            page = browser.open(address)
            page.wait_for("document.querySelectorAll('.figure').length > 2")
            page.evaluate("""(() => { Object.defineProperty(document, "visibilityState", {get: () => "hidden", configurable: true}); document.dispatchEvent(new Event("visibilitychange")); })()""")
            before = len(page.requests)
            # The one that was under way when it was hidden, and those after it.
            self.wait_until(lambda: page.evaluate("1") and len(page.requests) >= before + 2)
            self.assertFalse([request for request in page.requests if "leaves" in request])
            page.evaluate("""(() => { Object.defineProperty(document, "visibilityState", {get: () => "visible"}); document.dispatchEvent(new Event("visibilitychange")); })()""")
            before = len(page.requests)
            self.wait_until(lambda: page.evaluate("1") and len(page.requests) >= before + 2)

    def test_new_data_do_not_disturb_the_reader(self):
        with Browser() as browser:
            _, address = self.train()
            page = browser.open(address)
            page.wait_for("document.querySelectorAll('.figure').length > 2")
            page.evaluate("""(() => { const fold = document.querySelector(".configuration details"); fold.open = true; fold.querySelector(".box").scrollLeft = 0; fold.querySelector("summary").focus();
              const chart = [...document.querySelectorAll(".course .card:not([hidden])")][0]; chart.querySelector("details").open = true; window.card = chart;
              getSelection().selectAllChildren(document.querySelector(".command code")); })()""")
            page.wait_for("window.card.querySelectorAll('tbody tr').length > 12")
            page.evaluate("(() => { const box = window.card.querySelector('.box'); box.scrollTop = 60; })()")
            # Twice new data.
            for _ in range(2):
                text = page.evaluate("document.querySelector('.figures').textContent")
                page.wait_for(f"document.querySelector('.figures').textContent !== {json.dumps(text)}")
            state = page.evaluate("""[document.querySelector(".configuration details").open, document.activeElement.tagName, String(getSelection()).startsWith("starling train"),
              window.card.querySelector("details").open, window.card.querySelector(".box")?.scrollTop ?? null]""")
            self.assertEqual(state, [True, "SUMMARY", True, True, 60])

    def test_an_interrupted_run_ends_the_server(self):
        process, address = self.train()
        self.wait_until(lambda: self.samples(address) > 5)
        before = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - before, 30)

    def test_clients_that_never_end_their_request_hold_neither_the_page_nor_the_end(self):
        for count in (4, 40):  # Fewer than the server has threads, and more.
            with self.subTest(clients=count):
                shutil.rmtree(os.path.join(self.folder, "run"), ignore_errors=True)
                process, address = self.train()
                self.slow_clients(address, count)
                before = time.monotonic()
                self.assertEqual(self.ask(address, "/data.json?page=a")[0], 200)
                self.assertEqual(self.ask(address, "/data.json?page=a&leaves")[0], 200)
                self.assertLess(time.monotonic() - before, 5 if count == 4 else 40)
                process.send_signal(signal.SIGINT)
                interrupted = time.monotonic()
                self.assertIn("epochs", process.stdout.readline())
                printed = time.monotonic()
                self.assertLess(printed - interrupted, 10)
                process.communicate(timeout=PATIENCE_SECONDS)
                self.assertLess(time.monotonic() - printed, 2 + SLACK_SECONDS)
                self.assertEqual(process.returncode, 130)

    def test_a_client_that_does_not_read_its_answer_does_not_hold_the_end(self):
        process, address = self.train()
        self.wait_until(lambda: self.samples(address) > 5)
        port = int(address.rstrip("/").rsplit(":", 1)[1])
        clients = []
        for _ in range(20):
            client = socket.socket()
            self.addCleanup(client.close)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            clients.append(client)
        process.send_signal(signal.SIGINT)
        process.stdout.readline()
        printed = time.monotonic()
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertLess(time.monotonic() - printed, 2 + SLACK_SECONDS)
        self.assertEqual(process.returncode, 130)

    def test_a_request_without_end_is_refused(self):
        process, address = self.train()
        port = int(address.rstrip("/").rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
            with self.assertRaises(OSError):
                client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000_000)
        self.assertEqual(self.ask(address)[0], 200)
        self.assertIsNone(process.poll())

    def test_the_result_is_printed_before_the_pages_are_waited_for(self):
        process, address = self.train(epochs=20)
        self.assertEqual(self.ask(address, "/data.json?page=hidden")[0], 200)  # It is open, and does not ask again.
        process.stdout.readline()
        printed = time.monotonic()
        # One that asks now gets the last state, with all there is.
        last = json.loads(self.ask(address, "/data.json?page=visible")[1])
        self.assertTrue(last["live"]["ended"])
        self.assertEqual(last["runs"][0]["result"]["ending"], "finished")
        self.assertIn('"ended":true', self.ask(address, "/")[1])
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 0)
        self.assertGreater(time.monotonic() - printed, 1)
        self.assertLess(time.monotonic() - printed, 2 + SLACK_SECONDS)

    def test_a_page_that_was_just_loaded_is_waited_for(self):
        process, address = self.train(epochs=20)
        self.assertEqual(self.ask(address, "/")[0], 200)
        process.stdout.readline()
        last = json.loads(self.ask(address, "/data.json?page=new")[1])
        printed = time.monotonic()
        self.assertTrue(last["live"]["ended"])
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 0)
        self.assertLess(time.monotonic() - printed, 2 + SLACK_SECONDS)

    def test_a_diverged_run_keeps_its_exit_code(self):
        process, address = self.train("--lr", "1e30", "--on-nan", "stop")
        try:
            self.ask(address, "/data.json?page=a")
        except OSError:
            pass  # It was that fast.
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 3)

    def test_a_page_can_say_that_it_leaves(self):
        process, address = self.train()
        self.wait_until(lambda: self.samples(address) > 5)
        self.assertEqual(self.ask(address, "/data.json?page=a")[0], 200)
        self.assertEqual(self.ask(address, "/data.json?page=a&leaves")[1], "{}")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 130)

    def test_data_grow_with_the_run(self):
        _, address = self.train()
        self.wait_until(lambda: self.samples(address) > 5)
        before = self.samples(address)
        self.wait_until(lambda: self.samples(address) > before)
        status, text, answer = self.ask(address, "/")
        self.assertEqual(status, 200)
        self.assertIn("connect-src 'self'", text)
        self.assertEqual(answer.getheader("Cache-Control"), "no-store")

    def test_only_this_machine_by_its_own_name_is_answered(self):
        _, address = self.train()
        port = address.rstrip("/").rsplit(":", 1)[1]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost"):
            self.assertEqual(self.ask(address, host=host)[0], 200, host)
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::1]"):
            for path in ("/", "/data.json", "/other"):
                status, text, _ = self.ask(address, path, host=host)
                self.assertEqual(status, 403, host)
                self.assertNotIn("runs", text)
        self.assertEqual(self.ask(address, "/other")[0], 404)
        self.assertEqual(self.ask(address, "/../run/config.toml")[0], 404)
        self.assertEqual(self.ask(address, method="DELETE")[0], 404)
        with self.assertRaises(OSError):
            socket.create_connection((self.other_address(), int(port)), timeout=5)

    def other_address(self):
        """An address of this machine that is not 127.0.0.1."""
        return "127.0.0.2"

    def test_a_port_that_is_taken_is_refused_before_anything_is_written(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for form in ([f"--watch={port}"], ["--watch", str(port)]):
                path = os.path.join(self.folder, "refused")
                done = subprocess.run([PROGRAM, "train", "--data", "blobs", "--model", "dense 3", "--out", path, *form], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"port {port} of 127.0.0.1, for --watch, is taken", done.stderr)
                self.assertFalse(os.path.exists(path))

    def test_two_programs_do_not_share_a_port(self):
        _, address = self.train()
        port = address.rstrip("/").rsplit(":", 1)[1]
        done = subprocess.run([PROGRAM, "train", "--data", "blobs", "--model", "dense 3", "--out", os.path.join(self.folder, "other"), f"--watch={port}"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_what_is_no_port_is_refused(self):
        for text in ("x", "70000", "-1", "8080x"):
            done = subprocess.run([PROGRAM, "train", "--data", "blobs", "--model", "dense 3", "--out", os.path.join(self.folder, "no"), f"--watch={text}"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn("a port is a whole number up to 65535", done.stderr)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
