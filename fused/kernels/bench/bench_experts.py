"""Compares QMoE with onnxruntime's, with MoE of float32 weights, and with what the machine can do at all.

    python bench_experts.py LIBRARY [--tokens 1,8,64,512] [--experts 64] [--top-k 8] [--hidden 2048] [--inner 768]
        [--threads 2] [--rounds 11] [--only NAME,NAME]

Each call has other experts than the calls before it, so that weights come from memory. All contenders run in turn in
one process; between them, the threads of the last one fall asleep. Times are medians of the rounds, with the first and
third quartile. The floor of a run is the larger of two times: reading the weights of the experts that are hit
(floor.cc), and as many products of bytes as their multiplications take (products.cc), both at the best of all rounds.

  q4_0, q4_1, q8_0, mxfp4  QMoE with the weights of those formats, activations in int8 or int16
  qmoe4, qmoe8             com.microsoft.QMoE of 4 and 8 bits in blocks of 32, accuracy_level 4 (int8) or 0 (float)
  float32                  MoE
"""
import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from bench_attention import reader
from bench_linear import FEW, FORMATS, SPINNING
from bench_moe import MOE, Routing

GATE = dict(activation="silu", alpha=1.0, limit=0.0, up_offset=0.0, packing="halves")


class Experts:
    """The sizes, and weights that sessions share."""

    def __init__(self, args):
        self.experts, self.top_k, self.hidden, self.inner = args.experts, args.top_k, args.hidden, args.inner
        self.library, self.threads = args.kernels, args.threads
        self.rng, self.made = np.random.default_rng(0), {}

    def random(self, key, shape, make):
        """An array of a name: the same for all contenders that ask for it."""
        if key not in self.made:
            self.made[key] = ort.OrtValue.ortvalue_from_numpy(make(shape))
        return key, self.made[key]

    def codes(self, key, *shape):
        return self.random(key, shape, lambda s: self.rng.integers(0, 256, s, dtype=np.uint8))

    def small(self, key, dtype, *shape):
        return self.random(key, shape, lambda s: (self.rng.standard_normal(s, np.float32) * 0.01).astype(dtype))

    def matrices(self):
        return (("up", 2 * self.inner, self.hidden), ("down", self.hidden, self.inner))

    def ours(self, form, activations):
        code, zero, block, minus, kind = FORMATS[form]
        inputs, attributes = {}, dict(GATE, hidden=self.hidden, inner=self.inner, activations=activations)
        for i, (name, n, k) in enumerate(self.matrices()):
            panels, words = n // 16, 8 if code == "int8" else 4
            inputs[3 + 2 * i] = self.codes(f"{name}_codes{words}", self.experts, panels, k // 32, words, 64)
            scales = (self.experts, panels, k // block, 16)
            if kind == "exponents":
                inputs[4 + 2 * i] = self.random(
                    f"{name}_exponents", scales, lambda s: self.rng.integers(112, 118, s, dtype=np.uint8))
            else:
                inputs[4 + 2 * i] = self.small(f"{name}_scale", np.float16, *scales)
            if minus:
                inputs[7 + i] = self.small(f"{name}_minus", np.float16, *scales)
            name = ("gate_up", "down")[i]
            attributes |= {f"{name}_code": code, f"{name}_zero": zero, f"{name}_block": block}
        return "QMoE", "mojo", inputs, attributes

    def theirs(self, bits, level):
        inputs = {}
        for i, (name, n, k) in enumerate(self.matrices()):
            inputs[2 + 3 * i] = self.codes(f"{name}_{bits}_bits", self.experts, n, k * bits // 8)
            inputs[3 + 3 * i] = self.small(f"{name}_floats", np.float32, self.experts, n, k // 32)
        return "QMoE", "com.microsoft", inputs, dict(
            k=self.top_k, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.0, activation_beta=0.0,
            normalize_routing_weights=1, expert_weight_bits=bits, block_size=32, accuracy_level=level, quant_type="int")

    def wide(self):
        inputs = {3 + i: self.small(f"{name}_wide", np.float32, self.experts, n, k)
                  for i, (name, n, k) in enumerate(self.matrices())}
        attributes = {k: v for k, v in MOE.items() if k != "domain"}
        return "MoE", "mojo", inputs, dict(attributes, packing="halves", gate_up_layout="out_in", down_layout="out_in")


class Contender:
    """A session of one node, and its inputs."""

    def __init__(self, name, experts, tokens):
        what, how = (name.split() + [""])[:2]
        op, domain, weights, attributes = (experts.wide() if what == "float32" else experts.ours(what, how)
                                           if what in FORMATS else experts.theirs(int(what[-1]), int(how)))
        self.logits, self.experts = domain == "com.microsoft", experts.experts
        self.bytes = sum(value.numpy().nbytes for _, value in weights.values()) / experts.experts
        inputs = ["x", "logits"] if self.logits else ["x", "weights", "ids"]
        inputs += [""] * (max(weights) + 1 - len(inputs))
        for at, (key, _) in weights.items():
            inputs[at] = key
        of = lambda n, t, *dims: helper.make_tensor_value_info(n, t, dims)
        given = [of("x", TensorProto.FLOAT, tokens, experts.hidden)]
        if self.logits:
            given += [of("logits", TensorProto.FLOAT, tokens, experts.experts)]
        else:
            given += [of("weights", TensorProto.FLOAT, tokens, experts.top_k),
                      of("ids", TensorProto.INT64, tokens, experts.top_k)]
        options, constants = ort.SessionOptions(), []
        options.intra_op_num_threads = experts.threads
        options.register_custom_ops_library(experts.library)
        for key, value in weights.values():
            tensor = TensorProto(name=key, data_location=TensorProto.EXTERNAL, data_type=value.element_type())
            tensor.dims.extend(value.shape())
            entry = tensor.external_data.add()
            entry.key, entry.value = "location", "nowhere"
            constants.append(tensor)
        options.add_external_initializers(*map(list, zip(*weights.values())))
        node = helper.make_node(op, inputs, ["y"], domain=domain, **attributes)
        graph = helper.make_graph([node], "experts", given, [of("y", TensorProto.FLOAT, tokens, experts.hidden)],
                                  constants)
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("mojo", 1), helper.make_opsetid("com.microsoft", 1)])
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def seconds(self, x, ids, weights):
        feeds = {"x": x, "weights": weights, "ids": ids}
        if self.logits:
            logits = np.full((len(ids), self.experts), -1e4, np.float32)
            np.put_along_axis(logits, ids, np.log(weights), 1)
            feeds = {"x": x, "logits": logits}
        start = time.perf_counter()
        self.session.run(None, feeds)
        return time.perf_counter() - start


def products():
    """products.cc as a function."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "products.cc")
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "products.so")
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC",
                        "-pthread", source, "-o", library], check=True)
        count = ctypes.CDLL(library).ProductsPerSecond
    count.restype, count.argtypes = ctypes.c_double, [ctypes.c_size_t]
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", metavar="LIBRARY")
    parser.add_argument("--tokens", default="1,8,64,512")
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=768)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="q4_0 int8,q4_0 int16,q4_1 int8,q4_1 int16,mxfp4 int8,mxfp4 int16,q8_0 int8,"
                        "q8_0 int16,qmoe4 4,qmoe4 0,float32")
    args = parser.parse_args()
    experts, read, multiply = Experts(args), reader(), products()
    memory = np.ones(1 << 28, np.uint8)
    pointer = (ctypes.c_void_p * 1)(memory.ctypes.data)
    print(f"onnxruntime {ort.__version__}, E={args.experts} k={args.top_k} H={args.hidden} I={args.inner}, "
          f"{args.threads} threads, {args.rounds} rounds")
    print("| tokens | | ms | quartiles | times the floor | times qmoe4 4 |\n| ---: | --- | ---: | --- | ---: | ---: |")
    per_byte, per_product = [], []
    for tokens in map(int, args.tokens.split(",")):
        x = np.random.default_rng(4).standard_normal((tokens, args.hidden), np.float32)
        contenders = {name: Contender(name, experts, tokens) for name in args.only.split(",")}
        routing, times = Routing(experts, tokens), {name: [] for name in contenders}
        for number in range(args.rounds + 1):
            per_byte.append(read(pointer, 1, memory.size, args.threads, 1) / memory.size)
            per_product.append(1 / multiply(args.threads))
            for name, contender in contenders.items():
                time.sleep(SPINNING if args.threads > 1 else 0)
                if tokens <= FEW:
                    contender.seconds(x, *routing.draw())  # wakes the threads
                ids, weights = routing.draw()
                seconds = contender.seconds(x, ids, weights)
                if number:
                    times[name].append((seconds, len(np.unique(ids)) * contender.bytes))
        report(args, tokens, times, min(per_byte), min(per_product))


def report(args, tokens, times, per_byte, per_product):
    """Prints the rows of a number of tokens."""
    work = tokens * args.top_k * 3 * args.hidden * args.inner * per_product
    for name, list_of in times.items():
        seconds = [s for s, _ in list_of]
        low, _, high = statistics.quantiles(seconds, n=4)
        over = statistics.median(s / max(size * per_byte, work) for s, size in list_of)
        beside = ""
        if "qmoe4 4" in times:
            beside = f"{statistics.median(a / b for (a, _), (b, _) in zip(list_of, times['qmoe4 4'])):.2f}"
        print(f"| {tokens} | {name} | {statistics.median(seconds) * 1e3:.2f} | {low * 1e3:.2f} to {high * 1e3:.2f} | "
              f"{over:.2f} | {beside} |")
    print(f"read {1e-9 / per_byte:.1f} GB/s, {2e-9 / per_product:.0f} GOP/s", flush=True)


if __name__ == "__main__":
    main()
