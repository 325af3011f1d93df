"""Compares the fused CPU kernels with what onnxruntime runs in their place.

    python bench_kernels.py LIBRARY [--threads 1,2] [--rounds 31] [--only RMSNorm] [--dtype float16]

Every model is a chain of equal nodes, so that the cost of a node shows and not that of a call of the
session. The two models of a pair run in one process, in turn (A B A B ...); the ratio is the median
of the rounds' ratios, theirs / ours: above 1 the fused kernel is faster. Both results are compared.

With a --dtype of 16 bits the norms round before the scale, as models of that type do, and the fused op
in float32 takes a third turn. onnxruntime has no bfloat16 kernels for these ops: there are only ours. NormRotary
is compared with RMSNorm and RotaryEmbedding of this library, in every type.
"""
import argparse
import statistics
import time

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SHAPES = [(1, 1, 2048), (1, 8, 2048), (1, 512, 2048), (1, 512, 4096)]
FUSED = dict(domain="mojo")
TYPES = {"float32": (TensorProto.FLOAT, np.float32), "float16": (TensorProto.FLOAT16, np.float16),
         "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


class Chain:
    """A model of length equal links; link(chain, i) adds link i's nodes."""

    declare_shapes = True  # of intermediate values

    def __init__(self, shape, length, link, inputs=("x",), dtype="float32"):
        self.dtype, (element, array) = dtype, TYPES[dtype]
        self.shape, self.nodes, self.initializers, self.value = shape, [], {}, "x"
        self.value_shape = shape
        self.other = "r" if "r" in inputs else None
        for i in range(length):
            link(self, i)
        infos = [helper.make_tensor_value_info(n, element, shape) for n in inputs]
        graph = helper.make_graph(
            self.nodes, "chain", infos, [helper.make_tensor_value_info(self.value, element, None)],
            [numpy_helper.from_array(v.astype(array) if v.dtype == np.float32 else v, n)
             for n, v in self.initializers.items()])
        for node in self.nodes:
            # Shapes as an exporter writes them: with them, outputs may take their inputs' memory.
            graph.value_info.extend(
                helper.make_tensor_value_info(o, element, self.value_shape)
                for o in node.output if self.declare_shapes and o and o != self.value and node.domain)
        self.model = helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid("mojo", 1),
            helper.make_opsetid("com.microsoft", 1)])

    def node(self, op, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))


def scale(chain, i, width=None):
    """A separate scale for each link, near 1."""
    name = f"scale{i}"
    chain.initializers[name] = (1 + 0.1 * np.random.default_rng(i).standard_normal(
        width or chain.shape[-1])).astype(np.float32)
    return name


def our_norm(chain, i):
    chain.node("RMSNorm", [chain.value, scale(chain, i)], [f"y{i}"], axis=-1, epsilon=1e-5,
               scale_after_cast=int(chain.dtype != "float32"), **FUSED)
    chain.value = f"y{i}"


def their_norm(chain, i):
    chain.node("SimplifiedLayerNormalization", [chain.value, scale(chain, i)], [f"y{i}"], axis=-1,
               epsilon=1e-5, stash_type=1)
    chain.value = f"y{i}"


def our_add_norm(chain, i):
    chain.node("AddRMSNorm", [chain.value, chain.other, scale(chain, i)], [f"y{i}", f"sum{i}"], axis=-1,
               epsilon=1e-5, scale_after_cast=int(chain.dtype != "float32"), **FUSED)
    chain.value, chain.other = f"y{i}", f"sum{i}"


def their_add_norm(chain, i):
    chain.node("SkipSimplifiedLayerNormalization", [chain.value, chain.other, scale(chain, i)],
               [f"y{i}", "", "", f"sum{i}"], epsilon=1e-5, domain="com.microsoft")
    chain.value, chain.other = f"y{i}", f"sum{i}"


def row(chain, name):
    """A bias for all links."""
    chain.initializers[name] = 0.1 * np.random.default_rng(len(name)).standard_normal(
        chain.shape[-1]).astype(np.float32)
    return name


def add_layer_norm(op, outputs, **attributes):
    """An op for the sum with a bias and its LayerNorm: both ops have the same inputs."""
    def link(chain, i):
        chain.node(op, [chain.value, chain.other, scale(chain, i), row(chain, "bias"), row(chain, "x_bias")],
                   [o and f"{o}{i}" for o in outputs], epsilon=1e-5, **attributes)
        chain.value, chain.other = f"y{i}", f"sum{i}"
    return link


