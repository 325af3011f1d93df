#!/usr/bin/env python3
"""Prints how long the GPU works on each kernel in a run of layers of export.py, by PyTorch's profiler in the same
process.

    kernels.py MODEL.onnx ... [--library libmojo_ops_cuda.so] [--batch 1] [--sequence 1] [--past 512] [--top 12]

onnxruntime's own profile has times of the host alone.
"""

import argparse
import collections

import numpy as np
import torch
from bind import HEAD, HEADS, HIDDEN, Layer
from torch.profiler import ProfilerActivity, profile

RUNS = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--library")
    for name, value in (("batch", 1), ("sequence", 1), ("past", 512), ("top", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.zeros(1, device="cuda")
    rng = np.random.default_rng(1)
    for path in args.models:
        layer = Layer(path, args.library)
        words = rng.standard_normal((args.batch, args.sequence, HIDDEN), dtype=np.float32).astype(layer.dtype)
        past = rng.standard_normal((args.batch, HEADS, args.past, HEAD), dtype=np.float32).astype(layer.dtype)
        layer.run(words, args.past + args.sequence, (past, past))
        for _ in range(3):
            layer.run()
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            for _ in range(RUNS):
                layer.run()
            torch.cuda.synchronize()
        kernels = collections.defaultdict(lambda: [0, 0.0])
        for event in p.events():
            entry = kernels[event.name]
            entry[0] += 1
            entry[1] += event.device_time_total
        total = sum(t for _, t in kernels.values()) / RUNS
        print(f"{path}: {total:.1f} us in {sum(n for n, _ in kernels.values()) / RUNS:.0f} kernels and copies")
        for name, (n, t) in sorted(kernels.items(), key=lambda k: -k[1][1])[: args.top]:
            print(f"  {t / RUNS:9.1f} us  {n / RUNS:5.1f} x  {name[:110]}")


if __name__ == "__main__":
    main()
