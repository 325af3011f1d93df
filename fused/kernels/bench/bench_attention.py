"""Compares Attention with onnxruntime's ops for the same, and with what the machine can do at all.

    python bench_attention.py LIBRARY [--shape smollm2|llama-8b] [--decode 128,1024,8192] [--prefill 128,512,2048]
        [--dtype bfloat16] [--threads 1] [--layers 4] [--rounds 21]

The floor of a decode step is the time to read the keys and values, by the C library's memchr; that of a prompt is the
time for the products below the diagonal, at the rate of onnxruntime's own MatMul of 1024^3 with constant weights. A
model is a chain of layers, each with keys and values of its own. All contenders and the floor run in turn in one
process; times are medians over the rounds, ratios medians of the rounds' ratios to the floor.

  in place   Attention with past_length: present is written over past
  append     Attention with past_key: present is a copy
  att23      ai.onnx Attention of opset 23 with past and present
  gqa        com.microsoft.GroupQueryAttention, present over past
  open       Concat, Expand, MatMul, Softmax, MatMul, as exporters write them
"""
import argparse
import concurrent.futures
import ctypes
import statistics
import time

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float32": (TensorProto.FLOAT, np.float32), "float16": (TensorProto.FLOAT16, np.float16),
         "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
SHAPES = {"smollm2": (9, 3, 64), "llama-8b": (32, 8, 128)}
ATTENTION = dict(domain="mojo", causal=1, window=0, softcap=0.0, empty="zero", head_order="blocked", q_layout="bsnh",
                 k_layout="bsnh", v_layout="bsnh", y_layout="bsnh")
MEMCHR = ctypes.CDLL(None).memchr
MEMCHR.argtypes, MEMCHR.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p


class Layers:
    """A model: queries and new keys come in as [1, S, heads, D], and each layer's result is the next one's queries."""

    def __init__(self, args, queries, past):
        self.heads, self.key_heads, self.width = SHAPES[args.shape]
        self.element, self.array = TYPES[args.dtype]
        self.count, self.queries, self.past = args.layers, queries, past
        self.nodes, self.constants = [], {}

    def node(self, op, inputs, output, **attributes):
        outputs = output if isinstance(output, list) else [output]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def constant(self, name, value):
        self.constants[name] = np.asarray(value)
        return name

    def model(self, layer, room, opset=23):
        """room is how many keys the caches of inputs have, None for no caches."""
        q = "q"
        for i in range(self.count):
            q = layer(self, i, q)
        fixed = lambda heads: [1, self.queries, heads, self.width]
        infos = [helper.make_tensor_value_info("q", self.element, fixed(self.heads))]
        infos += [helper.make_tensor_value_info(n, self.element, fixed(self.key_heads)) for n in "kv"]
        outputs = [helper.make_tensor_value_info(q, self.element, None)]
        if room is not None:
            infos.append(helper.make_tensor_value_info("length", TensorProto.INT64, [1]))
            for i in range(self.count):
                for n in "kv":
                    infos.append(helper.make_tensor_value_info(f"past_{n}{i}", self.element,
                                                               [1, self.key_heads, room, self.width]))
                    outputs.append(helper.make_tensor_value_info(f"present_{n}{i}", self.element, None))
        graph = helper.make_graph(self.nodes, "layers", infos, outputs,
                                  [numpy_helper.from_array(v, n) for n, v in self.constants.items()])
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", opset), helper.make_opsetid("mojo", 1), helper.make_opsetid("com.microsoft", 1)])


def scale(m):
    return m.width**-0.5


def in_place(m, i, q):
    return m.node("Attention", [q, "k", "v", "", f"past_k{i}", f"past_v{i}", "length"],
                  [f"y{i}", f"present_k{i}", f"present_v{i}"], scale=scale(m), **ATTENTION)


def append(m, i, q):
    return m.node("Attention", [q, "k", "v", "", f"past_k{i}", f"past_v{i}"],
                  [f"y{i}", f"present_k{i}", f"present_v{i}"], scale=scale(m), **ATTENTION)


def prompt(m, i, q):
    return m.node("Attention", [q, "k", "v"], f"y{i}", scale=scale(m), **ATTENTION)


