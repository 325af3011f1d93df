"""Compares the fused CPU kernels with what onnxruntime runs in their place.

    python bench_kernels.py LIBRARY [--threads 1,2] [--rounds 31] [--only RMSNorm]

Every model is a chain of equal nodes, so that the cost of a node shows and not that of a call of the
session. The two models of a pair run in one process, in turn (A B A B ...); the ratio is the median
of the rounds' ratios, theirs / ours: above 1 the fused kernel is faster. Both results are compared.
"""
import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SHAPES = [(1, 1, 2048), (1, 8, 2048), (1, 512, 2048), (1, 512, 4096)]
FUSED = dict(domain="mojo")


class Chain:
    """A model of length equal links; link(chain, i) adds link i's nodes."""

    declare_shapes = True  # of intermediate values

    def __init__(self, shape, length, link, inputs=("x",)):
        self.shape, self.nodes, self.initializers, self.value = shape, [], {}, "x"
        self.value_shape = shape
        self.other = "r" if "r" in inputs else None
        for i in range(length):
            link(self, i)
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in inputs]
        graph = helper.make_graph(
            self.nodes, "chain", infos, [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, n) for n, v in self.initializers.items()])
        for node in self.nodes:
            # Shapes as an exporter writes them: with them, outputs may take their inputs' memory.
            graph.value_info.extend(
                helper.make_tensor_value_info(o, TensorProto.FLOAT, self.value_shape)
                for o in node.output if self.declare_shapes and o and o != self.value)
        self.model = helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid("mojo", 1),
            helper.make_opsetid("com.microsoft", 1)])

    def node(self, op, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))


def scale(chain, i):
    """A scale of its own for each link, near 1."""
    name = f"scale{i}"
    chain.initializers[name] = (1 + 0.1 * np.random.default_rng(i).standard_normal(
        chain.shape[-1])).astype(np.float32)
    return name


def our_norm(chain, i):
    chain.node("RMSNorm", [chain.value, scale(chain, i)], [f"y{i}"], axis=-1, epsilon=1e-5,
               scale_after_cast=0, **FUSED)
    chain.value = f"y{i}"


def their_norm(chain, i):
    chain.node("SimplifiedLayerNormalization", [chain.value, scale(chain, i)], [f"y{i}"], axis=-1,
               epsilon=1e-5, stash_type=1)
    chain.value = f"y{i}"


def our_add_norm(chain, i):
    chain.node("AddRMSNorm", [chain.value, chain.other, scale(chain, i)], [f"y{i}", f"sum{i}"], axis=-1,
               epsilon=1e-5, scale_after_cast=0, **FUSED)
    chain.value, chain.other = f"y{i}", f"sum{i}"


def their_add_norm(chain, i):
    chain.node("SkipSimplifiedLayerNormalization", [chain.value, chain.other, scale(chain, i)],
               [f"y{i}", "", "", f"sum{i}"], epsilon=1e-5, domain="com.microsoft")
    chain.value, chain.other = f"y{i}", f"sum{i}"


def our_glu(chain, i):
    chain.node("GLU", [chain.value, chain.other], [f"y{i}"], activation="silu", alpha=1.0, limit=0.0,
               up_offset=0.0, **FUSED)
    chain.value = f"y{i}"


def their_glu(chain, i):
    chain.node("Sigmoid", [chain.value], [f"s{i}"])
    chain.node("Mul", [chain.value, f"s{i}"], [f"a{i}"])
    chain.node("Mul", [f"a{i}", chain.other], [f"y{i}"])
    chain.value = f"y{i}"


