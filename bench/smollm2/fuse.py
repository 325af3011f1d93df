#!/usr/bin/env python3
"""Fuses a model with another tool:  fuse.py optimize_for_ort|fuse_for_onnxruntime IN.onnx OUT.onnx

Both tools look at shapes, which the exporter had written and the bundled graph lacks: onnxruntime's symbolic shape
inference brings them back first. Prints the seconds and the CPU seconds of the tool's call as JSON; inference, reading
and writing are not among them, nor are imports.
"""

import json
import os
import pathlib
import sys
import time

import onnx
import onnx_ir
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

tool, source, target = sys.argv[1], *(pathlib.Path(p).resolve() for p in sys.argv[2:])
os.chdir(source.parent)  # the inference looks for external data here
if tool == "optimize_for_ort":
    from onnxscript.rewriter.ort_fusions import optimize_for_ort
else:
    from transformers.exporters.onnxruntime_fusions import fuse_for_onnxruntime

shaped = target.with_suffix(".shaped.onnx")  # beside the weights
onnx.save(SymbolicShapeInference.infer_shapes(onnx.load(source, load_external_data=False), auto_merge=True), shaped)
model = onnx_ir.load(shaped)
wall, cpu = time.perf_counter(), time.process_time()
if tool == "optimize_for_ort":
    model, counts = optimize_for_ort(model)
    print({name: count for name, count in counts.items() if count}, file=sys.stderr)
else:
    fuse_for_onnxruntime(model, "cpu")
print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))
shaped.unlink()
onnx_ir.save(model, target, external_data=target.name + ".data")