def flat(m, i, value, heads):
    to = m.constant(f"flat{heads}", np.array([1, m.queries, heads * m.width]))
    return m.node("Reshape", [value, to], f"{value}_flat{i}")


def heads(m, i, value):
    return m.node("Reshape", [value, m.constant("heads", np.array([1, m.queries, m.heads, m.width]))], f"y{i}")


def att23(m, i, q):
    inputs = [flat(m, i, q, m.heads), flat(m, i, "k", m.key_heads), flat(m, i, "v", m.key_heads)]
    outputs = [f"a{i}"]
    if m.past:
        inputs += ["", f"past_k{i}", f"past_v{i}"]
        outputs += [f"present_k{i}", f"present_v{i}"]
    y = m.node("Attention", inputs, outputs, is_causal=1, scale=scale(m), q_num_heads=m.heads,
               kv_num_heads=m.key_heads)
    return heads(m, i, y)


def gqa(m, i, q):
    total = m.past + m.queries
    last = m.constant("last", np.array([total - 1], np.int32))
    inputs = [flat(m, i, q, m.heads), flat(m, i, "k", m.key_heads), flat(m, i, "v", m.key_heads)]
    inputs += [f"past_k{i}", f"past_v{i}"] if m.past else ["", ""]
    inputs += [last, m.constant("total", np.array(total, np.int32))]
    y = m.node("GroupQueryAttention", inputs, [f"a{i}", f"present_k{i}", f"present_v{i}"], num_heads=m.heads,
               kv_num_heads=m.key_heads, scale=scale(m), domain="com.microsoft")
    return heads(m, i, y)


def open_graph(m, i, q):
    total, group = m.past + m.queries, m.heads // m.key_heads
    turned = lambda v: m.node("Transpose", [v], f"{v}_t{i}", perm=[0, 2, 1, 3])

    def repeated(new, name):
        v = turned(new)
        if m.past:
            v = m.node("Concat", [f"past_{name}{i}", v], f"present_{name}{i}", axis=2)
        v = m.node("Unsqueeze", [v, m.constant("two", np.array([2]))], f"{name}5_{i}")
        v = m.node("Expand", [v, m.constant("groups", np.array([1, m.key_heads, group, total, m.width]))],
                   f"{name}e{i}")
        return m.node("Reshape", [v, m.constant("all", np.array([1, m.heads, total, m.width]))], f"{name}r{i}")

    k = m.node("Transpose", [repeated("k", "k")], f"kt{i}", perm=[0, 1, 3, 2])
    mask = np.triu(np.full((m.queries, total), np.finfo(np.float32).min, np.float32), 1 + m.past)
    s = m.node("MatMul", [turned(q), k], f"s{i}")
    s = m.node("Mul", [s, m.constant("scale", np.array(scale(m), np.float32).astype(m.array))], f"sm{i}")
    s = m.node("Add", [s, m.constant("mask", np.maximum(mask, -6e4).astype(m.array))], f"sa{i}")
    y = m.node("MatMul", [m.node("Softmax", [s], f"p{i}", axis=-1), repeated("v", "v")], f"o{i}")
    return m.node("Transpose", [y], f"y{i}", perm=[0, 2, 1, 3])


def session(args, model):
    options = ort.SessionOptions()
    options.register_custom_ops_library(args.library)
    options.intra_op_num_threads = args.threads
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def aligned(value):
    """value in memory as onnxruntime allocates it: numpy's begins anywhere."""
    memory = np.empty(value.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start:start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


class Contender:
    """A session whose inputs are bound, caches over themselves where shared."""

    def __init__(self, args, m, layer, room, shared, rng):
        self.session = session(args, m.model(layer, room))
        self.binding = self.session.io_binding()
        self.caches = []
        shape = (1, m.key_heads, room or 0, m.width)
        value = lambda s: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            aligned(rng.standard_normal(s, np.float32).astype(m.array)), m.element)
        for i in self.session.get_inputs():
            if i.name == "length":
                held = ort.OrtValue.ortvalue_from_numpy(np.array([m.past], np.int64))
            elif i.name.startswith("past_"):
                held = value(shape)
                self.caches.append(held)
                if shared:
                    self.binding.bind_ortvalue_output(i.name.replace("past", "present"), held)
            else:
                held = value(tuple(i.shape))
            self.binding.bind_ortvalue_input(i.name, held)
        for o in self.session.get_outputs():
            if o.name.startswith("y") or not shared:
                self.binding.bind_output(o.name)

    def run(self):
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - start


