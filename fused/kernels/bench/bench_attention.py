"""Compares Attention with onnxruntime's ops for the same, and with what the machine can do at all.

    python bench_attention.py LIBRARY [--shape smollm2,llama-8b] [--decode 128,1024,8192] [--prefill 128,512,2048]
        [--dtype float32,float16,bfloat16] [--threads 1] [--rounds 15] [--only NAME,NAME]

The floor of a decode step is the time to read the keys and values (floor.cc, compiled for this machine); that of a
prompt is the time for the products below the diagonal, at the rate of onnxruntime's own MatMul of 1024^3 with constant
weights. A model is a chain of layers, each with keys and values of its own, as many as do not fit into the caches of a
core. All contenders, of all types, and the floor run in turn in one process, with one set of threads; ops that write
their cache in place read the same memory as the floor. Times are medians over the rounds, ratios medians of the rounds'
ratios to the floor, with the first and third quartile of ours.

  in place   Attention with past_length: present is written over past
  append     Attention with past_key: present is a copy
  gqa        com.microsoft.GroupQueryAttention, present over past
  att24      TensorScatter over past, then ai.onnx Attention of opset 24
  att23      ai.onnx Attention of opset 23 with past and present
  mha        Concat, Expand and com.microsoft.MultiHeadAttention
  open       Concat, Expand, MatMul, Softmax, MatMul, as exporters write them
"""
import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
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
BYTES = 8 << 20  # of keys and values in all layers, at least
SPINNING = 0.06  # seconds after which onnxruntime's threads have gone to sleep


class Layers:
    """A model: queries and new keys come in as [1, S, heads, D], and each layer's result is the next one's queries."""

    def __init__(self, shape, dtype, queries, past):
        self.heads, self.key_heads, self.width = SHAPES[shape]
        self.dtype = dtype
        self.element, self.array = TYPES[dtype]
        self.queries, self.past = queries, past
        self.bytes = 2 * self.key_heads * (past + queries) * self.width * np.dtype(self.array).itemsize
        self.count = 2 if queries > 1 else max(2, -(-BYTES // self.bytes))
        self.nodes, self.constants = [], {}

    def node(self, op, inputs, output, **attributes):
        outputs = output if isinstance(output, list) else [output]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def constant(self, name, value):
        self.constants[name] = np.asarray(value)
        return name

    def model(self, layer, room):
        """room is the number of keys in the caches of inputs, None for no caches."""
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
            helper.make_opsetid("", 24), helper.make_opsetid("mojo", 1), helper.make_opsetid("com.microsoft", 1)])


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


def att24(m, i, q):
    one = lambda v, n: m.node("Reshape", [v, m.constant(f"one{n}", np.array([1, n, 1, m.width]))], f"{v}_one{i}")
    caches = [m.node("TensorScatter", [f"past_{n}{i}", one(n, m.key_heads), "length"], f"present_{n}{i}", axis=2)
              for n in "kv"]
    total = m.constant("total", np.array([m.past + 1]))
    y = m.node("Attention", [one(q, m.heads), *caches, "", "", "", total], f"a{i}", scale=scale(m))
    return heads(m, i, y)


def repeated(m, i, name):
    """The keys or values of all layers so far, for every head of queries."""
    total, group = m.past + m.queries, m.heads // m.key_heads
    v = m.node("Transpose", [name], f"{name}_t{i}", perm=[0, 2, 1, 3])
    if m.past:
        v = m.node("Concat", [f"past_{name}{i}", v], f"present_{name}{i}", axis=2)
    v = m.node("Unsqueeze", [v, m.constant("two", np.array([2]))], f"{name}5_{i}")
    v = m.node("Expand", [v, m.constant("groups", np.array([1, m.key_heads, group, total, m.width]))], f"{name}e{i}")
    return m.node("Reshape", [v, m.constant("all", np.array([1, m.heads, total, m.width]))], f"{name}r{i}")


