"""Compares LinearAttention and CausalConv with onnxruntime's ops.

    python bench_states.py LIBRARY [--threads 1,2] [--decode 1,8] [--prefill 512,4096] [--rounds 11] [--only NAME,NAME]

A model is a number of equal nodes with states of their own, the layers of a decoder. A decode step is one token of
each sequence of a batch, a prefill is one sequence. Both models of a pair run in one process, in turn; between them,
the threads of the last one fall asleep. Times are medians over the rounds, of one node; ratios are medians of the
rounds' ratios, theirs / ours, with the first and third quartile: above 1 the fused op is faster. The last column
is the greatest difference of the results over the greatest result.
"""
import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from bench_linear import SPINNING

LINEAR = {  # heads of q and k, heads of v, widths of keys and values, delta rule, decay by channel
    "qwen3-next": (16, 32, 128, 128, True, False),
    "kimi-linear": (32, 32, 128, 128, True, True),
    "mamba2-2.7b": (1, 80, 128, 64, False, False),
    "mamba-2.8b": (1, 5120, 16, 1, False, True),
}
CONV = {"qwen3-next": (8192, 4), "mamba2-2.7b": (5376, 4)}  # channels, width
MAY_DIFFER = 1e-5
rng = np.random.default_rng(1)


def normal(*shape):
    """Random float32."""
    return rng.standard_normal(shape, dtype=np.float32)


def linear(name, batch, tokens):
    """The inputs of LinearAttention, and the names and attributes of both ops."""
    heads, states, key, value, delta, by_channel = LINEAR[name]
    q, k = normal(batch, tokens, heads, key), normal(batch, tokens, heads, key)
    q, k = (t / np.linalg.norm(t, axis=-1, keepdims=True) for t in (q, k))
    rows = batch, tokens, -1
    decay = -0.1 * rng.random((batch, tokens, states * (key if by_channel else 1)), dtype=np.float32)
    inputs = [q.reshape(rows), k.reshape(rows), normal(batch, tokens, states * value),
              normal(batch, states, key, value), decay,
              rng.random((batch, tokens, states), dtype=np.float32) if delta else None]
    ours = dict(q_heads=heads, k_heads=heads, v_heads=states, scale=0.125, l2_norm=0, epsilon=1e-6)
    theirs = dict(q_num_heads=heads, kv_num_heads=states, scale=0.125, update_rule="gated_delta" if delta else "gated")
    return inputs, ("LinearAttention", ours), ("LinearAttention", theirs)


def conv(name, batch, tokens):
    """The same of CausalConv."""
    channels, width = CONV[name]
    inputs = [normal(batch, channels, tokens), normal(channels, 1, width), normal(channels),
              normal(batch, channels, width - 1)]
    return inputs, ("CausalConv", {"activation": "silu"}), ("CausalConvWithState", {"activation": "silu"})


def session(domain, op, attributes, inputs, nodes, threads, library):
    """A model of so many nodes with states of their own, and its inputs and outputs."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    per_node = [names[:3] + [f"past{n}"] + names[4:] for n in range(nodes)]
    values = {name: value for name, value in zip(names, inputs) if name and name != "x3"}
    values.update({f"past{n}": inputs[3].copy() for n in range(nodes)})
    made = [helper.make_node(op, per_node[n], [f"y{n}", f"present{n}"], domain=domain, **attributes)
            for n in range(nodes)]
    outputs = [name for node in made for name in node.output]
    graph = helper.make_graph(
        made, "states", [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in values.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs])
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("mojo", 1), helper.make_opsetid("com.microsoft", 1)])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(library)
    s = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = s.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value))
    for name in outputs:
        binding.bind_output(name, "cpu")
    return s, binding


def compare(kind, name, batch, tokens, threads, args):
    """Prints one table row."""
    inputs, ours, theirs = (linear if kind == "LinearAttention" else conv)(name, batch, tokens)
    nodes = 8 if tokens == 1 else 1
    calls = 4 if tokens == 1 else 1
    pair = [session(domain, *op, inputs, nodes, threads, args.library)
            for domain, op in (("mojo", ours), ("com.microsoft", theirs))]
    times = [], []
    for number in range(args.rounds + 1):
        for (s, binding), measured in zip(pair, times):
            time.sleep(SPINNING)
            s.run_with_iobinding(binding)
            best = []
            for _ in range(3 if tokens == 1 else 1):
                start = time.perf_counter()
                for _ in range(calls):
                    s.run_with_iobinding(binding)
                best.append((time.perf_counter() - start) / nodes / calls)
            if number:
                measured.append(min(best))
    results = [[value.numpy() for value in binding.get_outputs()[:2]] for _, binding in pair]
    difference = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(*results))
    if not difference <= MAY_DIFFER:
        raise SystemExit(f"{kind} {name}: the results differ by {difference:.1e} of the greatest one")
    ratios = [b / a for a, b in zip(*times)]
    low, _, high = statistics.quantiles(ratios, n=4)
    a, b = (statistics.median(t) * 1e6 for t in times)
    print(f"| {kind} | {name} | {batch} | {tokens:,} | {threads} | {a:,.1f} | {b:,.1f} | "
          f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}) | {difference:.0e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBRARY", help="path of libmojo_ops")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--decode", default="1,8", help="batches of one token each")
    parser.add_argument("--prefill", default="512,4096", help="tokens of one sequence")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="ops or models")
    args = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {args.rounds} rounds, float32")
    print("| op | sizes of | batch | tokens | threads | ours, us | theirs, us | theirs / ours | difference |\n"
          "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
    numbers = lambda text: [int(t) for t in text.split(",") if t]
    only = [t for t in args.only.split(",") if t]
    cases = [(batch, 1) for batch in numbers(args.decode)] + [(1, tokens) for tokens in numbers(args.prefill)]
    for kind, models in (("CausalConv", CONV), ("LinearAttention", LINEAR)):
        for name in models:
            if only and kind not in only and name not in only:
                continue
            for batch, tokens in cases:
                for threads in numbers(args.threads):
                    compare(kind, name, batch, tokens, threads, args)


if __name__ == "__main__":
    main()
