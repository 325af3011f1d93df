"""Compares MoE with what onnxruntime runs for the same experts, and with what the machine can do at all.

    python bench_moe.py LIBRARY [--tokens 1,8,64,512] [--experts 64] [--dtype bfloat16] [--threads 2]
        [--rounds 15] [--body PATCHED.onnx]

The floor of a run is the larger of two times: reading the weights of the experts that are hit, at the bandwidth of the
memory, and multiplying as much, at the rate of onnxruntime's own MatMul (one large product with constant, prepacked
weights). Both are measured in the same rounds, and the best of all of them counts
(where a contender reads faster than the C library's memchr, that is the bandwidth). All contenders run in turn in one
process, and every call has other experts than the calls before it, so that no weights are found in a cache. A time is
the best of its rounds: other programs on the machine can only add to it. The ratio is that to the floor.

  ours          MoE by rows: gate_up [E, 2I, H], down [E, H, I]
  columns       MoE by columns: gate_up [E, H, 2I], down [E, I, H]
  body          MoE by rows without the library: its function body, which --body names a patched model to take from
  com.microsoft com.microsoft.MoE, which takes its own softmax and top k along
  gathered      the form of PyTorch's dynamo exporter (batched_mm): weights gathered for each token
  grouped       the form of transformers' exporter (grouped_mm): tokens sorted, one MatMul per expert
"""
import argparse
import ctypes
import os
import sys
import tempfile
import threading
import time

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

