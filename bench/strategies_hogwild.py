# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""The rival of bench strategies for hogwild: PyTorch's Hogwild! in two processes, as its example mnist_hogwild does it: the model in shared memory, and in every
process an SGD of its own that moves it in place. Answers "MODEL BATCH SECONDS" on standard input with the samples per second of both together, see
strategies.cc."""

import sys
import time

import torch
import torch.multiprocessing as multiprocessing
from torch import nn

from training_torch import make_model

WORKERS = 2


def samples_per_second(model, batch, limit, barrier, steps_of_all):
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    inputs = torch.randn(batch, 1, 28, 28)
    labels = torch.arange(batch) % 10

    def run(steps):
        begin = time.perf_counter()
        for _ in range(steps):
            optimiser.zero_grad()
            loss(model(inputs), labels).backward()
            optimiser.step()
        return time.perf_counter() - begin

    run(3)
    own = max(1, int(limit / (run(5) / 5)))
    # Both take the same number of steps and begin together, so that neither has the cores to itself.
    with steps_of_all.get_lock():
        steps_of_all.value = own if steps_of_all.value == 0 else min(own, steps_of_all.value)
    barrier.wait()
    steps = steps_of_all.value
    begin = time.perf_counter()
    run(steps)
    barrier.wait()
    return WORKERS * steps * batch / (time.perf_counter() - begin)


def work(rank, models, requests, answers, barrier, steps_of_all):
    torch.set_num_threads(1)
    answers.put("ready")
    for name, batch, limit in iter(requests.get, None):
        if rank == 0:
            steps_of_all.value = 0
        barrier.wait()
        speed = samples_per_second(models[name], batch, limit, barrier, steps_of_all)
        if rank == 0:
            answers.put(speed)


def main():
    context = multiprocessing.get_context("spawn")
    models = {name: make_model(name) for name in ("lenet5", "mlp:784-1000-1000-10")}
    for model in models.values():
        model.share_memory()
    requests = [context.Queue() for _ in range(WORKERS)]
    answers = context.Queue()
    barrier = context.Barrier(WORKERS)
    steps_of_all = context.Value("i", 0)
    workers = [
        context.Process(target=work, args=(rank, models, requests[rank], answers, barrier, steps_of_all), daemon=True) for rank in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready = answers.get(timeout=120)
    print(ready, flush=True)
    for line in sys.stdin:
        name, batch, limit = line.split()
        for queue in requests:
            queue.put((name, int(batch), float(limit)))
        print(f"torch-hogwild={answers.get(timeout=300)}", flush=True)
    for queue in requests:
        queue.put(None)
    for worker in workers:
        worker.join(timeout=30)


if __name__ == "__main__":
    main()
