"""Compares Linear with onnxruntime's MatMulNBits, whose weights are of the same width, in blocks as large.

    python bench_linear.py LIBRARY [--shape 576x1536,4096x4096] [--tokens 1,8,64,512] [--threads 2] [--rounds 11]
        [--only NAME,NAME]

A model is a number of products of one input, each with weights of its own: for a few tokens as many as do not fit into
the caches, so that weights are read from memory as in a decoder. All contenders run in turn; between them, the threads
of the last one fall asleep. Times are medians over the rounds, of one product; ratios are medians of the rounds' ratios
to the contender that does the same, with the first and third quartile. Below 1, Linear is faster.

  q4_0, q4_1, q8_0   Linear with the weights of those formats, activations in int8 or int16
  q4_k, q6_k, mxfp4  the same
  nbits4, nbits8     com.microsoft.MatMulNBits, without zero points, accuracy_level 4 (int8) or 0 (float)
  float32            MatMul of float32 weights
"""
import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SPINNING = 0.06  # seconds after which onnxruntime's threads have gone to sleep
BYTES = 64 << 20  # of all weights of a model for a few tokens, at least
FEW = 8

# code, zero, block, minus, kind of scales
FORMATS = {"q4_0": ("int4", 8, 32, False, "half"), "q4_1": ("int4", 0, 32, True, "half"),
           "q8_0": ("int8", 128, 32, False, "half"), "q4_k": ("int4", 0, 32, True, "twofold"),
           "q6_k": ("int8", 128, 16, False, "twofold"), "mxfp4": ("e2m1", 0, 32, False, "exponents")}
RIVALS = {"q4_0 int8": "nbits4 4", "q4_0 int16": "nbits4 0", "q4_1 int8": "nbits4 4", "q4_1 int16": "nbits4 0",
          "q8_0 int8": "nbits8 4", "q8_0 int16": "nbits8 4"}


class Model:
    """Products of one input of [T, K]."""

    def __init__(self, k, n, tokens, rng):
        self.k, self.n, self.tokens, self.rng = k, n, tokens, rng
        self.nodes, self.constants = [], []

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def codes(self, *shape):
        return self.constant(self.rng.integers(0, 256, shape, dtype=np.uint8))

    def small(self, *shape, dtype=np.float16):
        return self.constant((self.rng.standard_normal(shape) * 0.01).astype(dtype))

    def linear(self, i, form, activations):
        code, zero, block, minus, kind = FORMATS[form]
        panels, of = -(-self.n // 16), self.k // block
        inputs = ["x", self.codes(panels, self.k // 32, 8 if code == "int8" else 4, 64), "", "", "", ""]
        for at in (2, 3) if minus else (2,):
            if kind == "half":
                inputs[at] = self.small(panels, of, 16)
            elif kind == "exponents":
                inputs[at] = self.constant(self.rng.integers(118, 124, (panels, of, 16), dtype=np.uint8))
            else:
                inputs[at] = self.constant(self.rng.integers(1, 64, (panels, of, 16), dtype=np.int8))
                inputs[at + 2] = self.small(panels, self.k // 256, 16)
        self.nodes.append(helper.make_node("Linear", inputs, [f"y{i}"], domain="mojo", code=code, zero=zero,
                                           block=block, n=self.n, k=self.k, activations=activations))

    def n_bits(self, i, bits, level):
        inputs = ["x", self.codes(self.n, self.k // 32, 4 * bits), self.small(self.n, self.k // 32, dtype=np.float32)]
        self.nodes.append(helper.make_node("MatMulNBits", inputs, [f"y{i}"], domain="com.microsoft", K=self.k, N=self.n,
                                           bits=bits, block_size=32, accuracy_level=level))

    def wide(self, i):
        self.nodes.append(helper.make_node("MatMul", ["x", self.small(self.k, self.n, dtype=np.float32)], [f"y{i}"]))

    def session(self, library, threads):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.tokens, self.k])
        outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(len(self.nodes))]
        graph = helper.make_graph(self.nodes, "products", [x], outputs, self.constants)
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("mojo", 1), helper.make_opsetid("com.microsoft", 1)])
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(library)
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def contender(name, k, n, tokens, library, threads):
    """A session and the number of its products."""
    what, how = (name.split() + [""])[:2]
    m = Model(k, n, tokens, np.random.default_rng(1))
    bits = {"nbits4": 5, "nbits8": 9, "float32": 32, "q8_0": 8.5, "q6_k": 8.6}.get(what, 4.5)
    count = 2 if tokens > FEW else max(2, int(-(-BYTES // (k * n * bits / 8))))
    for i in range(count):
        if what in FORMATS:
            m.linear(i, what, how)
        elif what == "float32":
            m.wide(i)
        else:
            m.n_bits(i, int(what[-1]), int(how))
    return m.session(library, threads), count


def compare(names, k, n, tokens, args):
    """Prints one table row for each contender."""
    x = np.random.default_rng(2).standard_normal((tokens, k)).astype(np.float32)
    sessions = {name: contender(name, k, n, tokens, args.kernels, args.threads) for name in names}
    times = {name: [] for name in names}
    for number in range(args.rounds + 1):
        for name, (session, count) in sessions.items():
            time.sleep(SPINNING)
            session.run(None, {"x": x})
            start = time.perf_counter()
            session.run(None, {"x": x})
            if number:
                times[name].append((time.perf_counter() - start) / count)
    for name in names:
        ratio = ""
        if RIVALS.get(name) in times:
            ratios = [a / b for a, b in zip(times[name], times[RIVALS[name]])]
            low, _, high = statistics.quantiles(ratios, n=4)
            ratio = f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}) of {RIVALS[name]}"
        print(f"| {k} x {n} | {tokens} | {name} | {statistics.median(times[name]) * 1e3:.3f} | {ratio} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", metavar="LIBRARY")
    parser.add_argument("--shape", default="576x1536,2048x2048,4096x4096,4096x14336")
    parser.add_argument("--tokens", default="1,8,64,512")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="q4_0 int8,q4_0 int16,q8_0 int8,q8_0 int16,nbits4 4,nbits4 0,nbits8 4")
    args = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {args.threads} threads, {args.rounds} rounds")
    print("| K x N | tokens | | ms | ratio |\n| --- | ---: | --- | ---: | --- |")
    for shape in args.shape.split(","):
        k, n = map(int, shape.split("x"))
        for tokens in map(int, args.tokens.split(",")):
            compare(args.only.split(","), k, n, tokens, args)


if __name__ == "__main__":
    main()
