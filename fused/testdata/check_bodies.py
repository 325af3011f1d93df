"""Checks and runs the models that the Go test wrote; usage: check_bodies.py FOLDER [LIBRARY OPSET]

Every model takes float32 inputs, casts them to the types of the op, and casts the results back. Each output of the
function bodies, and of the kernels in LIBRARY for the models of OPSET, is compared with numpy formulas that are written
independently of both (formulas.py of the kernels' tests).
"""
import glob
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../kernels/tests"))
from formulas import (  # noqa: E402
    FORMULAS,
    I8,
    I32,
    NUMPY_TYPE,
    PAGED,
    U8,
    apart,
    paged_inputs,
    random_codes,
    sampling_input,
    spread,
)
from ops import OPS  # noqa: E402


def expected(case, inputs):
    """The result of the formula of the case's op, and the tolerance for others."""
    op, formula, types = OPS[case["op"]], FORMULAS[case["op"]], case["output_types"]
    inputs = inputs + [None] * (len(op.inputs) - len(inputs))
    attributes = op.typed(case["attributes"][name] for name in op.attributes)
    wants = formula.compute(types, *inputs, **attributes)
    return wants, formula.bounds(wants, types, *inputs, **attributes)


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


def main(folder, library=None, opset=None):
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
            if c["op"] in PAGED:
                numbers = iter(paged_inputs(rng, c["shapes"]))
                feeds |= {name: next(numbers).astype(np.float32) for name, t in zip(c["inputs"], c["types"])
                          if name and t == I32}
            for name, shape, t in zip(c["inputs"], c["shapes"], c["types"]):
                if not name or t == I32:
                    continue
                drawn = sampling_input(rng, name.split("_", 2)[2], shape)
                if drawn is not None:
                    feeds[name] = drawn.astype(np.float32)
                    continue
                if t == "int64":  # experts: of four, one of which is left alone, or none
                    none = [-1] if "MoE" in c["op"] else []
                    feeds[name] = rng.choice([0, 1, 3] + none, shape).astype(np.float32)
                    continue
                if name.endswith("_zero"):
                    feeds[name] = np.zeros(shape, np.float32)
                    continue
                if t in (I8, U8):
                    feeds[name] = random_codes(rng, name.split("_", 2)[2], shape, t).astype(np.float32)
                    continue
                deviation = c.get("spread", 1.5) * spread(name.split("_", 2)[2])
                feeds[name] = (rng.standard_normal(shape) * deviation).astype(NUMPY_TYPE[t]).astype(np.float32)
        sessions = []
        dump = path[:-5] + ".optimized"
        for level in (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
            sessions.append(run(path, level, dump if not sessions else None))
        if library and imports[""] == int(opset):
            sessions.append(run(path, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, library=library))
        names = [o.name for o in sessions[0].get_outputs()]
        results = [dict(zip(names, s.run(names, feeds))) for s in sessions]
        fused = sum(n.op_type == "SimplifiedLayerNormalization" for n in onnx.load(dump).graph.node)
        want = sum(
            c["op"] in ("RMSNorm", "NormRotary")
            and set(c["types"]) == {"float32"}
            and c["attributes"].get("axis", -1) == -1
            for c in cases
        )
        if fused < want:
            failures.append(f"{path}: onnxruntime fused {fused} float32 norm bodies, {want} expected")
        for c in cases:
            x = [feeds[n].astype(np.float64) if n else None for n in c["inputs"]]
            for name, want, bound in zip(c["outputs"], *expected(c, x)):
                for r in results:
                    compared += 1
                    if r[name].shape != want.shape:
                        failures.append(f"{path}: {name}: has the shape {r[name].shape}, {want.shape} expected")
                        continue
                    worst = apart(r[name], want)
                    if not np.all(worst <= bound):
                        failures.append(f"{path}: {name}: differs by {worst.max()}, {np.max(bound)} allowed")
    if failures:
        sys.exit("\n".join(failures))
    print(f"compared {compared}")


main(*sys.argv[1:])
