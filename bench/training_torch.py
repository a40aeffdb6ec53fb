# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""The rival of bench training that is Python: PyTorch as its tutorials use it. Answers "MODEL BATCH SECONDS" on standard input, see training.cc."""

import sys
import time

import torch
from torch import nn


def make_model(name):
    if name == "lenet5":
        return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))


def samples_per_second(name, batch, limit):
    model = make_model(name)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    inputs = torch.randn(batch, 1, 28, 28)
    labels = torch.arange(batch) % 10
    steps = 0
    begin = None
    while begin is None or time.perf_counter() - begin < limit:
        optimiser.zero_grad()
        loss(model(inputs), labels).backward()
        optimiser.step()
        if begin is None:
            begin = time.perf_counter()
        else:
            steps += 1
    return steps * batch / (time.perf_counter() - begin)


def main():
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        print(f"pytorch={samples_per_second(words[0], int(words[1]), float(words[2]))}", flush=True)


if __name__ == "__main__":
    main()
