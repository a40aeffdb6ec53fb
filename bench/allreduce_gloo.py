# Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
"""A rival of bench allreduce: gloo through PyTorch, in two processes on loopback. Answers "allreduce FLOATS REPEAT" on standard input with the seconds of
one all-reduce, see allreduce.cc."""

import sys
import time

import torch
import torch.distributed as dist

from strategies_ddp import main


def measure(_, floats, repeat):
    values = torch.zeros(floats)
    for _ in range(2):
        dist.all_reduce(values)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(int(repeat)):
        dist.all_reduce(values)
    return (time.perf_counter() - begin) / int(repeat)


if __name__ == "__main__":
    sys.exit(main("gloo", measure))
