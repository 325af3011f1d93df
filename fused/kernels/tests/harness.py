"""Builds one-node models for the ops of domain "mojo" and computes what they should give.

A model takes float32 inputs and casts them to the op's types and the outputs back, so that bfloat16
needs nothing of the Python binding. Values are rounded to the type first: the casts are exact.
"""
import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

F32, F16, BF16, I64 = "float32", "float16", "bfloat16", "int64"
ONNX_TYPE = {F32: TensorProto.FLOAT, F16: TensorProto.FLOAT16, BF16: TensorProto.BFLOAT16, I64: TensorProto.INT64}
NUMPY_TYPE = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16, I64: np.int64}
EPSILON = {F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7}

NORM = dict(axis=-1, epsilon=1e-5, scale_after_cast=0)
GLU = dict(activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)
ROTARY = dict(interleaved=0, rotary_dim=8, rotated_side="first", output_layout="halves")
NORM_ROTARY = dict({k: v for k, v in NORM.items() if k != "axis"}, **ROTARY)
MOE = dict(activation="silu", packing="halves", gate_up_layout="out_in", down_layout="out_in", alpha=1.0, limit=0.0,
           up_offset=0.0)
ROUTER = dict(top_k=2, score="softmax", order="score_first", groups=1, group_top_k=1, group_score="max",
              excluded_score=0.0, renormalize=1, epsilon=0.0, scale=1.0)

library = None  # path of libmojo_ops, set by the main program
providers = ["CPUExecutionProvider"]  # what runs the models; the main program may change it


def rounded(x, dtype):
    """x rounded to dtype, as float32."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(NUMPY_TYPE[dtype]).astype(np.float32)


def session(model, threads=1, optimize=True, load=True):
    """An onnxruntime session over the model with the library loaded."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if load:
        options.register_custom_ops_library(library)
    if providers[0] != "CPUExecutionProvider":  # a node that falls back to the CPU is an error
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=providers)


def model(op, shapes, types, out_types, attributes, constants=None, functions=(), leave_out=0,
          reused=False):
    """A model of one node. shapes may hold None for a dim unknown at load time, and for an input that
    is left out; constants maps an input's index to its value; leave_out drops that many outputs at the
    end. With known shapes the outputs' are declared, so that they may take the inputs' memory; unless reused, which has a
    later node read the first input again."""
    constants = constants or {}
    nodes, inputs, initializers = [], [], []
    for i, (shape, dtype) in enumerate(zip(shapes, types)):
        if shape is None:
            continue
        if i in constants:
            value = np.asarray(constants[i], np.float32).astype(NUMPY_TYPE[dtype])
            initializers.append(
                helper.make_tensor(f"t{i}", ONNX_TYPE[dtype], value.shape, value.tobytes(), raw=True))
            continue
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape))
        nodes.append(helper.make_node("Cast", [f"x{i}"], [f"t{i}"], to=ONNX_TYPE[dtype]))
    kept = out_types[: len(out_types) - leave_out]
    nodes.append(
        helper.make_node(op, [f"t{i}" if s is not None else "" for i, s in enumerate(shapes)], [f"u{i}" for i in range(len(kept))],
                         name="the_node", domain="mojo", **attributes))
    outputs, infos = [], []
    for i, dtype in enumerate(kept):
        if None not in shapes[0]:
            infos.append(helper.make_tensor_value_info(f"u{i}", ONNX_TYPE[dtype], shapes[0]))
        # The op's own type shows: a Cast of float32 to float32 would hide a wrong one.
        nodes.append(helper.make_node("Cast", [f"u{i}"], [f"y{i}"], to=TensorProto.FLOAT))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None))
        if None in shapes[0]:
            nodes.append(helper.make_node("Identity", [f"u{i}"], [f"z{i}"]))
            outputs.append(helper.make_tensor_value_info(f"z{i}", ONNX_TYPE[dtype], None))
    if reused:
        nodes.append(helper.make_node("Cast", ["t0"], ["again"], to=TensorProto.FLOAT))
        outputs.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers, value_info=infos)
    return helper.make_model(graph, functions=list(functions), ir_version=8,
                             opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)])


def run(op, values, types, out_types, attributes, constant=(), dynamic=True, threads=1, optimize=True,
        **more):
    """Runs one node and gives its outputs as float32."""
    shapes = [None if v is None else [None] * np.ndim(v) if dynamic else list(np.shape(v)) for v in values]
    m = model(op, shapes, types, out_types, attributes, {i: values[i] for i in constant}, **more)
    s = session(m, threads, optimize)
    feeds = {f"x{i}": np.asarray(v, np.float32) for i, v in enumerate(values) if i not in constant and v is not None}
    count = len(out_types) - more.get("leave_out", 0)
    again = ["again"] if more.get("reused") else []
    return s.run([f"y{i}" for i in range(count)] + again, feeds)


def rms_norm(x, scale, y_type, axis=-1, epsilon=1e-5, scale_after_cast=0):
    """What RMSNorm gives, from float64 statistics."""
    axes = tuple(range(axis, 0))
    x64 = x.astype(np.float64)
    n = x64 / np.sqrt((x64 * x64).mean(axes, keepdims=True) + epsilon)
    if scale_after_cast:
        n = rounded(n, y_type).astype(np.float64)
    return rounded(n * scale, y_type)