def mha(m, i, q):
    y = m.node("MultiHeadAttention", [flat(m, i, q, m.heads), repeated(m, i, "k"), repeated(m, i, "v")], f"a{i}",
               num_heads=m.heads, scale=scale(m), unidirectional=int(m.queries > 1), domain="com.microsoft")
    return heads(m, i, y)


def open_graph(m, i, q):
    k = m.node("Transpose", [repeated(m, i, "k")], f"kt{i}", perm=[0, 1, 3, 2])
    mask = np.triu(np.full((m.queries, m.past + m.queries), -6e4, np.float32), 1 + m.past)
    s = m.node("MatMul", [m.node("Transpose", [q], f"qt{i}", perm=[0, 2, 1, 3]), k], f"s{i}")
    s = m.node("Mul", [s, m.constant("scale", np.array(scale(m), np.float32).astype(m.array))], f"sm{i}")
    s = m.node("Add", [s, m.constant("mask", mask.astype(m.array))], f"sa{i}")
    y = m.node("MatMul", [m.node("Softmax", [s], f"p{i}", axis=-1), repeated(m, i, "v")], f"o{i}")
    return m.node("Transpose", [y], f"y{i}", perm=[0, 2, 1, 3])


def session(library, model):
    options = ort.SessionOptions()
    options.register_custom_ops_library(library)
    options.use_per_session_threads = False
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def aligned(value):
    """value in memory as onnxruntime allocates it: numpy's begins anywhere."""
    memory = np.empty(value.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start:start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


RNG = np.random.default_rng(1)


def tensor(m, shape):
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
        aligned(RNG.standard_normal(shape, np.float32).astype(m.array)), m.element)


def cache(m, room):
    """Keys and values of all layers by the names of inputs."""
    return {f"past_{n}{i}": tensor(m, (1, m.key_heads, room, m.width)) for i in range(m.count) for n in "kv"}


class Contender:
    """A session with bound inputs. Caches that are written in place are bound over themselves."""

    def __init__(self, library, m, layer, caches, in_place):
        room = next(iter(caches.values())).shape()[2] if caches else None
        self.session = session(library, m.model(layer, room))
        self.binding = self.session.io_binding()
        self.held = []
        for i in self.session.get_inputs():
            if i.name == "length":
                value = ort.OrtValue.ortvalue_from_numpy(np.array([m.past], np.int64))
            elif i.name in caches:
                value = caches[i.name]
                if in_place:
                    self.binding.bind_ortvalue_output(i.name.replace("past", "present"), value)
            else:
                value = tensor(m, tuple(i.shape))
            self.held.append(value)
            self.binding.bind_ortvalue_input(i.name, value)
        for o in self.session.get_outputs():
            if o.name.startswith("y") or not in_place:
                self.binding.bind_output(o.name)

    def run(self):
        self.session.run_with_iobinding(self.binding)  # wakes threads
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - start