def angles(chain, head):
    """cos and sin of [sequence, head / 2]; the sequence is the dim before the heads."""
    positions = np.arange(chain.shape[1])[:, None]
    return np.cos(positions * 0.01 ** (np.arange(head // 2) * 2 / head)[None]).astype(np.float32), \
        np.sin(positions * 0.01 ** (np.arange(head // 2) * 2 / head)[None]).astype(np.float32)


def our_rotary(head):
    """q as [1, S, heads, head], tables as exporters write them: [1, S, 1, head], the halves equal."""

    def link(chain, i):
        batch, sequence, hidden = chain.shape
        if i == 0:
            for name, table in zip(("cos", "sin"), angles(chain, head)):
                chain.initializers[name] = np.tile(table, 2).reshape(1, sequence, 1, head)
            chain.initializers["shape"] = np.array([batch, sequence, hidden // head, head])
            chain.node("Reshape", ["x", "shape"], ["x4"])
            chain.value = "x4"
            chain.value_shape = (batch, sequence, hidden // head, head)
        chain.node("RotaryEmbedding", [chain.value, "cos", "sin"], [f"y{i}"], interleaved=0,
                   rotary_dim=head, **FUSED)
        chain.value = f"y{i}"

    return link


def their_rotary(head):
    """q as [1, S, hidden], which is the same memory."""

    def link(chain, i):
        if i == 0:
            for name, table in zip(("cos", "sin"), angles(chain, head)):
                chain.initializers[name] = table
            chain.initializers["positions"] = np.arange(chain.shape[1])[None]
        chain.node("RotaryEmbedding", [chain.value, "positions", "cos", "sin"], [f"y{i}"],
                   domain="com.microsoft", num_heads=chain.shape[2] // head, rotary_embedding_dim=head,
                   interleaved=0)
        chain.value = f"y{i}"

    return link


PAIRS = [  # name, ours, theirs, inputs, what theirs is
    ("RMSNorm", our_norm, their_norm, ("x",), "SimplifiedLayerNormalization"),
    ("AddRMSNorm", our_add_norm, their_add_norm, ("x", "r"), "SkipSimplifiedLayerNormalization"),
    ("GLU silu", our_glu, their_glu, ("x", "r"), "Sigmoid, Mul, Mul"),
    ("RotaryEmbedding 64", our_rotary(64), their_rotary(64), ("x",), "com.microsoft RotaryEmbedding"),
    ("RotaryEmbedding 128", our_rotary(128), their_rotary(128), ("x",), "com.microsoft RotaryEmbedding"),
]


def session(model, threads, library):
    """A session at ENABLE_ALL."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.register_custom_ops_library(library)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def timed(binding, s, calls):
    """Seconds of calls runs."""
    start = time.perf_counter()
    for _ in range(calls):
        s.run_with_iobinding(binding)
    return time.perf_counter() - start


def bind(s, feeds):
    """Inputs bound once and the output left with the session, so that a call copies nothing."""
    binding = s.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output(s.get_outputs()[0].name, "cpu")
    return binding


def compare(pair, shape, threads, library, rounds):
    """(our microseconds, their microseconds, median ratio, largest difference) per link."""
    _, ours, theirs, inputs, _ = pair
    elements = int(np.prod(shape))
    length = 64 if elements < 100_000 else 12
    calls = 20 if elements < 100_000 else 1
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n in inputs}
    if ours is our_glu:
        # An up of about -4 keeps the chain's values away from 0 and infinity, where numbers that are
        # not normal would be timed. Such a chain is chaotic: only a short one can be compared.
        feeds["r"] = -4 + 0.1 * feeds["r"]
    short = [session(Chain(shape, 2, link, inputs).model, threads, library) for link in (ours, theirs)]
    results = [s.run(None, feeds)[0].reshape(shape) for s in short]
    sessions = [session(Chain(shape, length, link, inputs).model, threads, library)
                for link in (ours, theirs)]
    difference = float(np.abs(results[0] - results[1]).max() / max(np.abs(results[1]).max(), 1e-30))
    bindings = [bind(s, feeds) for s in sessions]
    for s, b in zip(sessions, bindings):
        timed(b, s, calls)
    times = []
    for i in range(rounds):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        pair_times = [0.0, 0.0]
        for k in order:
            pair_times[k] = timed(bindings[k], sessions[k], calls) / calls / length * 1e6
        times.append(pair_times)
    return (statistics.median(t[0] for t in times), statistics.median(t[1] for t in times),
            statistics.median(t[1] / t[0] for t in times), difference)


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libmojo_ops")
    parser.add_argument("--threads", default="1,2", help="intra-op threads, comma separated")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--only", default="", help="only pairs whose name starts with this")
    parser.add_argument("--undeclared", action="store_true",
                        help="leave the shapes of intermediate values out of the models, so that the "
                        "fused ops cannot write over their inputs")
    args = parser.parse_args()
    Chain.declare_shapes = not args.undeclared
    print(f"onnxruntime {ort.__version__}, float32; ratio = theirs / ours, above 1 the fused op is faster")
    print(f"{'fused op':20} {'shape':14} {'threads':>7} {'ours us':>9} {'theirs us':>9} {'ratio':>6}"
          f"  {'difference':>10}  in place of")
    for pair in PAIRS:
        if not pair[0].startswith(args.only):
            continue
        for shape in SHAPES:
            for threads in (int(t) for t in args.threads.split(",")):
                ours, theirs, ratio, difference = compare(pair, shape, threads, args.library, args.rounds)
                print(f"{pair[0]:20} {str(list(shape)):14} {threads:7} {ours:9.2f} {theirs:9.2f} {ratio:6.2f}"
                      f"  {difference:10.1e}  {pair[4]}", flush=True)


if __name__ == "__main__":
    main()