TYPES = {"float32": (TensorProto.FLOAT, np.float32), "float16": (TensorProto.FLOAT16, np.float16),
         "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
MOE = dict(domain="mojo", activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)


class Block:
    """The sizes of a block and the file of its weights."""

    def __init__(self, args, folder):
        self.experts, self.top_k, self.hidden, self.inner = args.experts, args.top_k, args.hidden, args.inner
        self.dtype, self.folder = args.dtype, folder
        self.element, self.array = TYPES[args.dtype]
        self.width = np.dtype(self.array).itemsize
        self.gate_up = args.experts * 2 * args.inner * args.hidden  # elements
        self.down = args.experts * args.inner * args.hidden
        rng = np.random.default_rng(0)
        piece = (rng.standard_normal(1 << 22) / np.sqrt(args.hidden)).astype(np.float32).astype(self.array)
        with open(os.path.join(folder, "weights"), "wb") as f:
            for start in range(0, self.gate_up + self.down, piece.size):
                n = min(piece.size, self.gate_up + self.down - start)
                f.write(np.roll(piece, start // piece.size * 997)[:n].tobytes())

    def expert_bytes(self):
        return 3 * self.hidden * self.inner * self.width

    def flops(self):
        """Multiplications and additions of a token."""
        return 6 * self.hidden * self.inner * self.top_k

    def weights(self, columns):
        """The initializers gate_up and down; both orders lie in the same bytes."""
        made = []
        for name, start, count, dims in (
                ("gate_up", 0, self.gate_up, (2 * self.inner, self.hidden)),
                ("down", self.gate_up, self.down, (self.hidden, self.inner))):
            tensor = TensorProto(name=name, data_type=self.element, data_location=TensorProto.EXTERNAL)
            tensor.dims.extend((self.experts,) + (dims[::-1] if columns else dims))
            for key, value in (("location", "weights"), ("offset", start * self.width), ("length", count * self.width)):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)
            made.append(tensor)
        return made

    def ints(self, name, *values):
        return onnx.numpy_helper.from_array(np.array(values, np.int64), name)

    def value(self, name, element, *shape):
        return helper.make_tensor_value_info(name, element, shape)


def ours(block, columns=False):
    """One node of mojo.MoE. gate and up by turns, as com.microsoft.MoE has them."""
    layout = "in_out" if columns else "out_in"
    node = helper.make_node("MoE", ["x", "weights", "ids", "gate_up", "down"], ["y"], gate_up_layout=layout,
                            down_layout=layout, packing="halves" if columns else "interleaved", **MOE)
    return [node], block.weights(columns)


def body(block):
    """One node of mojo.MoE with gate and up as halves."""
    node = helper.make_node("MoE", ["x", "weights", "ids", "gate_up", "down"], ["y"], gate_up_layout="out_in",
                            down_layout="out_in", packing="halves", **MOE)
    return [node], block.weights(False)


def function(path):
    """The body of such a node, out of a patched model."""
    for f in onnx.load(path, load_external_data=False).functions:
        if (f.domain, f.name, f.overload) == ("mojo", "MoE", "silu_halves_out_in_out_in"):
            f.overload = ""
            return f
    raise SystemExit(f"{path} has no body of mojo.MoE for silu, halves and out_in: patch a model that has such experts")


def their_moe(block):
    """One node of com.microsoft.MoE."""
    node = helper.make_node("MoE", ["x", "logits", "gate_up", "", "down"], ["y"], domain="com.microsoft", k=block.top_k,
                            activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.0, activation_beta=0.0,
                            normalize_routing_weights=1)
    return [node], block.weights(False)


def glu(nodes):
    """Split, then silu(gate) * up, from p to a."""
    nodes += [helper.make_node("Split", ["p"], ["gate", "up"], axis=-1, num_outputs=2),
              helper.make_node("Sigmoid", ["gate"], ["s"]), helper.make_node("Mul", ["gate", "s"], ["g"]),
              helper.make_node("Mul", ["g", "up"], ["a"])]


def gathered(block):
    """dynamo's form of batched_mm."""
    nodes, constants = [], [block.ints("last", -1), block.ints("flat", -1, 1), block.ints("one", 1),
                            block.ints("rows", -1, block.hidden), block.ints("by_token", -1, block.top_k, block.hidden),
                            block.ints("repeats", 1, block.top_k, 1)]
    add = lambda op, inputs, output, **attributes: nodes.append(helper.make_node(op, inputs, [output], **attributes))
    add("Unsqueeze", ["x", "one"], "x3")
    add("Expand", ["x3", "repeats"], "x_k")
    add("Reshape", ["x_k", "rows"], "x_rows")
    add("Reshape", ["ids", "flat"], "id_rows")
    add("GatherND", ["gate_up", "id_rows"], "w1")
    add("Unsqueeze", ["x_rows", "last"], "x_columns")
    add("MatMul", ["w1", "x_columns"], "p3")
    add("Squeeze", ["p3", "last"], "p")
    glu(nodes)
    add("GatherND", ["down", "id_rows"], "w2")
    add("Unsqueeze", ["a", "last"], "a_columns")
    add("MatMul", ["w2", "a_columns"], "d3")
    add("Squeeze", ["d3", "last"], "d")
    add("Reshape", ["weights", "flat"], "w_rows")
    add("Mul", ["d", "w_rows"], "weighted")
    add("Reshape", ["weighted", "by_token"], "by_slot")
    add("ReduceSum", ["by_slot", "one"], "y", keepdims=0)
    return nodes, block.weights(False) + constants


def grouped(block):
    """transformers' form of grouped_mm: sorted tokens, a slice and a MatMul per expert."""
    nodes, experts = [], block.experts
    constants = [block.ints("last", -1), block.ints("flat", -1), block.ints("zero", 0), block.ints("column", -1, 1),
                 block.ints("by_token", -1, block.top_k, block.hidden), block.ints("step", 1), block.ints("one", 1),
                 onnx.numpy_helper.from_array(np.int64(block.top_k), "k"),
                 onnx.numpy_helper.from_array(np.zeros(experts, np.int64), "none"),
                 onnx.numpy_helper.from_array(np.int64(0), "start"), onnx.numpy_helper.from_array(np.int64(1), "by")]
    add = lambda op, inputs, outputs, **attributes: nodes.append(
        helper.make_node(op, inputs, [outputs] if isinstance(outputs, str) else outputs, **attributes))
    add("Reshape", ["ids", "flat"], "id_list")
    add("Shape", ["id_list"], "choices")
    nodes.append(helper.make_node("TopK", ["id_list", "choices"], ["sorted", "order"], axis=-1, largest=0, sorted=1))
    add("Div", ["order", "k"], "token")
    add("Gather", ["x", "token"], "x_rows")
    add("Expand", ["one", "choices"], "ones")
    add("ScatterElements", ["none", "sorted", "ones"], "counts", axis=0, reduction="add")
    add("CumSum", ["counts", "start"], "ends")
    add("Split", ["ends"], [f"end{e}" for e in range(experts)], axis=0, num_outputs=experts)
    add("Split", ["gate_up"], [f"w{e}" for e in range(experts)], axis=0, num_outputs=experts)
    add("Split", ["down"], [f"v{e}" for e in range(experts)], axis=0, num_outputs=experts)
    last = "start"
    for e in range(experts):
        add("Squeeze", [f"end{e}", "zero"], f"stop{e}")
        add("Range", [last, f"stop{e}", "by"], f"range{e}")
        add("Gather", ["x_rows", f"range{e}"], f"x{e}")
        add("Squeeze", [f"w{e}", "zero"], f"w{e}_2")
        add("MatMul", [f"x{e}", f"w{e}_2"], f"p{e}")
        last = f"stop{e}"
    add("Concat", [f"p{e}" for e in range(experts)], "p", axis=0)
    glu(nodes)
    for e in range(experts):
        add("Gather", ["a", f"range{e}"], f"a{e}")
        add("Squeeze", [f"v{e}", "zero"], f"v{e}_2")
        add("MatMul", [f"a{e}", f"v{e}_2"], f"d{e}")
    add("Concat", [f"d{e}" for e in range(experts)], "d", axis=0)
    add("Reshape", ["weights", "flat"], "w_list")
    add("Gather", ["w_list", "order"], "w_sorted")
    add("Reshape", ["w_sorted", "column"], "w_rows")
    add("Mul", ["d", "w_rows"], "weighted")
    add("Squeeze", ["choices", "zero"], "total")
    add("Range", ["start", "total", "by"], "places")
    add("Reshape", ["order", "column"], "order_rows")
    add("ScatterND", ["order", "order_rows", "places"], "back")
    add("Gather", ["weighted", "back"], "by_choice")
    add("Reshape", ["by_choice", "by_token"], "by_slot")
    add("ReduceSum", ["by_slot", "one"], "y", keepdims=0)
    return nodes, block.weights(True) + constants


def dense(block):
    """As many multiplications as the experts of all tokens, as two products."""
    rng = np.random.default_rng(1)
    wide = lambda *shape: (rng.standard_normal(shape) / 64).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("MatMul", ["a", "v"], ["q"])]
    tensors = [onnx.numpy_helper.from_array(wide(block.hidden, 2 * block.inner), "w"),
               onnx.numpy_helper.from_array(wide(block.inner, block.hidden), "v")]
    return nodes, tensors


def session(block, name, made, inputs, outputs, args):
    """A session at ENABLE_ALL."""
    nodes, tensors = made
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    functions = [function(args.body)] if name == "body" else []
    version = max((o.version for f in functions for o in f.opset_import if o.domain == ""), default=18)
    model = helper.make_model(graph, ir_version=10, functions=functions, opset_imports=[
        helper.make_opsetid("", version), helper.make_opsetid("mojo", 1), helper.make_opsetid("com.microsoft", 1)])
    path = os.path.join(block.folder, name.replace(".", "-") + ".onnx")
    onnx.save(model, path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.log_severity_level = 3
    if not functions:
        options.register_custom_ops_library(args.library)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Reader:
    """Reads memory at full speed: the C library's search for a byte that is not there."""

    def __init__(self, size, threads):
        self.memory = np.full(size, 1, np.uint8)
        self.at, self.threads = 0, threads
        self.search = ctypes.CDLL(None).memchr
        self.search.argtypes, self.search.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p

    def seconds(self, size):
        """How long the next size bytes take, in pieces that the threads take by turns."""
        size, piece = min(size, self.memory.size), 4 << 20
        if self.at + size > self.memory.size:
            self.at = 0
        start, self.at = self.memory.ctypes.data + self.at, self.at + size
        pieces = iter([(start + i, 0, min(piece, size - i)) for i in range(0, size, piece)])

        def work():
            for place in pieces:
                self.search(*place)

        workers = [threading.Thread(target=work) for _ in range(self.threads - 1)]
        begin = time.perf_counter()
        for w in workers:
            w.start()
        work()
        for w in workers:
            w.join()
        return time.perf_counter() - begin


class Routing:
    """Experts for every call, least recently used first."""

    def __init__(self, block, tokens):
        self.block, self.tokens, self.next = block, tokens, 0
        self.rng = np.random.default_rng(2)
        self.order = self.rng.permutation(block.experts)

    def draw(self):
        """ids [tokens, k], and the weights."""
        e, k = self.block.experts, self.block.top_k
        if self.tokens * k <= e:
            # Tokens share experts only by chance: as many are hit as with random ids.
            count = len(np.unique(np.concatenate([self.rng.choice(e, k, False) for _ in range(self.tokens)])))
            pool = np.roll(self.order, -self.next)[:count]
            self.next += count
            ids = np.stack([self.rng.choice(pool, k, False) for _ in range(self.tokens)])
        else:
            ids = np.stack([self.rng.choice(e, k, False) for _ in range(self.tokens)])
        weights = self.rng.uniform(0.05, 1, ids.shape)
        return ids.astype(np.int64), (weights / weights.sum(1, keepdims=True)).astype(np.float32)


class Contender:
    """A session and its inputs, which stay in place."""

    def __init__(self, block, name, make, tokens, x, args):
        shapes = {"x": x.shape, "weights": (tokens, block.top_k), "ids": (tokens, block.top_k),
                  "logits": (tokens, block.experts)}
        nodes, tensors = make(block)
        used = {i for n in nodes for i in n.input}
        element = {"x": block.element, "weights": TensorProto.FLOAT, "ids": TensorProto.INT64, "logits": block.element}
        self.names = [n for n in shapes if n in used]
        inputs = [block.value(n, element[n], *shapes[n]) for n in self.names]
        self.block, self.element = block, element
        self.session = session(block, name, (nodes, tensors), inputs, [block.value("y", block.element, *x.shape)], args)
        self.binding = self.session.io_binding()
        self.bind("x", x)
        self.binding.bind_output("y", "cpu")

    def bind(self, name, value):
        if self.element[name] == TensorProto.BFLOAT16:
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
                value.astype(ml_dtypes.bfloat16).view(np.uint16), TensorProto.BFLOAT16)
        else:
            kind = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16}.get(self.element[name], value.dtype)
            value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value.astype(kind)))
        self.binding.bind_ortvalue_input(name, value)

    def seconds(self, ids, weights):
        """One run with these experts."""
        for name in self.names:
            if name == "ids":
                self.bind("ids", ids)
            elif name == "weights":
                self.bind("weights", weights)
            elif name == "logits":
                logits = np.full((ids.shape[0], self.block.experts), -1e4, np.float32)
                np.put_along_axis(logits, ids, np.log(weights), 1)
                self.bind("logits", logits)
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - start

    def result(self):
        return np.array(self.binding.copy_outputs_to_cpu()[0], np.float32)


