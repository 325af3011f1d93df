#!/usr/bin/env python3
"""Compares layers of export.py with the first one, row by row, for prompts of several lengths.

    rows.py MODEL.onnx MODEL.onnx ... [--library libmojo_ops_cuda.so] [--words 64,96,512] [--cpu]

A router whose 8th and 9th expert are as good as equal may take either: then a row is apart by one expert, and the
others are not.
"""

import argparse

import numpy as np
from bind import HEAD, HEADS, HIDDEN, Layer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--library")
    parser.add_argument("--words", default="64,96,512")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    lengths = [int(n) for n in args.words.split(",")]
    want = {}
    for path in args.models:
        layer = Layer(path, args.library, args.cpu)
        for n in lengths:
            words = 0.5 * np.random.default_rng(n).standard_normal((1, n, HIDDEN), dtype=np.float32)
            empty = np.zeros((1, HEADS, 0, HEAD), layer.dtype)
            got = layer.run(words.astype(layer.dtype), n, (empty, empty))[0].numpy().astype(np.float32)[0]
            ref = want.setdefault(n, got)
            apart = np.abs(got - ref).max(1) / np.abs(ref).max()
            bad = int((~np.isfinite(got)).any(1).sum())
            if bad:
                first = int((~np.isfinite(got)).any(1).argmax())
                print(f"{path}, {n} words: {bad} rows are not finite, the first is {first}")
            elif got is not ref:
                print(f"{path}, {n} words: median row {np.median(apart):.1e} of the greatest magnitude apart, "
                      f"worst {apart.max():.1e}, {int((apart > 0.01).sum())} by more than 0.01")


if __name__ == "__main__":
    main()
