"""Builds one-node models for the ops of domain "mojo", and runs them.

A model takes float32 inputs and casts them to the op's types and the outputs back, so that bfloat16
needs nothing of the Python binding. Values are rounded to the type first: the casts are exact.
"""
import os
import pathlib

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from formulas import (
    BF16,
    EPSILON,
    F8,
    F16,
    F32,
    I8,
    I32,
    I64,
    NUMPY_TYPE,
    U8,
    attention,
    glu,
    moe,
    norm_rotary,
    rms_norm,
    rotary,
    rounded,
    router,
)

ONNX_TYPE = {F32: TensorProto.FLOAT, F16: TensorProto.FLOAT16, BF16: TensorProto.BFLOAT16, I64: TensorProto.INT64,
             I32: TensorProto.INT32, I8: TensorProto.INT8, U8: TensorProto.UINT8, F8: TensorProto.FLOAT8E4M3FN}
NORM = dict(axis=-1, epsilon=1e-5, scale_after_cast=0)
GLU = dict(activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)
ROTARY = dict(interleaved=0, rotary_dim=8, rotated_side="first", output_layout="halves")
NORM_ROTARY = dict({k: v for k, v in NORM.items() if k != "axis"}, **ROTARY)
MOE = dict(activation="silu", packing="halves", gate_up_layout="out_in", down_layout="out_in", alpha=1.0, limit=0.0,
           up_offset=0.0)
ROUTER = dict(top_k=2, score="softmax", order="score_first", groups=1, group_top_k=1, group_score="max",
              excluded_score=0.0, renormalize=1, epsilon=0.0, scale=1.0)

ATTENTION = dict(scale=0.25, causal=0, window=0, softcap=0.0, empty="zero", head_order="blocked", q_layout="bnsh",
                 k_layout="bnsh", v_layout="bnsh", y_layout="bnsh")

library = None  # path of libmojo_ops, set by the main program
providers = ["CPUExecutionProvider"]  # providers of the sessions; the main program may change them


def device():
    """The device of the catalogue that the models run on."""
    return {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda", "CANNExecutionProvider": "npu"}[
        providers[0]
    ]


def multiplies_bfloat16():
    """Whether the CPU kernels multiply bfloat16 on this machine if MOJO_CPU_PRODUCTS says so."""
    cpu = pathlib.Path("/proc/cpuinfo")
    has = cpu.exists() and " avx512_bf16" in cpu.read_text(encoding="utf8")
    return has and os.environ.get("MOJO_CPU_ISA", "avx512") == "avx512"


def in_library(op):
    """Whether the library has the op: CUDA's has only those with CUDA kernels."""
    return "cuda" in op.devices or "mojo_ops_cuda" not in library


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
          reused=False, declared=True):
    """A model of one node. shapes may hold None for a dim unknown at load time, and for an omitted input; constants
    maps an input's index to its value; leave_out drops that many outputs at the end. With known shapes the outputs' are
    declared to be the first input's, unless declared is false, so that they may take the inputs' memory; unless reused,
    which makes a later node read the first input again.
    """
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
        helper.make_node(
            op,
            [f"t{i}" if s is not None else "" for i, s in enumerate(shapes)],
            [f"u{i}" for i in range(len(kept))],
            name="the_node",
            domain="mojo",
            **attributes,
        )
    )
    outputs, infos = [], []
    for i, dtype in enumerate(kept):
        if declared and None not in shapes[0]:
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
    return helper.make_model(graph, functions=list(functions), ir_version=9,
                             opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid("mojo", 1)])


def run(op, values, types, out_types, attributes, constant=(), dynamic=True, threads=1, optimize=True,
        **more):
    """Runs one node and returns its outputs as float32."""
    shapes = [None if v is None else [None] * np.ndim(v) if dynamic else list(np.shape(v)) for v in values]
    m = model(op, shapes, types, out_types, attributes, {i: values[i] for i in constant}, **more)
    s = session(m, threads, optimize)
    feeds = {f"x{i}": np.asarray(v, np.float32) for i, v in enumerate(values) if i not in constant and v is not None}
    count = len(out_types) - more.get("leave_out", 0)
    again = ["again"] if more.get("reused") else []
    return s.run([f"y{i}" for i in range(count)] + again, feeds)
