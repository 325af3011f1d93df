"""Runs a patched model, without its function bodies, with the kernels of the installed package.

usage: use_installed.py ENVIRONMENT PATCHED GOLDEN        (run by test_wheel.py in a fresh environment)
"""

import sys

import mojo_patch
import numpy as np
import onnx
import onnxruntime as ort

environment, patched, golden = sys.argv[1:]
library = mojo_patch.get_library_path()
assert library.startswith(environment), f"{library} is not in {environment}"
assert mojo_patch.__version__ != "0", mojo_patch.__version__

model = onnx.load(patched)
assert any(n.domain == "mojo" for n in model.graph.node), "nothing was fused"
del model.functions[:]
bare = model.SerializeToString()
options = ort.SessionOptions()
options.log_severity_level = 4
try:
    ort.InferenceSession(bare, options, providers=["CPUExecutionProvider"])
except Exception:
    pass
else:
    sys.exit("the model runs without its kernels, so this test shows nothing")

options.register_custom_ops_library(library)
session = ort.InferenceSession(bare, options, providers=["CPUExecutionProvider"])
cases = np.load(golden)
for i in range(int(cases["n"])):
    inputs = {x.name: cases[f"{i}.in.{x.name}"] for x in session.get_inputs()}
    for x, got in zip(session.get_outputs(), session.run(None, inputs)):
        want = cases[f"{i}.out.{x.name}"]
        worst = np.abs(got - want).max() / np.abs(want).max()
        assert worst < 1e-5, f"case {i}, {x.name}: worst difference {worst:.2g} of the largest magnitude"
print("ok")
