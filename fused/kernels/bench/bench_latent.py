"""Compares the two forms of DeepSeek's attention, for a step of decoding and for prompts.

    python bench_latent.py LIBRARY [--heads 128] [--cached 1024,8192] [--prompt 512] [--threads 1] [--rounds 9]

The widths are DeepSeek-V3's: 128 + 64 channels of keys and 128 of values in each head, a latent of 512. What is timed
is one layer's attention with the product that makes keys and values of the latent (kv_b_proj), random float32 weights.
All contenders of a row run in turn in one process; times are medians of the rounds.

  open      keys and values by heads in the cache: Concat, MatMul, Softmax, MatMul, as exporters write them
  naive     the same caches, read by mojo.Attention; "in place" where past and present are one buffer
  latent    mojo.LatentAttention: latents in the cache
"""
import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

NOPE, ROTATED, VALUES, LATENT = 128, 64, 128, 512
SCALE = (NOPE + ROTATED) ** -0.5
ATTENTION = dict(domain="mojo", scale=SCALE, causal=1, window=0, softcap=0.0, empty="zero", head_order="blocked",
                 q_layout="bnsh", k_layout="bnsh", v_layout="bnsh", y_layout="bsnh")
LATENT_ATTENTION = dict(domain="mojo", scale=SCALE, causal=1, empty="zero", q_layout="bnsh", y_layout="bsnh",
                        w_layout="in_out")


def model(form, heads, weights, in_place):
    """One layer: q, c and k_pe come in, and the caches."""
    caches = {"past": (1, LATENT + ROTATED)} if form == "latent" else {
        "past_k": (heads, NOPE + ROTATED), "past_v": (heads, VALUES)}
    nodes, constants = [], {"w": weights}

    def node(op, inputs, *outputs, **attributes):
        nodes.append(helper.make_node(op, inputs, outputs, **attributes))

    length = "length" if in_place else ""
    if form == "latent":
        node("LatentAttention", ["q", "c", "k_pe", "w", "", "past", length], "y", "present", **LATENT_ATTENTION)
    else:
        constants |= {"rows": np.array([0, 0, heads, NOPE + VALUES]), "parts": np.array([NOPE, VALUES]),
                      "all_heads": np.array([1, heads, 1, 1])}
        node("MatMul", ["c", "w"], "kv")
        node("Reshape", ["kv", "rows"], "kv_rows")
        node("Transpose", ["kv_rows"], "kv_heads", perm=[0, 2, 1, 3])
        node("Split", ["kv_heads", "parts"], "k_nope", "v", axis=3)
        node("Expand", ["k_pe", "all_heads"], "k_pe_heads")
        node("Concat", ["k_nope", "k_pe_heads"], "k", axis=3)
    if form == "naive":
        node("Attention", ["q", "k", "v", "", "past_k", "past_v", length], "y", "present_k", "present_v", **ATTENTION)
    elif form == "open":  # only steps: a query sees all keys
        constants["scale"] = np.array(SCALE, np.float32)
        node("Concat", ["past_k", "k"], "present_k", axis=2)
        node("Concat", ["past_v", "v"], "present_v", axis=2)
        node("Transpose", ["present_k"], "k_turned", perm=[0, 1, 3, 2])
        node("MatMul", ["q", "k_turned"], "scores")
        node("Mul", ["scores", "scale"], "scaled")
        node("Softmax", ["scaled"], "p", axis=-1)
        node("MatMul", ["p", "present_v"], "y_heads")
        node("Transpose", ["y_heads"], "y", perm=[0, 2, 1, 3])
    info = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    inputs = [info("q", [1, heads, "s", NOPE + ROTATED]), info("c", [1, "s", LATENT]),
              info("k_pe", [1, 1, "s", ROTATED])] + [info(n, [1, h, "p", d]) for n, (h, d) in caches.items()]
    inputs += [helper.make_tensor_value_info("length", TensorProto.INT64, [1])] if in_place else []
    outputs = [info("y", None)] + [info(n.replace("past", "present"), None) for n in caches]
    graph = helper.make_graph(nodes, "layer", inputs, outputs,
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    return caches, helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20),
                                                                          helper.make_opsetid("mojo", 1)])


class Contender:
    """A form with its inputs bound."""

    def __init__(self, args, form, in_place, weights, tokens, past):
        self.name = form + (", in place" if in_place else "")
        caches, made = model(form, args.heads, weights, in_place)
        options = ort.SessionOptions()
        options.intra_op_num_threads = args.threads
        options.register_custom_ops_library(args.library)
        self.session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(1)
        normal = lambda *dims: rng.standard_normal(dims, np.float32)
        self.binding = self.session.io_binding()
        feeds = {"q": normal(1, args.heads, tokens, NOPE + ROTATED), "c": normal(1, tokens, LATENT),
                 "k_pe": normal(1, 1, tokens, ROTATED)}
        if in_place:
            feeds["length"] = np.array([past])
        for name, value in feeds.items():
            self.binding.bind_cpu_input(name, value)
        self.binding.bind_output("y")
        self.bytes = 0
        for name, (heads, width) in caches.items():
            self.bytes += heads * width * 4
            shape = (1, heads, past + in_place * tokens, width)
            value = ort.OrtValue.ortvalue_from_numpy(np.resize(normal(1 << 16), shape))
            self.binding.bind_ortvalue_input(name, value)
            present = name.replace("past", "present")
            if in_place:
                self.binding.bind_ortvalue_output(present, value)
            else:
                self.binding.bind_output(present)

    def time(self):
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return (time.perf_counter() - start) * 1e3


def row(args, weights, tokens, past, forms):
    contenders = [Contender(args, form, in_place, weights, tokens, past) for form, in_place in forms]
    times = {c.name: [] for c in contenders}
    for number in range(args.rounds + 1):
        for c in contenders:
            took = c.time()
            if number > 0:
                times[c.name].append(took)
    best = statistics.median(times[contenders[-1].name])
    for c in contenders:
        took = statistics.median(times[c.name])
        cache = c.bytes * past / 1e6
        print(f"{tokens:6} {past:7} {args.threads:8} {c.name:18} {took:9.2f} {took / best:9.2f} {cache:12.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    parser.add_argument("library")
    parser.add_argument("--heads", type=int, default=128)
    parser.add_argument("--cached", type=numbers, default=[1024, 8192])
    parser.add_argument("--prompt", type=numbers, default=[512])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    outputs = args.heads * (NOPE + VALUES)
    weights = np.random.default_rng(0).standard_normal((LATENT, outputs), np.float32) * LATENT**-0.5
    print("tokens  cached  threads contender               ms  over last     cache, MB")
    for past in args.cached:
        row(args, weights, 1, past, [("open", False), ("naive", False), ("naive", True), ("latent", False),
                                     ("latent", True)])
    for tokens in args.prompt:
        row(args, weights, tokens, 0, [("naive", False), ("latent", False)])


if __name__ == "__main__":
    main()
