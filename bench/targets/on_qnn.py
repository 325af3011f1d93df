#!/usr/bin/env python3
"""Runs exports with Qualcomm's provider for onnxruntime, on the emulator of its NPU (HTP) that the x86-64 package
carries, as they are and patched with `apply --target qnn`; counts the ops that the provider made of them, and
compares the patched ones with the goldens. CPU fallback is disabled, so that a model runs on the NPU or not at all;
a second session allows it only if the nodes left to the CPU are not part of a recognized block."""

import collections
import json
import os
import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime
import onnxruntime_qnn
from onnx import helper, numpy_helper

import exports

# The NPU computes in float16. In units of an output's greatest magnitude.
TOLERANCE = 1e-2
SOC = "60"
SHAPES = [
    (132, 16),
    (1, 132, 16),
    (2, 7, 64),
    (3, 11, 64),
    (9, 64, 256),
    (2, 7, 4, 16),
    (1, 11, 4, 16),
    (3, 11, 4, 128),
    (1, 64, 8, 128),
    (2, 64, 32, 128),
]
# Ops that the target writes; their nodes must not run on the CPU.
OURS = ["RMSNormalization", "RotaryEmbedding", "LayerNormalization", "Sigmoid", "Gelu", "MatMul", "Equal"]


class Runtime:
    def __init__(self):
        onnxruntime.set_default_logger_severity(4)
        onnxruntime.register_execution_provider_library("QNNExecutionProvider", onnxruntime_qnn.get_library_path())
        self.devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "QNNExecutionProvider"][:1]

    def open(self, model, fallback):
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if fallback else "1")
        options.add_provider_for_devices(
            self.devices,
            {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "soc_model": SOC, "enable_framework_op_trace": "1"},
        )
        return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), options)


class Attempt:
    """A model opened: its session, the ops that QNN runs with the nodes that they came from, the nodes left to the CPU,
    and why it could not be opened."""

    def __init__(self, runtime, model, fallback=False):
        trace = pathlib.Path("qnn_op_trace.json")  # the provider writes it into the working directory
        trace.unlink(missing_ok=True)
        self.session, self.error = None, ""
        try:
            self.session = runtime.open(model, fallback)
        except Exception as e:  # onnxruntime has a class for each of its codes
            self.error = str(e)
        found = json.loads(trace.read_text()) if trace.exists() else {"subgraph_traces": [], "unsupported_nodes": []}
        self.ops = [
            (op["dst_qnn_op_type"], {s["name"] for s in op["sources"]})
            for g in found["subgraph_traces"]
            for op in g["op_mappings"]
        ]
        self.left = collections.Counter(n["op_type"] for n in found["unsupported_nodes"])

    def count(self, kind):
        return sum(op == kind for op, _ in self.ops)

    def text(self):
        """The result, in a few words."""
        if "1002" in self.error:
            return "QNN error 1002"
        if len(self.left) > 3:
            return f"CPU: {self.left.total()} nodes of {len(self.left)} kinds"
        if self.left or "fallback" in self.error:
            return "CPU: " + (" ".join(f"{op} {n}" for op, n in sorted(self.left.items())) or "part of it")
        return self.error[:60] or "all"


def fixed(export, case, to):
    """The model as it is, with the shapes of a case."""
    model = onnx.load(export.path)
    for value in model.graph.input:
        for dim, d in zip(value.type.tensor_type.shape.dim, case[value.name].shape):
            dim.dim_value = d
    onnx.save(model, to)


def norm_ops(export, report, attempt):
    """How many QNN ops the nodes of the norms became, without the addition before a norm."""
    kinds, nodes = {n.name: n.op_type for n in onnx.load(export.path).graph.node}, set()
    for site in report["sites"]:
        if site.get("op") in ("RMSNorm", "AddRMSNorm"):
            sums = [n for n in site["nodes"] if kinds.get(n) == "Add"]
            nodes.update(n for n in site["nodes"] if not (site["op"] == "AddRMSNorm" and n in sums[:1]))
    return sum(bool(sources & nodes) for _, sources in attempt.ops)


def counts(export, patched):
    """The errors in the ops of a patched model."""
    want = {
        "RmsNorm": export.blocks["rmsnorm"],
        "RotaryEmbedding": export.blocks["rope"],
        "LayerNorm": export.blocks["layernorm"],
    }
    if patched.left["If"]:  # whose branches QNN does not look into
        want = dict.fromkeys(want, 0)
    for op, n in want.items():
        if patched.count(op) != n:
            yield f"{patched.count(op)} ops {op}, not {n}"
    for op in OURS:
        if patched.left[op]:
            yield f"{patched.left[op]} nodes {op} are left to the CPU"


