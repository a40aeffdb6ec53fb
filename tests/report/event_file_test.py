#!/usr/bin/env python3
# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""Reads what `starling train --tensorboard` leaves with a parser of its own, written from the descriptions of TFRecord, protocol buffers and
event.proto: every record's checksums, and every value against metrics.jsonl.  event_file_test.py PROGRAM"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""

# Tag in the event file: key in metrics.jsonl.
TAGS = {
    "train/loss": "train_loss",
    "train/batch_loss": "loss",
    "train/gradient_norm": "gradient_norm",
    "test/loss": "test_loss",
    "test/accuracy": "test_accuracy",
    "weights/norm": "weight_norm",
    "staleness/mean": "staleness",
    "staleness/skew": "skew",
    "exchange/applications": "applications",
    "exchange/bytes_sent": "bytes_sent",
    "throughput/samples_per_second": "samples_per_second",
    "progress/epoch": "epoch",
    "progress/samples": "samples",
    "progress/seconds": "seconds",
    "schedule/lr": "lr",
    "schedule/batch": "batch",
}

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5


def crc32c(data):
    """Bit by bit, as the polynomial division is defined."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def unmasked(value):
    rotated = (value - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated << 15) | (rotated >> 17)) & 0xFFFFFFFF


def records(data):
    """The payloads of a file of records; ValueError where anything is wrong."""
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            raise ValueError("a header is cut off")
        length, length_crc = struct.unpack_from("<QI", data, at)
        if crc32c(data[at : at + 8]) != unmasked(length_crc):
            raise ValueError("the checksum of a length is wrong")
        end = at + 12 + length
        if end + 4 > len(data):
            raise ValueError("a record is cut off")
        payload = data[at + 12 : end]
        if crc32c(payload) != unmasked(struct.unpack_from("<I", data, end)[0]):
            raise ValueError("the checksum of a record is wrong")
        yield payload
        at = end + 4


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, wire type, value) of a message of protocol buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = varint(data, at)
        elif wire == EIGHT_BYTES:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif wire == FOUR_BYTES:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif wire == BYTES:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"a wire type {wire}")
        yield number, wire, value


def event(payload):
    """What an Event of event.proto says, of the fields that we know; any other is an error."""
    result = {"wall_time": 0.0, "step": 0}
    for number, wire, value in fields(payload):
        if (number, wire) == (1, EIGHT_BYTES):
            result["wall_time"] = value
        elif (number, wire) == (2, VARINT):
            result["step"] = value
        elif (number, wire) == (3, BYTES):
            result["file_version"] = value.decode()
        elif (number, wire) == (5, BYTES):
            result["values"] = dict(summary_values(value))
        elif (number, wire) == (7, BYTES):
            result["session"] = {n: v for n, _, v in fields(value)}
        else:
            raise ValueError(f"field {number} of type {wire} in an event")
    return result


def summary_values(data):
    for number, wire, value in fields(data):
        if (number, wire) != (1, BYTES):
            raise ValueError(f"field {number} in a summary")
        parts = {(n, w): v for n, w, v in fields(value)}
        if set(parts) != {(1, BYTES), (2, FOUR_BYTES)}:
            raise ValueError(f"a value with the fields {sorted(parts)}")
        yield parts[1, BYTES].decode(), parts[2, FOUR_BYTES]


def event_files(run):
    folder = os.path.join(run, "tensorboard")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def read_events(path):
    with open(path, "rb") as file:
        return [event(payload) for payload in records(file.read())]


def as_tensorboard_shows(run):
    """All events with values, as TensorBoard has them after reading the files in order: a start of session that is not the first drops
    what is of its step or later."""
    kept, started = [], False
    for path in event_files(run):
        for one in read_events(path):
            if "session" in one:
                if started:
                    kept = [old for old in kept if old["step"] < one["step"]]
                started = True
            elif "values" in one:
                kept.append(one)
    return kept


def metrics(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def train(arguments, code=0):
    done = subprocess.run([PROGRAM, "train"] + arguments, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}: {' '.join(arguments)}\n{done.stderr}")
    return done.stderr


SMALL = ["--model", "dense 8, relu, dense 3", "--data", "blobs:classes=3,samples=600", "--metrics-every", "3"]
SIM = SMALL + ["--workers", "2", "--strategy", "async", "--fabric", "sim"]


class EventFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="starling_events_")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def expect_equal(self, shown, recorded):
        """The same records, with the same values rounded to floats."""
        self.assertEqual([one["step"] for one in shown], [record["step"] for record in recorded])
        for one, record in zip(shown, recorded):
            expected = {tag: record[key] for tag, key in TAGS.items() if key in record}
            self.assertEqual(set(one["values"]), set(expected), record)
            for tag, value in expected.items():
                if value is None:  # Not finite.
                    self.assertFalse(math.isfinite(one["values"][tag]), tag)
                else:
                    self.assertEqual(one["values"][tag], struct.unpack("<f", struct.pack("<f", value))[0], tag)

    def test_a_run_of_the_simulator(self):
        run = self.path("a")
        train(SIM + ["--epochs", "3", "--tensorboard", "--out", run])
        files = event_files(run)
        self.assertEqual(len(files), 1)
        self.assertIn("tfevents", os.path.basename(files[0]))
        events = read_events(files[0])
        self.assertEqual(events[0], {"wall_time": 0.0, "step": 0, "file_version": "brain.Event:2"})
        self.assertEqual(events[1], {"wall_time": 0.0, "step": 0, "session": {1: 1}})
        recorded = metrics(run)
        self.expect_equal(events[2:], recorded)
        shown_tags = set().union(*(one["values"] for one in events[2:]))
        self.assertEqual(set(TAGS) - shown_tags, set(), "a tag that no record has")
        # Virtual time: that of the records.
        self.assertEqual([one["wall_time"] for one in events[2:]], [record["seconds"] for record in recorded])

    def test_the_simulator_gives_the_same_bytes_again(self):
        contents = []
        for name in ("a", "b"):
            train(SIM + ["--epochs", "2", "--tensorboard", "--out", self.path(name)])
            with open(event_files(self.path(name))[0], "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1])

    def test_real_time_is_that_of_the_wall(self):
        run, before = self.path("a"), time.time()
        errors = train(SMALL + ["--epochs", "1", "--tensorboard", "--out", run])
        times = [one["wall_time"] for one in read_events(event_files(run)[0])]
        self.assertEqual(times, sorted(times))
        self.assertGreaterEqual(times[0], before - 1)
        self.assertLessEqual(times[-1], time.time() + 1)
        self.expect_equal(as_tensorboard_shows(run), metrics(run))
        self.assertIn(f"tensorboard --logdir {run}", errors)

    def test_a_run_that_goes_on_begins_a_file_and_replaces_what_is_done_again(self):
        run = self.path("a")
        train(SIM + ["--epochs", "2", "--tensorboard", "--out", run])
        first = metrics(run)
        train(["--resume", run, "--epochs", "4"])  # It has a log, and keeps it without being asked.
        self.assertEqual(len(event_files(run)), 2)
        self.expect_equal(as_tensorboard_shows(run), metrics(run))
        self.assertGreater(len(metrics(run)), len(first))
        # Back to an older checkpoint: what came after it is dropped from the metrics, and so it must be here.
        names = sorted(name for name in os.listdir(os.path.join(run, "checkpoints")) if name.startswith("step-"))
        train(["--resume", run, "--checkpoint", names[0], "--epochs", "4", "--tensorboard"])
        self.assertEqual(len(event_files(run)), 3)
        total = sum("values" in one for path in event_files(run) for one in read_events(path))
        self.assertGreater(total, len(metrics(run)), "nothing was done again: the test shows nothing")
        self.expect_equal(as_tensorboard_shows(run), metrics(run))

    def test_a_run_that_diverges(self):
        run = self.path("a")
        train(SMALL + ["--epochs", "2", "--lr", "1e38", "--on-nan", "skip", "--tensorboard", "--out", run], code=3)
        self.assertGreater(len(metrics(run)), 0)
        self.expect_equal(as_tensorboard_shows(run), metrics(run))

    def test_without_the_flag_there_is_no_log(self):
        train(SMALL + ["--epochs", "1", "--out", self.path("a")])
        train(["--resume", self.path("a"), "--epochs", "2"])
        self.assertFalse(os.path.exists(self.path("a/tensorboard")))

    def test_the_parser_sees_every_byte_that_is_wrong(self):
        run = self.path("a")
        train(SMALL[:-1] + ["0", "--epochs", "1", "--tensorboard", "--out", run])
        with open(event_files(run)[0], "rb") as file:
            data = file.read()
        list(records(data))
        for at in range(len(data)):
            with self.assertRaises(ValueError):
                list(records(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]))

    def test_known_checksums(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