def products(block, tokens, args):
    """A session that multiplies as much as the experts of so many tokens."""
    rows = tokens * block.top_k
    inputs = [
        block.value("x", TensorProto.FLOAT, rows, block.hidden),
        block.value("a", TensorProto.FLOAT, rows, block.inner),
    ]
    outputs = [
        block.value("p", TensorProto.FLOAT, rows, 2 * block.inner),
        block.value("q", TensorProto.FLOAT, rows, block.hidden),
    ]
    s = session(block, "dense", dense(block), inputs, outputs, args)
    binding = s.io_binding()
    rng = np.random.default_rng(3)
    for name, width in (("x", block.hidden), ("a", block.inner)):
        binding.bind_ortvalue_input(
            name, ort.OrtValue.ortvalue_from_numpy(rng.standard_normal((rows, width), np.float32))
        )
    binding.bind_output("p", "cpu")
    binding.bind_output("q", "cpu")

    def run():
        start = time.perf_counter()
        s.run_with_iobinding(binding)
        return time.perf_counter() - start

    return run


def compare(block, tokens, reader, args):
    """Times of one number of tokens: per contender a list of (seconds, bytes of the experts hit); seconds per byte read
    and per multiplication; and how far ours is from com.microsoft's."""
    forms = {"ours": ours, "columns": lambda b: ours(b, True)}
    if args.body:
        forms["body"] = body
    if block.dtype == "float32":
        forms["com.microsoft"] = their_moe
        forms["grouped"] = grouped
        if tokens * block.top_k * block.expert_bytes() <= args.gather * 2**30:
            forms["gathered"] = gathered
    if args.only:
        forms = {n: f for n, f in forms.items() if n in args.only.split(",")}
    x = np.random.default_rng(4).standard_normal((tokens, block.hidden), np.float32)
    contenders = {n: Contender(block, n, f, tokens, x, args) for n, f in forms.items()}
    routing = Routing(block, tokens)
    rows = max(tokens, 64)  # fewer would be bound by memory
    multiply = products(block, rows, args)
    times, reads, multiplications = {n: [] for n in contenders}, [], []
    for i in range(-1, args.rounds):  # the first round warms up
        size = 0
        for name in sorted(contenders, reverse=i % 2 == 0):
            ids, weights = routing.draw()
            seconds = contenders[name].seconds(ids, weights)
            size = len(np.unique(ids)) * block.expert_bytes()
            if i >= 0:
                times[name].append((seconds, size))
        reads.append(reader.seconds(size) / size)
        multiplications.append(multiply() / (rows * block.flops()))
    difference = None
    if "ours" in contenders and "com.microsoft" in contenders:
        ids, weights = routing.draw()
        a, b = (contenders[n].seconds(ids, weights) and contenders[n].result() for n in ("ours", "com.microsoft"))
        difference = float(np.abs(a - b).max() / np.abs(b).max())
    return times, min(reads), min(multiplications), difference


