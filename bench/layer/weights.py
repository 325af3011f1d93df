#!/usr/bin/env python3
"""Writes random weights for models of export.py: the file that each names for them.

    weights.py MODEL.onnx ... [--seed 1]

They depend on their shape, their type and the seed, so that models that differ in the form of their experts compute the
same. A matrix has deviation 1/sqrt(inputs), so that activations keep their size.
"""

import argparse
import math
import pathlib

import ml_dtypes
import numpy as np
import onnx

TYPES = {
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    onnx.TensorProto.FLOAT: np.float32,
}
# One series of numbers, of a length that no dimension divides, is repeated: drawing all of them would take a minute.
PERIOD = 16777213
HIDDEN, INNER = 2048, (768, 512)  # of Qwen3-30B-A3B and Qwen3-Next
# An expert's matrix by its last dimensions: its shape as [outputs, inputs], and the function that converts it.
EXPERTS = {}
for n in INNER:  # of an expert
    EXPERTS[2 * n, HIDDEN] = (2 * n, HIDDEN), lambda w: w
    EXPERTS[HIDDEN, 2 * n] = (2 * n, HIDDEN), lambda w: w.T
    EXPERTS[HIDDEN, n] = (HIDDEN, n), lambda w: w
    EXPERTS[n, HIDDEN] = (HIDDEN, n), lambda w: w.T


class Numbers:
    """Returns normal numbers of a type, from one series."""

    def __init__(self, seed, dtype):
        rng = np.random.Generator(np.random.SFC64(seed))
        self.series, self.dtype, self.at = rng.standard_normal(PERIOD, dtype=np.float32), dtype, 0
        self.scaled = {}

    def take(self, count, inputs):
        if inputs not in self.scaled:
            self.scaled[inputs] = (self.series / math.sqrt(inputs)).astype(self.dtype)
        out = np.empty(count, self.dtype)
        done = 0
        while done < count:
            n = min(count - done, PERIOD - self.at)
            out[done : done + n] = self.scaled[inputs][self.at : self.at + n]
            done, self.at = done + n, (self.at + n) % PERIOD
        return out


def pieces(numbers, tensor, interleaved):
    """Yields the elements of a weight, an expert at a time."""
    dims = tuple(tensor.dims)
    if len(dims) == 3 and dims[1:] not in EXPERTS:
        for _ in range(dims[0]):
            yield numbers.take(dims[1] * dims[2], min(dims[1:]))
        return
    if len(dims) == 2:
        yield numbers.take(math.prod(dims), HIDDEN if HIDDEN in dims else min(dims))
        return
    shape, layout = EXPERTS[dims[1:]]
    for _ in range(dims[0]):
        w = numbers.take(math.prod(shape), shape[1]).reshape(shape)
        if interleaved and shape[1] == HIDDEN:  # gate and up
            w = w.reshape(2, shape[0] // 2, HIDDEN).swapaxes(0, 1).reshape(shape)
        yield np.ascontiguousarray(layout(w))


def write(path, seed):
    model = onnx.load(path, load_external_data=False)
    interleaved = any(e.key == "gate_up" and e.value == "interleaved" for e in model.metadata_props)
    tensors = []
    for tensor in model.graph.initializer:
        where = {e.key: e.value for e in tensor.external_data}
        if where:
            tensors.append((int(where["offset"]), int(where["length"]), where["location"], tensor))
    tensors.sort(key=lambda t: t[0])
    (name,) = {t[2] for t in tensors}
    numbers = Numbers(seed, TYPES[tensors[0][3].data_type])
    with open(path.parent / name, "wb") as f:
        for offset, length, _, tensor in tensors:
            f.seek(offset)
            written = sum(f.write(p.view(np.uint8).data) for p in pieces(numbers, tensor, interleaved))
            assert written == length, f"{tensor.name}: {written} bytes, the model says {length}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for path in args.models:
        write(path, args.seed)


if __name__ == "__main__":
    main()
