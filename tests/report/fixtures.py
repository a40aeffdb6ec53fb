# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""Runs made with the program itself, small enough for a test, and a comparison and a landscape in the formats that Starling writes."""

import json
import math
import os
import subprocess

USUAL = {"--model": "dense 16, relu, dense 4", "--data": "blobs:classes=4,samples=1200", "--epochs": "3", "--batch": "16", "--metrics-every": "5"}


def train(program, folder, name, *flags):
    """A run directory below `folder`, and the object that --json printed. Flags, each with its value, replace the usual ones."""
    path = os.path.join(folder, name)
    usual = {**USUAL, **dict(zip(flags[::2], flags[1::2]))}
    done = subprocess.run([program, "train", "--json", "--out", path, *(word for pair in usual.items() for word in pair)],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"training failed: {done.stderr}")
    return path, json.loads(done.stdout.strip().split("\n")[-1])


def write_json(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)
    return folder


def comparison(program, folder):
    """Two methods by three numbers of workers, two seeds; one cell has not converged at all, one in part."""
    cells = []
    for i, method in enumerate(("sync", "async")):
        for j, workers in enumerate(("2", "5", "10")):
            runs = []
            for seed in (1, 2):
                path = f"cells/{method}-{workers}-{seed}"
                real, result = (os.path.join(folder, path), None)
                if workers == "2":
                    real, result = train(program, folder, path, "--strategy", method, "--workers", workers, "--fabric", "sim", "--seed", str(seed))
                converged = not (method == "async" and (workers == "10" or (workers == "5" and seed == 2)))
                accuracy = result["test_accuracy"] if result else 0.9 - 0.05 * i - 0.03 * j + 0.01 * seed
                runs.append({"seed": seed, "path": path, "ending": "finished" if converged else "diverged", "converged": converged, "reason": "",
                             "test_accuracy": accuracy if converged else None, "test_loss": 0.4, "train_loss": 0.35, "seconds": 12.5, "samples_per_second": 1440,
                             "staleness": 1.5 * i * (j + 1), "bytes_sent": 1234567, "idle_fraction": 0.2, "steps": 225, "samples": 3600, "weights_sha256": "0" * 64})
                assert real
            cells.append({"labels": [method, workers], "runs": runs, "summary": {key: summary(runs, key) for key in ("test_accuracy", "staleness", "seconds")}})
    return write_json(folder, "comparison.json", {
        "title": "Methods by workers", "command": "starling compare --strategies sync,async --workers 2,5,10 --seeds 2",
        "axes": [{"name": "method", "labels": ["sync", "async"]}, {"name": "workers", "labels": ["2", "5", "10"]}], "rows": ["method"], "columns": ["workers"],
        "seeds": [1, 2], "values": ["test_accuracy"], "cells": cells})


def summary(runs, key):
    values = [run[key] for run in runs if run["converged"]]
    mean = sum(values) / len(values) if values else None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) if len(values) > 1 else None
    return {"mean": mean, "deviation": deviation, "minimum": min(values, default=None), "maximum": max(values, default=None), "count": len(values),
            "not_converged": len(runs) - len(values)}


def landscape(folder, names=("runs/sync", "runs/async"), size=25):
    """A valley with two paths into it; one corner of the grid is not finite."""
    def loss(x, y):
        return 0.25 + 0.06 * (x * x + 0.25 * x * y + 0.6 * y * y) + 0.12 * math.sin(1.3 * x) ** 2

    x = [-6 + 12 * i / (size - 1) for i in range(size)]
    y = [-5 + 10 * i / (size - 1) for i in range(size)]
    grid = [[loss(u, v) for u in x] for v in y]
    grid[size - 1][size - 1] = None
    paths = []
    for k, name in enumerate(names):
        points = []
        for step in range(16):
            t = 0.82 ** step
            u = 4.8 * t * math.cos(0.9 * k + 0.14 * step)
            v = (4.0 - 6 * k) * t * (1 - 0.02 * step)
            points.append({"step": 100 * step, "epoch": step / 5, "x": u, "y": v, "loss": 0.97 * loss(u, v), "accuracy": 0.9 - 0.6 * t})
        paths.append({"name": name, "points": points})
    return write_json(folder, "landscape.json", {
        "title": "Loss around the paths", "loss": "test loss", "samples": 10000, "explained_variance": [0.81, 0.07], "x": x, "y": y, "grid": grid, "trajectories": paths})
