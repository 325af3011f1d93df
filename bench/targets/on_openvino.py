#!/usr/bin/env python3
"""Compiles exports with OpenVINO for the CPU, as they are and patched with `apply --target openvino`, counts the
layers RMS, RoPE, Subgraph (one for each attention) and GatherMatmul (three for each mixture that is written) of the
compiled models, and compares the patched ones with the goldens."""

import collections
import pathlib
import tempfile

import ml_dtypes
import numpy as np
import openvino

import exports

# Differences are in units of an output's greatest magnitude; OpenVINO computes in float32 here, the goldens in the
# type of the model.
TOLERANCE = {"fp32": 1e-5, "fp16": 1e-2, "bf16": 6e-2}


class Runtime:
    def __init__(self):
        self.core = openvino.Core()

    def compile(self, path, export):
        """The model, with the dimensions fixed that are the same in all cases."""
        model = self.core.read_model(str(path))
        shapes = {}
        for name in export.cases[0][0]:
            of = [inputs[name].shape for inputs, _ in export.cases]
            shapes[name] = openvino.PartialShape([d[0] if len(set(d)) == 1 else -1 for d in zip(*of)])
        model.reshape(shapes)
        return self.core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def layers(self, compiled):
        return collections.Counter(
            str(n.get_rt_info()["layerType"].value) for n in compiled.get_runtime_model().get_ops()
        )

    def run(self, compiled, inputs, names):
        request = compiled.create_infer_request()
        for name, array in inputs.items():
            kind = compiled.input(name).element_type
            if kind == openvino.Type.bf16:  # which numpy does not have
                array = array.astype(ml_dtypes.bfloat16)
                request.set_tensor(name, openvino.Tensor(array.view(np.uint16), openvino.Shape(array.shape), kind))
            else:
                request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(array, kind.to_dtype())))
        request.infer()
        outputs = {}
        for name in names:
            tensor = request.get_tensor(compiled.output(name))
            outputs[name] = (
                tensor.data.view(ml_dtypes.bfloat16) if tensor.element_type == openvino.Type.bf16 else tensor.data
            )
        return outputs


def run(tool, models):
    exports.header("mojo-patch apply --target openvino, compiled and run by OpenVINO for the CPU", ["openvino"])
    runtime, faults = Runtime(), []
    rows = [
        [
            "model",
            "norms",
            "rotary",
            "RMS before",
            "after",
            "RoPE before",
            "after",
            "attention",
            "Subgraph before",
            "after",
            "MoE",
            "GatherMatmul",
            "layers before",
            "after",
            "difference",
            "not shown",
        ]
    ]
    for export in models:
        with tempfile.TemporaryDirectory() as folder:
            patched = pathlib.Path(folder) / "patched.onnx"
            report = exports.patch(tool, export, "openvino", {}, patched)
            before, compiled = runtime.layers(runtime.compile(export.path, export)), runtime.compile(patched, export)
            after = runtime.layers(compiled)
            worst = max(exports.difference(i, runtime.run(compiled, i, o), o) for i, o in export.cases)
        blocks, branches = export.blocks, after["If"]  # the compiled model hides the nodes of branches
        want = {
            "RMS": blocks["rmsnorm"],
            "RoPE": blocks["rope"],
            "MVN": blocks["layernorm"],
            "GatherMatmul": 3 * sum(s.get("op") == "MoE" and s["status"] == "fused" for s in report["sites"]),
        }
        attention = sum(s.get("op") == "Attention" and s["status"] == "fused" for s in report["sites"])
        rows.append(
            [export.name, str(want["RMS"]), str(want["RoPE"])]
            + [str(c[layer]) for layer in ["RMS", "RoPE"] for c in (before, after)]
            + [str(attention)]
            + [str(c["Subgraph"]) for c in (before, after)]
            + [
                str(blocks["moe"]),
                str(after["GatherMatmul"]),
                str(before.total()),
                str(after.total()),
                f"{worst:.1e}",
                f"inside {branches} If" if branches else "",
            ]
        )
        for layer, n in want.items():
            if after[layer] > n or after[layer] < n and not branches:
                faults.append(f"{export.name}: {after[layer]} layers {layer} for {n} blocks")
        if after["Subgraph"] < max(attention, before["Subgraph"]) and not branches:
            faults.append(f"{export.name}: {after['Subgraph']} layers Subgraph for {attention} written attentions")
        limit = next(TOLERANCE[t] for t in TOLERANCE if t in export.name.split("-"))
        if not worst <= limit:
            faults.append(
                f"{export.name}: differs from its goldens by {worst:.2g} of the greatest magnitude, {limit} are allowed"
            )
    exports.table(rows)
    return faults


if __name__ == "__main__":
    exports.main(run, __doc__)