def reader():
    """floor.cc as a function."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "floor.cc")
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "floor.so")
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O3", "-march=native", "-Wno-psabi", "-shared",
                        "-fPIC", "-pthread", source, "-o", library], check=True)
        read = ctypes.CDLL(library).ReadSeconds
    read.restype = ctypes.c_double
    read.argtypes = [ctypes.c_void_p] + 4 * [ctypes.c_size_t]
    return read


class Reader:
    """Reads the caches of all layers."""

    def __init__(self, read, m, caches, threads):
        self.read, self.threads, self.caches = read, threads, list(caches.values())
        self.pointers = (ctypes.c_void_p * len(caches))(*(c.data_ptr() for c in self.caches))
        self.bytes = m.bytes // 2

    def run(self):
        time.sleep(SPINNING if self.threads > 1 else 0)
        return self.read(self.pointers, len(self.caches), self.bytes, self.threads, 2)


class Multiplier:
    """Times a MatMul of 1024^3, and returns the time for the products of all layers at that rate."""

    def __init__(self, library, m):
        n = 1024
        weights = numpy_helper.from_array(np.ones((n, n), np.float32), "w")
        info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [n, n])
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x")], [info("y")],
                                  [weights])
        self.session = session(library, helper.make_model(graph, ir_version=10,
                                                          opset_imports=[helper.make_opsetid("", 17)]))
        self.x = np.ones((n, n), np.float32)
        self.share = 4 * m.count * m.heads * m.width * m.queries * (m.queries + 1) / 2 / (2 * n**3)

    def run(self):
        start = time.perf_counter()
        self.session.run(None, {"x": self.x})
        return (time.perf_counter() - start) * self.share


def measure(args, label, floors, contenders, layers):
    """contenders are of type and name; floors and the number of layers are by type."""
    times = {key: [] for key in (*floors, *contenders)}
    deadline = time.perf_counter() + args.seconds
    for turn in range(args.rounds + 1):
        for key, c in (*floors.items(), *contenders.items()):
            t = c.run() / layers[key if key in floors else key[0]]
            if turn > 0:
                times[key].append(t)
        if turn >= 3 and time.perf_counter() > deadline:
            break
    for dtype in floors:
        text = []
        for key in contenders:
            if key[0] != dtype:
                continue
            ratios = [t / f for t, f in zip(times[key], times[dtype])]
            text.append(f"{key[1]} {statistics.median(ratios):.2f}")
            if key[1] in OURS:
                low, _, high = statistics.quantiles(ratios, n=4)
                text[-1] += f" ({low:.2f}-{high:.2f})"
            whole = times.get(("float32", key[1]))
            if key[1] in OURS and dtype != "float32" and whole:
                share = statistics.median(t / w for t, w in zip(times[key], whole))
                text[-1] += f" [{share:.2f} of float32]"
        print(f"{label} {dtype}: floor {statistics.median(times[dtype]) * 1e6:.1f} us, times over it: "
              f"{'  '.join(text)}", flush=True)


OURS = {"in place", "append", "ours"}
# Forms that onnxruntime's CPU kernels run; open graphs of float16 are converted.
WITH_HALF = {"gqa", "att23", "att24"}
DECODE = {"in place": (in_place, True), "append": (append, False), "gqa": (gqa, True), "att24": (att24, True),
          "att23": (att23, False), "mha": (mha, False), "open": (open_graph, False)}
PREFILL = {"ours": prompt, "gqa": gqa, "att23": att23, "mha": mha, "open": open_graph}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--shape", default="smollm2")
    parser.add_argument("--decode", default="128,1024,8192")
    parser.add_argument("--prefill", default="128,512,2048")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=20, help="of a row, after which there are no more rounds")
    parser.add_argument("--only", default="", help="contenders, separated by commas")
    args = parser.parse_args()
    ort.set_global_thread_pool_sizes(args.threads, 1)
    read = reader()
    listed = lambda text: [n for n in text.split(",") if n]
    takes = lambda name, dtype: (not args.only or name in listed(args.only)) and (
        dtype == "float32" or name in OURS or dtype == "float16" and name in WITH_HALF)
    types = listed(args.dtype)
    for shape in listed(args.shape):
        label = f"{shape}, {args.threads} threads,"
        for keys in map(int, listed(args.decode)):
            floors, contenders, layers = {}, {}, {}
            for dtype in types:
                make = lambda: Layers(shape, dtype, 1, keys - 1)
                caches = {True: cache(make(), keys), False: cache(make(), keys - 1)}
                floors[dtype] = Reader(read, make(), caches[True], args.threads)
                layers[dtype] = make().count
                contenders |= {(dtype, name): Contender(args.library, make(), layer, caches[written], written)
                               for name, (layer, written) in DECODE.items() if takes(name, dtype)}
            measure(args, f"{label} decode of {keys}", floors, contenders, layers)
        for queries in map(int, listed(args.prefill)):
            floors, contenders, layers = {}, {}, {}
            for dtype in types:
                make = lambda: Layers(shape, dtype, queries, 0)
                floors[dtype] = Multiplier(args.library, make())
                layers[dtype] = make().count
                contenders |= {(dtype, name): Contender(args.library, make(), layer, {}, False)
                               for name, layer in PREFILL.items() if takes(name, dtype)}
            measure(args, f"{label} prompt of {queries}", floors, contenders, layers)


if __name__ == "__main__":
    main()
