"""A case is a small model written as people of one framework write it, with the blocks that it has by construction."""

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx

BLOCKS = "rmsnorm", "layernorm", "rope", "glu", "router", "moe"
# The sizes that the named dimensions take in the recorded cases.
SIZES = [{"B": 2, "S": 7, "T": 9}, {"B": 1, "S": 5, "T": 4}, {"B": 3, "S": 2, "T": 17}]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    blocks: dict[str, int]
    build: Callable
    opset: int | None = None


class Cases(list):
    """Cases of one toolchain; the decorator adds the function below it. Opsets are taken in turn, by the name."""

    def __init__(self, opsets=(None,)):
        super().__init__()
        self.opsets = opsets

    def __call__(self, name, opset=None, **blocks):
        unknown = set(blocks) - set(BLOCKS)
        assert not unknown, unknown
        assert all(c.name != name for c in self), name

        def add(build):
            own = opset or self.opsets[sum(name.encode()) % len(self.opsets)]
            self.append(Case(name, {b: blocks.get(b, 0) for b in BLOCKS}, build, own))
            return build

        return add


class Weights:
    """Random weights of one case, away from their neutral values so that a lost one shows."""

    def __init__(self, name):
        self.r = np.random.default_rng(list(name.encode()))

    def scale(self, *shape, dtype=np.float32):
        return self.r.uniform(0.5, 1.5, shape).astype(dtype)

    def matrix(self, *shape, dtype=np.float32):
        return (self.r.standard_normal(shape) * 1.4 / np.sqrt(shape[-2])).astype(dtype)

    def bias(self, *shape, dtype=np.float32):
        return self.r.uniform(-0.5, 0.5, shape).astype(dtype)


def inputs(name, shapes, sizes):
    """Draws the inputs of a case: shapes has (dtype, dimensions) by name. Integers are positions, from a start on."""
    r = np.random.default_rng(list(name.encode()) + list(sizes.values()))
    out = {}
    for key, (dtype, dims) in shapes.items():
        names = "BS" if None in dims else ""  # for dimensions without a size
        shape = [sizes.get(names[i] if d is None else d, d) for i, d in enumerate(dims)]
        if np.issubdtype(dtype, np.integer):
            out[key] = np.broadcast_to(np.arange(shape[-1]) + 3, shape).astype(dtype)
        else:
            out[key] = (r.standard_normal(shape) * r.uniform(0.5, 2)).astype(dtype)
    return out


def f32(*dims):
    return np.float32, dims


def f16(*dims):
    return np.float16, dims


def i32(*dims):
    return np.int32, dims


def angles(positions, size, theta=10000.0):
    """The angles of rotary embeddings in numpy: a column for each pair of channels."""
    return positions[:, None] * theta ** (-np.arange(0, size, 2) / size)


def typed(model, arrays):
    """Outputs that numpy computed, of the types that the model gives them."""
    arrays = arrays if isinstance(arrays, tuple) else (arrays,)
    types = [onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in model.graph.output]
    return [np.asarray(a).astype(t) for a, t in zip(arrays, types, strict=True)]
