"""Compares decode steps of PagedAttention with those of Attention, whose keys and values are in one piece.

    python bench_paged.py LIBRARY [--shape smollm2] [--decode 128,1024,8192] [--batch 1,8] [--block 16,256]
        [--dtype float32] [--threads 1] [--rounds 41] [--codes int8,fp8]

Both write their caches in place, and run in turn in one process, as in bench_attention.py. The blocks of a sequence are
in any order. The ratio is the median of the rounds' ratios, paged over in one piece, with the first and third quartile.
With --codes, QPagedAttention with these pools runs too, in blocks of the first size.
"""
import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from bench_attention import ATTENTION, BYTES, SHAPES, TYPES, aligned, session

CODES = {"int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}
PAGED = {n: ATTENTION[n] for n in ("domain", "causal", "window", "softcap", "head_order")}


class Steps:
    """A session of some layers, each with a cache of its own: the result of a layer is the queries of the next."""

    def __init__(self, args, batch, keys, block=None, codes=None):
        (heads, key_heads, width), (element, array) = SHAPES[args.shape], TYPES[args.dtype]
        rng, length, front = np.random.default_rng(1), keys + 1, [batch] if block else [batch, 1]
        random = lambda *shape: rng.standard_normal(shape, np.float32).astype(array)
        feeds = {n: random(*front, h, width) for n, h in (("q", heads), ("k", key_heads), ("v", key_heads))}
        numbers, op, cache = {"past": np.full(batch, keys)}, "Attention", (batch, key_heads, length, width)
        if block:
            most = -(-length // block)
            numbers |= {"cum": np.arange(batch + 1), "table": rng.permutation(batch * most).reshape(batch, most)}
            numbers = {n: v.astype(np.int32) for n, v in numbers.items()}
            op, cache = "QPagedAttention" if codes else "PagedAttention", (batch * most, block, key_heads, width)
        self.count = max(2, BYTES // (2 * np.prod(cache) * np.dtype(array).itemsize))
        fill = random if not codes else lambda *shape: rng.integers(0, 96, shape, np.int8)  # no NaN as float8e4m3fn
        caches = {f"past_{n}{i}": fill(*cache) for i in range(self.count) for n in "kv"}
        scales = {f"past_s{n}{i}": np.full((cache[0], cache[2]), 2.0**-6, np.float32)
                  for i in range(self.count if codes else 0) for n in "kv"}
        nodes = []
        for i in range(self.count):
            pasts = [f"past_k{i}", f"past_v{i}"]
            inputs = [*pasts, "cum", "past", "table"] if block else ["", *pasts, "past"]
            both = [f"past_sk{i}", f"past_sv{i}"] if codes else []
            nodes.append(helper.make_node(
                op, [f"y{i - 1}" if i else "q", "k", "v", *inputs, *both],
                [f"y{i}", *(n.replace("past", "present") for n in pasts + both)], scale=width**-0.5,
                **(PAGED if block else ATTENTION)))
        kind = TensorProto.INT32 if block else TensorProto.INT64
        of = lambda n: (kind if n in numbers else TensorProto.FLOAT if n in scales else
                        CODES[codes] if codes and n in caches else element)
        infos = [helper.make_tensor_value_info(n, of(n), v.shape)
                 for n, v in (feeds | numbers | caches | scales).items()]
        last = nodes[-1].output[0]
        outputs = [helper.make_tensor_value_info(n, of(n.replace("present", "past")), None)
                   for n in [last, *(o for node in nodes for o in node.output[1:])]]
        self.session = session(args.library, helper.make_model(
            helper.make_graph(nodes, "layers", infos, outputs), ir_version=10,
            opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid("mojo", 1)]))
        self.binding, self.held = self.session.io_binding(), []
        for (name, value), info in zip((feeds | numbers | caches | scales).items(), infos):
            held = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(aligned(value), info.type.tensor_type.elem_type)
            self.held.append(held)
            self.binding.bind_ortvalue_input(name, held)
            if name in caches or name in scales:
                self.binding.bind_ortvalue_output(name.replace("past", "present"), held)
        self.binding.bind_output(last)

    def run(self):
        self.session.run_with_iobinding(self.binding)  # wakes threads
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return (time.perf_counter() - start) / self.count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    for name, value in (("shape", "smollm2"), ("decode", "128,1024,8192"), ("batch", "1,8"), ("block", "16,256"),
                        ("dtype", "float32"), ("threads", 1), ("rounds", 41), ("codes", "")):
        parser.add_argument("--" + name, default=value, type=type(value))
    args = parser.parse_args()
    ort.set_global_thread_pool_sizes(args.threads, 1)
    numbers = lambda text: [int(n) for n in text.split(",")]
    for batch, keys in ((b, k) for b in numbers(args.batch) for k in numbers(args.decode)):
        blocks, codes = numbers(args.block), [c for c in args.codes.split(",") if c]
        ways = {n: Steps(args, batch, keys, n) for n in (None, *blocks)}
        ways |= {c: Steps(args, batch, keys, blocks[0], c) for c in codes}
        rounds = [{n: way.run() for n, way in ways.items()} for _ in range(args.rounds + 1)][1:]
        whole = statistics.median(r[None] for r in rounds) * 1e6
        text = f"{args.shape} {args.dtype} {batch} x {keys} keys: in one piece {whole:.1f} us"
        for n in (*blocks, *codes):
            low, middle, high = statistics.quantiles([r[n] / r[None] for r in rounds], n=4)
            text += f"; {n if n in codes else f'blocks of {n}'}: {middle:.2f} ({low:.2f}-{high:.2f})"
        print(text, flush=True)


if __name__ == "__main__":
    main()
