#!/usr/bin/env python3
"""Writes small models by toolchains other than torch.onnx, with the outputs of their own frameworks.

    toolchains.py TOOLCHAIN --out DIR [--set N] [--only TEXT]

TOOLCHAIN is jax (jax2onnx), tf (tf2onnx), spox or script (onnxscript). Set 1 is what the finder was mended on; set
2 was written without knowledge of it. tools/requirements/toolchains.txt pins what jax, spox and script need,
toolchains-tf.txt what tf does, toolchains-second.txt and toolchains-tf-second.txt what set 2 needs beside these.

DIR gets TOOLCHAIN-NAME.onnx, its goldens
TOOLCHAIN-NAME.npz, and truth.json: the blocks that each model has by construction. The exit status is 1 where a
model is not written or onnxruntime, without optimizations, does not give its framework's outputs; such a one is left
out.
"""

import argparse
import importlib
import itertools
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parent / "toolchains"))
import cases  # noqa: E402
import values  # noqa: E402

# The names of their values take as much of their files as the rest: numbers replace them.
NUMBERED = ["jax-decoder-qwen3", "jax-decoder-scan"]

# Largest difference to the framework that an export may show, as a part of the largest output.
LIMITS = {np.dtype(np.float32): 1e-4, np.dtype(np.float16): 2e-2}


def differs(session, arrays, expected):
    got = session.run(None, arrays)
    for a, b in zip(got, expected, strict=True):
        if a.shape != b.shape:
            return f"shape {a.shape} for {b.shape}"
        limit = LIMITS.get(b.dtype, 0)
        error = np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-30)
        if not error <= limit:
            return f"difference {error:.2g} of the largest output"
    return ""


def write(toolchain, case, exporter, out):
    model, shapes, run = exporter.export(case)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [o.name for o in session.get_outputs()]
    recorded, seen = {}, []
    for sizes in cases.SIZES:
        arrays = cases.inputs(case.name, shapes, sizes)
        key = [a.shape for a in arrays.values()]
        if key in seen:  # a static model has one shape, and as many cases with other numbers
            arrays = {k: a if a.dtype.kind == "i" else (a * 0.7).astype(a.dtype) for k, a in arrays.items()}
        expected = run(arrays)
        arrays = {i.name: arrays[k] for i, k in zip(session.get_inputs(), shapes, strict=True)}
        if problem := differs(session, arrays, expected):
            raise ValueError(f"as exported: {problem}")
        n = len(seen)
        recorded |= {f"{n}.in.{k}": np.asarray(a, order="C") for k, a in arrays.items()}
        recorded |= {f"{n}.out.{k}": np.asarray(a, order="C") for k, a in zip(names, expected, strict=True)}
        seen.append(key)
    name = f"{toolchain}-{case.name}"
    if name in NUMBERED:
        values.number(model)
    onnx.save(model, out / f"{name}.onnx")
    np.savez_compressed(out / f"{name}.npz", n=np.int64(len(seen)), **recorded)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    return name, {"toolchain": toolchain, "opset": opset, "nodes": len(model.graph.node), "blocks": case.blocks}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("toolchain", choices=["jax", "tf", "spox", "script"])
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--set", type=int, choices=[1, 2], default=1)
    p.add_argument("--only", default="")
    args = p.parse_args()
    exporter = importlib.import_module(f"with_{args.toolchain}")
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "truth.json"
    truth = json.loads(file.read_text()) if file.exists() else {"schema": 1, "models": {}}
    failed = written = 0
    for case in itertools.chain(*(importlib.import_module(m).CASES for m in exporter.MODULES[args.set])):
        if args.only not in case.name:
            continue
        try:
            name, entry = write(args.toolchain, case, exporter, args.out)
            truth["models"][name] = entry
            written += 1
        except Exception as e:
            failed += 1
            print(f"{args.toolchain}-{case.name}: {type(e).__name__}: {str(e)[:300]}", file=sys.stderr)
        file.write_text(json.dumps(truth, indent=1) + "\n")
    print(f"{args.toolchain}: {written} written, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