def report(block, results):
    """Prints the rows of every number of tokens, against the best that the machine did in the whole run."""
    per_byte = min(min(r[1] for r in results.values()),  # a contender may read faster than the reader
                   min(seconds / size for r in results.values() for t in r[0].values() for seconds, size in t))
    per_flop = min(r[2] for r in results.values())
    print(f"read {1e-9 / per_byte:.1f} GB/s, sgemm {1e-9 / per_flop:.0f} GFlop/s")
    for tokens, (times, _, _, difference) in results.items():
        work = tokens * block.flops() * per_flop
        # Rounds hit different numbers of experts, so each has its floor; the figures are for their mean.
        floors = {n: [max(size * per_byte, work) for _, size in t] for n, t in times.items()}
        floor = float(np.mean([f for each in floors.values() for f in each]))
        hit = np.mean([size for t in times.values() for _, size in t]) / block.expert_bytes()
        print(f"{tokens:6} tokens, {hit:5.1f} experts hit: floor {floor * 1e3:8.2f} ms "
              f"({'multiplying' if floor <= work * 1.001 else 'reading'})")
        for name, t in times.items():
            ratios = [seconds / f for (seconds, _), f in zip(t, floors[name])]
            note = (
                f"  differs from com.microsoft by {difference:.1e}" if name == "ours" and difference is not None else ""
            )
            print(f"       {name:14} {min(ratios) * floor * 1e3:9.2f} ms  {min(ratios):6.2f} times the floor, median "
                  f"{np.median(ratios):6.2f}{note}")


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libmojo_ops")
    parser.add_argument("--tokens", default="1,8,64,512", help="numbers of tokens, comma separated")
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=768)
    parser.add_argument("--dtype", default="float32", choices=sorted(TYPES))
    parser.add_argument("--threads", type=int, default=2, help="intra-op threads")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="only these contenders, comma separated")
    parser.add_argument("--body", help="a patched model: its function body of MoE is timed, too")
    parser.add_argument("--gather", type=float, default=2, help="the most GiB that the gathered form may gather")
    args = parser.parse_args()
    args.library = os.path.abspath(args.library)
    print(
        f"onnxruntime {ort.__version__}, {args.dtype}, E={args.experts} k={args.top_k} H={args.hidden} I={args.inner}, "
        f"{args.threads} threads, best of {args.rounds} rounds"
    )
    with tempfile.TemporaryDirectory() as folder:
        block = Block(args, folder)
        reader = Reader(max(block.experts * block.expert_bytes(), 1 << 29), args.threads)
        report(block, {tokens: compare(block, tokens, reader, args) for tokens in map(int, args.tokens.split(","))})


if __name__ == "__main__":
    sys.exit(main())
