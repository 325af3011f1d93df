"""Runs patched models on onnxruntime's CANN provider: see cann_test.py."""

import glob
import os
import unittest

import onnx
import onnxruntime as ort

from cann_node import CANN, PROVIDER
from patched_models import check_patched, recorded

models = patched = None  # folders, set by the main program


class ModelsTest(unittest.TestCase):
    """The patched models: every fused node on the provider, and the recorded outputs."""

    def test_goldens(self):
        if not (models and patched):
            self.skipTest("needs --models and --patched")
        files = sorted(glob.glob(os.path.join(patched, "*.onnx")))
        self.assertTrue(files, f"no models in {patched}")
        for file in files:
            if any(n.op_type == "Conv" for n in onnx.load(file).graph.node):
                print(f"{os.path.basename(file)}: skipped, the emulation of CANN has no Conv2D")
                continue
            with self.subTest(os.path.basename(file)):
                self.model(file)

    def model(self, file):
        name = os.path.basename(file).removesuffix(".onnx")
        cases = recorded(models, name)
        providers = [PROVIDER, "CPUExecutionProvider"]
        if (
            "bf16" in name
        ):  # neither provider has the other kernels that these need: the patched part is widened to float32
            with self.assertRaises(Exception):
                ort.InferenceSession(os.path.join(models, name + ".onnx"), providers=providers)
            name += ", as float32"
        check_patched(self, file, name, cases, CANN, providers)
