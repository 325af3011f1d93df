"""Checks and runs the models that the Go test wrote; usage: check_bodies.py FOLDER [KERNEL_LIBRARY]

Every model takes float32 inputs, casts them to the types of the op, and casts the results back. Each output of the
function bodies, and of the kernels where their library is given, is compared with numpy formulas that are written
independently of both.
"""
import glob
import json
import math
import os
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
erf = np.vectorize(math.erf)


def rnd(x, t):
    return x.astype(np.float32).astype(TYPES[t]).astype(np.float64)


def rmsnorm(x, scale, types, a):
    axes = tuple(range(a["axis"], 0))
    n = x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + a["epsilon"])
    if a["scale_after_cast"]:
        return rnd(rnd(n, types[-1]) * scale, types[-1])
    return rnd(n * scale, types[0])


def rotary(x, cos, sin, t, a):
    d, r, first = x.shape[-1], a["rotary_dim"], a["rotated_side"] == "first"
    at = 0 if first else d - r
    y = x.copy()
    for i in range(r // 2):
        p, q = (2 * i, 2 * i + 1) if a["interleaved"] else (i, i + r // 2)
        j, k = (2 * i, 2 * i + 1) if a["output_layout"] == "interleaved" else (i, i + r // 2)
        u, w = x[..., at + p], x[..., at + q]
        cj, ck = (j, k) if cos.shape[-1] == r else (i, i)
        y[..., at + j] = rnd(rnd(u * cos[..., cj], t) - rnd(w * sin[..., cj], t), t)
        y[..., at + k] = rnd(rnd(w * cos[..., ck], t) + rnd(u * sin[..., ck], t), t)
    return y


def expected(op, x, types, a):
    if op == "RMSNorm":
        return [rmsnorm(x[0], x[1], types, a)]
    if op == "AddRMSNorm":
        s = rnd(x[0] + x[1], types[0])
        return [rmsnorm(s, x[2], types, a), s]
    if op == "GLU":
        g, u = x
        if a["limit"] > 0:
            g, u = np.minimum(g, a["limit"]), np.clip(u, -a["limit"], a["limit"])
        act = {
            "silu": lambda: g / (1 + np.exp(-a["alpha"] * g)),
            "gelu": lambda: 0.5 * g * (1 + erf(g / math.sqrt(2))),
            "gelu_tanh": lambda: 0.5 * g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))),
        }[a["activation"]]()
        return [rnd(rnd(act, types[0]) * rnd(u + a["up_offset"], types[0]), types[0])]
    if op == "RotaryEmbedding":
        return [rotary(*x, types[0], a)]
    raise ValueError(op)


def run(path, level, dump=None, library=None):
    o = ort.SessionOptions()
    if library:
        o.register_custom_ops_library(library)
    o.graph_optimization_level = level
    o.intra_op_num_threads = 1
    o.log_severity_level = 3
    if dump:
        o.optimized_model_filepath = dump
    return ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])


def main(folder, library=None):
    failures, compared = [], 0
    for path in sorted(glob.glob(os.path.join(folder, "*.onnx"))):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        imports = {o.domain: o.version for o in model.opset_import}
        for f in model.functions:
            got = {o.domain: o.version for o in f.opset_import}
            if got.get("") != imports[""]:
                failures.append(f"{path}: function {f.name} imports {got}, the model {imports}")
        cases = json.load(open(path[:-5] + ".json"))
        rng = np.random.default_rng(7)
        feeds = {}
        for c in cases:
            for name, shape, t in zip(c["inputs"], c["shapes"], c["types"]):
                feeds[name] = (rng.standard_normal(shape) * c.get("spread", 1.5)).astype(TYPES[t]).astype(np.float32)
        sessions = []
        dump = path[:-5] + ".optimised"
        for level in (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
            sessions.append(run(path, level, dump if not sessions else None))
        if library:
            sessions.append(run(path, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, library=library))
        names = [o.name for o in sessions[0].get_outputs()]
        results = [dict(zip(names, s.run(names, feeds))) for s in sessions]
        fused = sum(n.op_type == "SimplifiedLayerNormalization" for n in onnx.load(dump).graph.node)
        want = sum(c["op"] == "RMSNorm" and set(c["types"]) == {"float32"} and c["attributes"]["axis"] == -1 for c in cases)
        if fused < want:
            failures.append(f"{path}: onnxruntime fused {fused} float32 norm bodies, {want} expected")
        for c in cases:
            x = [feeds[n].astype(np.float64) for n in c["inputs"]]
            for name, want, t in zip(c["outputs"], expected(c["op"], x, c["types"], c["attributes"]), c["output_types"]):
                for r in results:
                    eps = float(ml_dtypes.finfo(TYPES[t]).eps)
                    bound = 0 if c["op"] == "RotaryEmbedding" else 4 * eps * np.abs(want).max()
                    worst = np.abs(r[name].astype(np.float64) - want).max()
                    compared += 1
                    if not worst <= bound or r[name].shape != want.shape:
                        failures.append(f"{path}: {name}: differs by {worst}, {bound} allowed")
    if failures:
        sys.exit("\n".join(failures))
    print(f"compared {compared}")


main(*sys.argv[1:])