class Reader:
    """Reads as many bytes as the caches of all layers have, with as many threads."""

    def __init__(self, args, m):
        size = 2 * m.key_heads * (m.past + 1) * m.width * np.dtype(m.array).itemsize
        self.buffers = [aligned(np.zeros(size, np.uint8)) for _ in range(m.count)]
        self.threads = args.threads
        self.pool = concurrent.futures.ThreadPoolExecutor(args.threads)

    def part(self, i):
        for b in self.buffers:
            n = b.size // self.threads
            MEMCHR(b.ctypes.data + i * n, 1, n)

    def run(self):
        start = time.perf_counter()
        if self.threads == 1:
            self.part(0)
        else:
            list(self.pool.map(self.part, range(self.threads)))
        return time.perf_counter() - start


class Multiplier:
    """Times a MatMul of 1024^3, and gives the time for the products of all layers at that rate."""

    def __init__(self, args, m):
        n = 1024
        weights = numpy_helper.from_array(np.ones((n, n), np.float32), "w")
        info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [n, n])
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x")], [info("y")],
                                  [weights])
        self.session = session(args, helper.make_model(graph, ir_version=10,
                                                       opset_imports=[helper.make_opsetid("", 17)]))
        self.x = np.ones((n, n), np.float32)
        self.share = 4 * m.count * m.heads * m.width * m.queries * (m.queries + 1) / 2 / (2 * n**3)

    def run(self):
        start = time.perf_counter()
        self.session.run(None, {"x": self.x})
        return (time.perf_counter() - start) * self.share


def measure(args, name, floor, contenders):
    for c in contenders.values():
        c.run()
    times, ratios = {n: [] for n in contenders}, {n: [] for n in contenders}
    floors = []
    for _ in range(args.rounds):
        floors.append(floor.run())
        for n, c in contenders.items():
            t = c.run()
            times[n].append(t)
            ratios[n].append(t / floors[-1])
    median = lambda v: statistics.median(v)
    text = "  ".join(f"{n} {median(ratios[n]):.2f} (best {min(times[n]) / min(floors):.2f})" for n in contenders)
    print(f"{args.shape} {args.dtype} {args.threads} threads {name}: floor "
          f"{median(floors) * 1e6 / args.layers:.1f} us, times over it: {text}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    parser.add_argument("--decode", default="128,1024,8192")
    parser.add_argument("--prefill", default="128,512,2048")
    parser.add_argument("--dtype", choices=TYPES, default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", default="", help="contenders, separated by commas")
    args = parser.parse_args()
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    wanted = lambda name: not args.only or name in args.only.split(",")
    rng = np.random.default_rng(1)
    theirs = args.dtype != "bfloat16"  # onnxruntime has no CPU kernels for it
    for keys in numbers(args.decode):
        forms = {"in place": (in_place, keys, True), "append": (append, keys - 1, False)}
        if theirs:
            forms |= {"gqa": (gqa, keys, True), "att23": (att23, keys - 1, False),
                      "open": (open_graph, keys - 1, False)}
        measure(args, f"decode of {keys}", Reader(args, Layers(args, 1, keys - 1)), {
            n: Contender(args, Layers(args, 1, keys - 1), layer, room, shared, rng)
            for n, (layer, room, shared) in forms.items() if wanted(n)})
    for queries in numbers(args.prefill):
        forms = {"ours": prompt}
        if theirs:
            forms |= {"gqa": gqa, "att23": att23, "open": open_graph}
        m = Layers(args, queries, 0)
        measure(args, f"prompt of {queries}", Multiplier(args, m), {
            n: Contender(args, Layers(args, queries, 0), layer, None, False, rng)
            for n, layer in forms.items() if wanted(n)})


main()