def bias_gelu(op, **attributes):
    """An op for a bias and its GELU."""
    def link(chain, i):
        chain.node(op, [chain.value, row(chain, "bias")], [f"y{i}"], **attributes)
        chain.value = f"y{i}"
    return link


def our_glu(chain, i):
    chain.node("GLU", [chain.value, chain.other], [f"y{i}"], activation="silu", alpha=1.0, limit=0.0,
               up_offset=0.0, **FUSED)
    chain.value = f"y{i}"


def their_glu(chain, i):
    chain.node("Sigmoid", [chain.value], [f"s{i}"])
    chain.node("Mul", [chain.value, f"s{i}"], [f"a{i}"])
    chain.node("Mul", [f"a{i}", chain.other], [f"y{i}"])
    chain.value = f"y{i}"


def angles(chain, width):
    """cos and sin of [sequence, width / 2]; the sequence is the dim before the heads."""
    angle = np.arange(chain.shape[1])[:, None] * 0.01 ** (np.arange(width // 2) * 2 / width)[None]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def start_heads(chain, head, rotary_dim, repeat):
    """The first link's part: x as [1, S, heads, head], and tables as exporters write them, [1, S, 1, rotary_dim],
    where repeat doubles the angles."""
    batch, sequence, hidden = chain.shape
    for name, table in zip(("cos", "sin"), angles(chain, rotary_dim)):
        chain.initializers[name] = repeat(table).reshape(1, sequence, 1, rotary_dim)
    chain.value_shape = (batch, sequence, hidden // head, head)
    chain.initializers["shape"] = np.array(chain.value_shape)
    chain.node("Reshape", ["x", "shape"], ["x4"])
    chain.value = "x4"


def our_rotary(head, rotary_dim=None, interleaved=0, output_layout="halves"):
    """The fused op."""
    r = rotary_dim or head

    def link(chain, i):
        if i == 0:
            by_pairs = output_layout == "interleaved"
            start_heads(chain, head, r, lambda t: np.repeat(t, 2, -1) if by_pairs else np.tile(t, 2))
        chain.node("RotaryEmbedding", [chain.value, "cos", "sin"], [f"y{i}"], interleaved=interleaved,
                   rotary_dim=r, rotated_side="first", output_layout=output_layout, **FUSED)
        chain.value = f"y{i}"

    return link


def open_rotary(head, rotary_dim=None, interleaved=0, output_layout="halves"):
    """The nodes that PyTorch's exporters write: x * cos + turned(x) * sin, of the first rotary_dim channels."""
    r, end = rotary_dim or head, 2**62

    def link(chain, i):
        by_pairs = output_layout == "interleaved"
        if i == 0:
            start_heads(chain, head, r, lambda t: np.repeat(t, 2, -1) if by_pairs else np.tile(t, 2))

        def constant(name, *values):
            chain.initializers[name] = np.array(values)
            return name

        last, new = constant("last", -1), f"n{i}"

        def slice_of(value, name, start, stop, step=1):
            chain.node("Slice", [value, constant(f"at{start}", start), constant(f"to{stop}", stop), last,
                                 constant(f"by{step}", step)], [name])
            return name

        x = chain.value
        if r != head:
            x, rest = slice_of(x, f"{new}x", 0, r), slice_of(x, f"{new}rest", r, end)
        if interleaved and not by_pairs:  # to halves first
            chain.node("Reshape", [x, constant("pairs", 0, 0, 0, r // 2, 2)], [f"{new}pairs"])
            chain.node("Transpose", [f"{new}pairs"], [f"{new}columns"], perm=[0, 1, 2, 4, 3])
            chain.node("Reshape", [f"{new}columns", constant("flat", 0, 0, 0, r)], [f"{new}halves"])
            x = f"{new}halves"
        if by_pairs:
            first, second = slice_of(x, f"{new}a", 0, end, 2), slice_of(x, f"{new}b", 1, end, 2)
        else:
            first, second = slice_of(x, f"{new}a", 0, r // 2), slice_of(x, f"{new}b", r // 2, end)
        chain.node("Neg", [second], [f"{new}minus"])
        if by_pairs:
            chain.node("Unsqueeze", [f"{new}minus", last], [f"{new}c"])
            chain.node("Unsqueeze", [first, last], [f"{new}d"])
            chain.node("Concat", [f"{new}c", f"{new}d"], [f"{new}stack"], axis=-1)
            chain.node("Reshape", [f"{new}stack", constant("flat", 0, 0, 0, r)], [f"{new}turned"])
        else:
            chain.node("Concat", [f"{new}minus", first], [f"{new}turned"], axis=-1)
        chain.node("Mul", [x, "cos"], [f"{new}p"])
        chain.node("Mul", [f"{new}turned", "sin"], [f"{new}q"])
        chain.node("Add", [f"{new}p", f"{new}q"], [f"{new}y"])
        chain.value = f"{new}y"
        if r != head:
            chain.node("Concat", [f"{new}y", rest], [f"y{i}"], axis=-1)
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


def norm_rotary(head, joined):
    """RMSNorm of each head and RotaryEmbedding, as one fused op or as two."""

    def link(chain, i):
        if i == 0:
            start_heads(chain, head, head, lambda t: np.tile(t, 2))
        norm = dict(epsilon=1e-5, scale_after_cast=int(chain.dtype != "float32"))
        rotary = dict(interleaved=0, rotary_dim=head, rotated_side="first", output_layout="halves")
        inputs = [chain.value, scale(chain, i, head)]
        if joined:
            chain.node("NormRotary", inputs + ["cos", "sin"], [f"y{i}"], **norm, **rotary, **FUSED)
        else:
            chain.node("RMSNorm", inputs, [f"n{i}"], axis=-1, **norm, **FUSED)
            chain.node("RotaryEmbedding", [f"n{i}", "cos", "sin"], [f"y{i}"], **rotary, **FUSED)
        chain.value = f"y{i}"

    return link


PARTIAL = dict(head=128, rotary_dim=32)
INTERLEAVED = dict(head=128, interleaved=1, output_layout="interleaved")
TO_HALVES = dict(head=64, interleaved=1)
OURS = "RMSNorm, RotaryEmbedding"  # of this library, for which there are kernels in every type
PAIRS = [  # name, ours, theirs, inputs, their kind
    ("RMSNorm", our_norm, their_norm, ("x",), "SimplifiedLayerNormalization"),
    ("AddRMSNorm", our_add_norm, their_add_norm, ("x", "r"), "SkipSimplifiedLayerNormalization"),
    ("AddLayerNorm", add_layer_norm("AddLayerNorm", ("y", "sum"), **FUSED),
     add_layer_norm("SkipLayerNormalization", ("y", "", "", "sum"), domain="com.microsoft"), ("x", "r"),
     "SkipLayerNormalization"),
    ("BiasGELU gelu", bias_gelu("BiasGELU", activation="gelu", alpha=1.0, **FUSED),
     bias_gelu("BiasGelu", domain="com.microsoft"), ("x",), "BiasGelu"),
    ("BiasGELU gelu_tanh", bias_gelu("BiasGELU", activation="gelu_tanh", alpha=1.0, **FUSED),
     bias_gelu("FastGelu", domain="com.microsoft"), ("x",), "FastGelu"),
    ("GLU silu", our_glu, their_glu, ("x", "r"), "Sigmoid, Mul, Mul"),
    ("RotaryEmbedding 64", our_rotary(64), their_rotary(64), ("x",), "com.microsoft RotaryEmbedding"),
    ("RotaryEmbedding 128", our_rotary(128), their_rotary(128), ("x",), "com.microsoft RotaryEmbedding"),
    ("NormRotary 64", norm_rotary(64, True), norm_rotary(64, False), ("x",), OURS),
    ("NormRotary 128", norm_rotary(128, True), norm_rotary(128, False), ("x",), OURS),
    ("Rotary halves", our_rotary(128), open_rotary(128), ("x",), "the open subgraph"),
    ("Rotary 32 of 128", our_rotary(**PARTIAL), open_rotary(**PARTIAL), ("x",), "the open subgraph"),
    ("Rotary interleaved", our_rotary(**INTERLEAVED), open_rotary(**INTERLEAVED), ("x",), "the open subgraph"),
    ("Rotary to halves", our_rotary(**TO_HALVES), open_rotary(**TO_HALVES), ("x",), "the open subgraph"),
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


def bind(s, feeds, dtype):
    """Inputs bound once and the output left with the session, so that a call copies nothing."""
    binding = s.io_binding()
    element, array = TYPES[dtype]
    for name, value in feeds.items():
        value = value.astype(array)
        if dtype == "bfloat16":  # numpy has no such type: the bits
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value.view(np.uint16), element)
        else:
            value = ort.OrtValue.ortvalue_from_numpy(value)
        binding.bind_ortvalue_input(name, value)
    binding.bind_output(s.get_outputs()[0].name, "cpu")
    return binding


def difference(links, dtype, make, shape):
    """The largest difference between the results of two short chains, over the largest value."""
    results = []
    for link in links:
        s, binding = make(link, dtype, 2)
        s.run_with_iobinding(binding)
        results.append(binding.get_outputs()[0].numpy().astype(np.float32).reshape(shape))
    return float(np.abs(results[0] - results[1]).max() / max(np.abs(results[1]).max(), 1e-30))


def compare(pair, shape, threads, library, rounds, dtype):
    """Microseconds per link of ours, theirs and ours in float32 (the same as ours, or None where there
    is none), the median ratios theirs / ours and ours / float32, and the largest difference."""
    _, ours, theirs, inputs, what = pair
    elements = int(np.prod(shape))
    length = 64 if elements < 100_000 else 12
    calls = 20 if elements < 100_000 else 1
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n in inputs}
    if ours is our_glu:
        # An up of about -4 keeps the chain's values away from 0 and infinity, where numbers that are
        # not normal would be timed. Such a chain is chaotic: only a short one can be compared.
        feeds["r"] = -4 + 0.1 * feeds["r"]

    def make(link, dtype, length):
        s = session(Chain(shape, length, link, inputs, dtype).model, threads, library)
        return s, bind(s, feeds, dtype)

    runs = {"ours": make(ours, dtype, length)}
    if dtype != "bfloat16" or what == OURS:
        runs["theirs"] = make(theirs, dtype, length)
    if dtype != "float32":
        runs["float32"] = make(ours, "float32", length)
    times = {name: [] for name in runs}
    for i in range(-1, rounds):  # the first round warms up
        for name in sorted(runs, reverse=i % 2 == 0):
            s, binding = runs[name]
            t = timed(binding, s, calls) / calls / length * 1e6
            if i >= 0:
                times[name].append(t)
    ratio = lambda a, b: statistics.median(map(float.__truediv__, times[a], times[b])) \
        if a in times and b in times else None
    return [statistics.median(times[name]) if name in times else None
            for name in ("ours", "theirs", "float32")] + [
                ratio("theirs", "ours"), ratio("ours", "float32"),
                difference((ours, theirs), dtype, make, shape) if "theirs" in runs and dtype != "bfloat16" else None]


def column(value, text, width):
    """value formatted, or a dash."""
    return ("-" if value is None else format(value, text)).rjust(width)


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
    parser.add_argument("--dtype", default="float32", choices=sorted(TYPES))
    parser.add_argument("--shapes", default="", help='other shapes, as in "1x8x2048,1x512x2048"')
    args = parser.parse_args()
    Chain.declare_shapes = not args.undeclared
    shapes = [tuple(map(int, s.split("x"))) for s in args.shapes.split(",")] if args.shapes else SHAPES
    print(f"onnxruntime {ort.__version__}, {args.dtype}; ratio = theirs / ours, above 1 the fused op is "
          "faster; of f32 = ours / the fused op in float32")
    print(f"{'fused op':20} {'shape':14} {'threads':>7} {'ours us':>9} {'theirs us':>9} {'f32 us':>9} {'ratio':>6}"
          f" {'of f32':>6} {'difference':>10}  in place of")
    for pair in PAIRS:
        if not pair[0].startswith(args.only):
            continue
        for shape in shapes:
            for threads in (int(t) for t in args.threads.split(",")):
                result = compare(pair, shape, threads, args.library, args.rounds, args.dtype)
                formats = zip(result, (".2f", ".2f", ".2f", ".2f", ".2f", ".1e"), (9, 9, 9, 6, 6, 10))
                print(f"{pair[0]:20} {str(list(shape)):14} {threads:7}", *(column(*f) for f in formats),
                      f" {pair[4]}", flush=True)


if __name__ == "__main__":
    main()
