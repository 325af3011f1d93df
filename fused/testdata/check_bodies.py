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

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int64": np.int64}
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


def best(v, k):
    return np.argsort(-v, -1, kind="stable")[..., :k]


def router(logits, bias, a):
    def score(z):
        if a["score"] == "sigmoid":
            return 1 / (1 + np.exp(-z))
        if a["score"] == "sqrtsoftplus":
            return np.sqrt(np.logaddexp(z, 0))
        e = np.exp(z - z.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    v = score(logits) if a["order"] == "score_first" else logits
    choice = v if bias is None else v + bias
    if a["groups"] > 1:
        grouped = choice.reshape(v.shape[:-1] + (a["groups"], v.shape[-1] // a["groups"]))
        of_group = grouped.max(-1) if a["group_score"] == "max" else np.sort(grouped, -1)[..., -2:].sum(-1)
        kept = np.zeros(of_group.shape, bool)
        np.put_along_axis(kept, best(of_group, a["group_top_k"]), True, -1)
        choice = np.where(kept[..., None], grouped, a["excluded_score"]).reshape(v.shape)
    ids = best(choice, a["top_k"])
    w = np.take_along_axis(v, ids, -1)
    if a["order"] == "top_k_first":
        w = score(w)
    if a["renormalize"]:
        w = w / (w.sum(-1, keepdims=True) + a["epsilon"])
    return [w * a["scale"], ids.astype(np.float64)]


ACTIVATIONS = {
    "silu": lambda g, alpha: g / (1 + np.exp(-alpha * g)),
    "gelu": lambda g, _: 0.5 * g * (1 + erf(g / math.sqrt(2))),
    "gelu_tanh": lambda g, _: 0.5 * g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))),
    "relu": lambda g, _: np.maximum(g, 0),
    "relu2": lambda g, _: np.maximum(g, 0) ** 2,
}


def moe(x, weights, ids, gate_up, down, gate_up_bias, down_bias, t, a):
    act = ACTIVATIONS[a["activation"]]
    gate_up = gate_up if a["gate_up_layout"] == "out_in" else gate_up.transpose(0, 2, 1)
    down = down if a["down_layout"] == "out_in" else down.transpose(0, 2, 1)
    k = ids.shape[-1]
    tokens, weights, ids = x.reshape(-1, x.shape[-1]), weights.reshape(-1, k), ids.reshape(-1, k).astype(int)
    y = np.zeros(tokens.shape)
    for row, token in enumerate(tokens):
        for w, e in zip(weights[row], ids[row]):
            h = gate_up[e] @ token + (0 if gate_up_bias is None else gate_up_bias[e])
            if a["packing"] == "none":
                v = act(h, a["alpha"])
            else:
                g, u = (h[0::2], h[1::2]) if a["packing"] == "interleaved" else np.split(h, 2)
                if a["limit"] > 0:
                    g, u = np.minimum(g, a["limit"]), np.clip(u, -a["limit"], a["limit"])
                v = act(g, a["alpha"]) * (u + a["up_offset"])
            y[row] += w * (down[e] @ v + (0 if down_bias is None else down_bias[e]))
    return [rnd(y, t).reshape(x.shape)]


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
        act = ACTIVATIONS[a["activation"]](g, a["alpha"])
        return [rnd(rnd(act, types[0]) * rnd(u + a["up_offset"], types[0]), types[0])]
    if op == "NormRotary":
        n = rmsnorm(x[0], x[1], types[:2], dict(a, axis=-1))
        return [rotary(n, x[2], x[3], types[2], a)]
    if op == "RotaryEmbedding":
        return [rotary(*x, types[0], a)]
    if op == "TopKRouter":
        a = dict(a, excluded_score=float(a["excluded_score"]))
        return router(x[0], x[1] if len(x) > 1 else None, a)
    if op == "MoE":
        return moe(*(x + [None] * 7)[:7], types[0], a)
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
                if not name:
                    continue
                if t == "int64":  # experts: of four, one of which is left alone
                    feeds[name] = rng.choice([0, 1, 3], shape).astype(np.float32)
                    continue
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
        want = sum(c["op"] in ("RMSNorm", "NormRotary") and set(c["types"]) == {"float32"} and c["attributes"].get("axis", -1) == -1
                   for c in cases)
        if fused < want:
            failures.append(f"{path}: onnxruntime fused {fused} float32 norm bodies, {want} expected")
        for c in cases:
            x = [feeds[n].astype(np.float64) if n else None for n in c["inputs"]]
            for name, want, t in zip(c["outputs"], expected(c["op"], x, c["types"], c["attributes"]), c["output_types"]):
                for r in results:
                    exact = t == "int64" or c["op"] == "RotaryEmbedding"
                    eps = 0 if exact else float(ml_dtypes.finfo(TYPES[t]).eps)
                    bound = (8 if c["op"] == "MoE" else 4) * eps * np.abs(want).max(initial=0)
                    worst = np.abs(r[name].astype(np.float64) - want).max(initial=0)
                    compared += 1
                    if not worst <= bound or r[name].shape != want.shape:
                        failures.append(f"{path}: {name}: differs by {worst}, {bound} allowed")
    if failures:
        sys.exit("\n".join(failures))
    print(f"compared {compared}")


main(*sys.argv[1:])