def one(tool, runtime, export):
    """The row of a model, and its errors."""
    faults, worst, first = [], 0.0, None
    for inputs, outputs in export.cases:
        with tempfile.TemporaryDirectory() as folder:
            plain, patched = pathlib.Path(folder) / "plain.onnx", pathlib.Path(folder) / "patched.onnx"
            report = exports.patch(tool, export, "qnn", {name: a.shape for name, a in inputs.items()}, patched)
            if export.bfloat16:
                return bfloat16(export, report)
            after = Attempt(runtime, patched)
            if not after.session and after.left:
                after = Attempt(runtime, patched, fallback=True)
            if not after.session:
                faults.append(after.error)
                continue
            got = dict(zip([o.name for o in after.session.get_outputs()], after.session.run(None, inputs)))
            worst, after.session = max(worst, exports.difference(inputs, got, outputs)), None
            if first is None:
                first = after
                fixed(export, inputs, plain)
                before = Attempt(runtime, plain)
                of_norms = norm_ops(export, report, before)
                faults += counts(export, after)
    if first is None:
        return row(export, "", "", "", faults[0][:60], "", "", "", ""), faults
    if not worst <= TOLERANCE:
        faults.append(f"differs from its goldens by {worst:.2g} of the greatest magnitude, {TOLERANCE} are allowed")
    return (
        row(
            export,
            before.text(),
            str(len(before.ops) or ""),
            str(of_norms or ""),
            first.text(),
            str(len(first.ops) or ""),
            str(first.count("RmsNorm")),
            str(first.count("RotaryEmbedding")),
            f"{worst:.1e}",
        ),
        faults,
    )


def row(export, *cells):
    return [export.name] + [str(export.blocks[b]) for b in ("rmsnorm", "rope", "moe")] + list(cells)


def bfloat16(export, report):
    """QNN has no bfloat16: all fused ops must have been left open, and say so."""
    taken = [s["node"] for s in report["sites"] if s["status"] == "fused" and s["kernel"] == "qnn"]
    silent = [s["node"] for s in report["sites"] if s["status"] == "open" and not s.get("reason")]
    faults = [f"sites {taken} are written in bfloat16"] * bool(taken) + [
        f"sites {silent} are open without a reason"
    ] * bool(silent)
    return row(export, "", "", "", "left open: bfloat16", "", "", "", ""), faults


def norms(runtime):
    """RmsNorm of several shapes, as they are and as the target writes them, against onnxruntime's own."""
    print("\nRMSNormalization alone, in units of the greatest magnitude, as it is and as the target writes it: of rows")
    rows, faults = [["shape", "float32", "of rows", "float16", "of rows"]], []
    for shape in SHAPES:
        cells = []
        for kind in (np.float32, np.float16):
            for flat in (False, True):
                d = norm_difference(runtime, shape, kind, flat)
                cells.append(f"{d:.1e}" if d <= TOLERANCE else "wrong")
                if flat and not d <= TOLERANCE:
                    faults.append(f"RMSNormalization of rows of {shape}: differs by {d:.2g}")
        rows.append([str(list(shape))] + cells)
    exports.table(rows)
    return faults


def norm_difference(runtime, shape, kind, flat):
    random = np.random.default_rng(0)
    x, scale = random.standard_normal(shape).astype(kind), random.random(shape[-1]).astype(kind)
    of = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node("RMSNormalization", ["x", "scale"], ["y"], axis=-1, epsilon=1e-6)]
    constants = [numpy_helper.from_array(scale, "scale")]
    if flat:
        nodes = [
            helper.make_node("Reshape", ["x", "flat"], ["rows"]),
            helper.make_node("RMSNormalization", ["rows", "scale"], ["normed"], axis=-1, epsilon=1e-6),
            helper.make_node("Reshape", ["normed", "shape"], ["y"]),
        ]
        constants += [numpy_helper.from_array(np.array(a), n) for a, n in (([-1, shape[-1]], "flat"), (shape, "shape"))]
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("x", of, shape)],
        [helper.make_tensor_value_info("y", of, shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()
    want = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    got = runtime.open(model, fallback=False).run(None, {"x": x})[0]
    return exports.difference({}, {"y": got}, {"y": want})


def run(tool, models):
    exports.header(
        "mojo-patch apply --target qnn, run by onnxruntime's QNN provider: emulator of the HTP, no hardware",
        ["onnxruntime", "onnxruntime-qnn"],
    )
    print(
        f"soc_model {SOC}. all: on the NPU with CPU fallback disabled; CPU: nodes that are left to it; "
        "QNN error 1002: the graph cannot be finalized"
    )
    print("ops: of QNN; of norms: those that the nodes of the norms became, the residual's addition apart")
    here, runtime, faults = os.getcwd(), Runtime(), []
    rows = [
        [
            "model",
            "norms",
            "rotary",
            "MoE",
            "unpatched",
            "ops",
            "of norms",
            "patched",
            "ops",
            "RmsNorm",
            "RotaryEmbedding",
            "difference",
        ]
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the provider writes its trace here
        for export in models:
            cells, wrong = one(tool, runtime, export)
            rows.append(cells)
            faults += [f"{export.name}: {w}" for w in wrong]
        exports.table(rows)
        faults += norms(runtime)
        os.chdir(here)
    return faults


if __name__ == "__main__":
    exports.main(run, __doc__)