def glu(gate, up, dtype, activation="silu", alpha=1.0, limit=0.0, up_offset=0.0):
    """What GLU gives."""
    from math import erf, sqrt

    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    g = gate.astype(np.float64)
    if activation == "silu":
        a = g / (1 + np.exp(-alpha * g))
    elif activation == "gelu":
        a = 0.5 * g * (1 + np.vectorize(erf, otypes=[np.float64])(g / sqrt(2)))
    else:
        a = 0.5 * g * (1 + np.tanh(sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
    return rounded(rounded(a, dtype) * rounded(up + np.float32(up_offset), dtype), dtype)


def rotary(x, cos, sin, dtype, interleaved=0, rotary_dim=None, rotated_side="first", output_layout="halves"):
    """What RotaryEmbedding gives, bit by bit."""
    r = rotary_dim or x.shape[-1]
    start = 0 if rotated_side == "first" else x.shape[-1] - r
    halves = (np.arange(r // 2), np.arange(r // 2) + r // 2)
    pairs = (np.arange(0, r, 2), np.arange(1, r, 2))
    a, b = pairs if interleaved else halves
    j, k = pairs if output_layout == "interleaved" else halves
    at = lambda t, channels: t[..., channels if t.shape[-1] == r else np.arange(r // 2)]
    v = x[..., start:start + r]
    y = x.copy()
    y[..., start + j] = rounded(rounded(v[..., a] * at(cos, j), dtype) - rounded(v[..., b] * at(sin, j), dtype), dtype)
    y[..., start + k] = rounded(rounded(v[..., b] * at(cos, k), dtype) + rounded(v[..., a] * at(sin, k), dtype), dtype)
    return y


def norm_rotary(x, scale, cos, sin, y_type, epsilon=1e-5, scale_after_cast=0, **attributes):
    """What NormRotary gives: RMSNorm of each row, then RotaryEmbedding of the result."""
    return rotary(rms_norm(x, scale, y_type, epsilon=epsilon, scale_after_cast=scale_after_cast), cos, sin, y_type, **attributes)


def moe(x, weights, ids, gate_up, down, gate_up_bias, down_bias, dtype, activation="silu", packing="halves",
        gate_up_layout="out_in", down_layout="out_in", alpha=1.0, limit=0.0, up_offset=0.0):
    """What MoE gives, in float64."""
    from math import erf, sqrt

    acts = {"silu": lambda g: g / (1 + np.exp(-alpha * g)), "relu": lambda g: np.maximum(g, 0),
            "relu2": lambda g: np.maximum(g, 0) ** 2,
            "gelu": lambda g: 0.5 * g * (1 + np.vectorize(erf, otypes=[np.float64])(g / sqrt(2))),
            "gelu_tanh": lambda g: 0.5 * g * (1 + np.tanh(sqrt(2 / np.pi) * (g + 0.044715 * g**3)))}
    wide = lambda t, layout: np.asarray(t, np.float64) if layout == "out_in" else np.swapaxes(t, 1, 2).astype(np.float64)
    first, second = wide(gate_up, gate_up_layout), wide(down, down_layout)
    tokens, k = x.reshape(-1, x.shape[-1]).astype(np.float64), ids.shape[-1]
    y = np.zeros(tokens.shape)
    for t, (chosen, scale) in enumerate(zip(np.reshape(ids, (len(y), k)).astype(int), np.reshape(weights, (len(y), k)))):
        for e, w in zip(chosen, scale):
            p = first[e] @ tokens[t] + (0 if gate_up_bias is None else gate_up_bias[e])
            g, u = (p, 1.0) if packing == "none" else (p[0::2], p[1::2]) if packing == "interleaved" else np.split(p, 2)
            if limit > 0:
                g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
            a = acts[activation](g) * (u + up_offset)
            y[t] += np.float64(w) * (second[e] @ a + (0 if down_bias is None else down_bias[e]))
    return rounded(y.reshape(x.shape), dtype)


def router(logits, bias, top_k, score, order, groups, group_top_k, group_score, excluded_score, renormalize,
           epsilon, scale):
    """What TopKRouter gives, in float64: weights and ids."""
    def scored(z):
        if score == "sigmoid":
            return 1 / (1 + np.exp(-z))
        if score == "sqrtsoftplus":
            return np.sqrt(np.logaddexp(z, 0))
        e = np.exp(z - z.max(-1, keepdims=True, initial=-np.inf))
        return e / e.sum(-1, keepdims=True)

    def best(v, k):
        return np.argsort(-v, -1, kind="stable")[..., :k]

    v = np.asarray(logits, np.float64)
    if order == "score_first":
        v = scored(v)
    choice = v if bias is None else v + bias
    if groups > 1:
        grouped = choice.reshape(v.shape[:-1] + (groups, v.shape[-1] // groups))
        of_group = grouped.max(-1) if group_score == "max" else np.sort(grouped, -1)[..., -2:].sum(-1)
        kept = np.zeros(of_group.shape, bool)
        np.put_along_axis(kept, best(of_group, group_top_k), True, -1)
        choice = np.where(kept[..., None], grouped, excluded_score).reshape(v.shape)
    ids = best(choice, top_k)
    w = np.take_along_axis(v, ids, -1)
    if order == "top_k_first":
        w = scored(w)
    if renormalize:
        w = w / (w.sum(-1, keepdims=True) + epsilon)
    return w * scale, ids
