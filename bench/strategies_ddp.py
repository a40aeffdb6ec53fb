# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""The rival of bench strategies: PyTorch's DistributedDataParallel in two processes on loopback, as its tutorials use it. Answers "MODEL BATCH SECONDS" on
standard input with the samples per second of both together, see strategies.cc."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training_torch import make_model

WORKERS = 2


def samples_per_second(name, batch, limit):
    model = DistributedDataParallel(make_model(name))
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
    # All processes must take the same number of steps, so the first says how many fit.
    steps = torch.tensor([max(1, int(limit / (run(5) / 5)))])
    dist.broadcast(steps, 0)
    dist.barrier()
    return WORKERS * int(steps) * batch / run(int(steps))


def work(rank, port, measure, requests, answers):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
    if rank == 0:
        answers.put("ready")
    for request in iter(requests.get, None):
        result = measure(*request)
        if rank == 0:
            answers.put(result)
    dist.destroy_process_group()


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(column, measure):
    """Two processes that do `measure` as often as standard input asks for it."""
    context = multiprocessing.get_context("spawn")
    requests = [context.Queue() for _ in range(WORKERS)]
    answers = context.Queue()
    port = free_port()
    workers = [context.Process(target=work, args=(rank, port, measure, requests[rank], answers), daemon=True) for rank in range(WORKERS)]
    for worker in workers:
        worker.start()
    print(answers.get(timeout=120), flush=True)
    for line in sys.stdin:
        name, batch, limit = line.split()
        for queue in requests:
            queue.put((name, int(batch), float(limit)))
        print(f"{column}={answers.get(timeout=300)}", flush=True)
    for queue in requests:
        queue.put(None)
    for worker in workers:
        worker.join(timeout=30)


if __name__ == "__main__":
    main("ddp", samples_per_second)
