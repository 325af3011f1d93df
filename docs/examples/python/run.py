"""Runs a patched model with the kernels and compares with recorded outputs.

usage: run.py PATCHED.onnx GOLDEN.npz        (pip install onnxruntime numpy, and the wheel of `make wheel`)
"""

import sys

import mojo_patch
import numpy as np
import onnxruntime as ort

# The whole of it: one line more than without the kernels.
options = ort.SessionOptions()
options.register_custom_ops_library(mojo_patch.get_library_path())
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
golden = np.load(sys.argv[2])
outputs = session.run(None, {x.name: golden[f"0.in.{x.name}"] for x in session.get_inputs()})

for x, got in zip(session.get_outputs(), outputs):
    want = golden[f"0.out.{x.name}"]
    difference = np.abs(got - want).max() / np.abs(want).max()
    print(f"{x.name}: largest difference {difference:.2g} of the largest magnitude")
    if not difference < 1e-5:
        sys.exit("that is too much")
