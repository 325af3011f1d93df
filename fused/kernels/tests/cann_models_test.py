"""Runs patched models on onnxruntime's CANN provider: see cann_test.py."""

import glob
import os
import unittest

import numpy as np
import onnx
import onnxruntime as ort

from cann_node import CANN, PROVIDER
from cuda_test import FUSED, profiled

models = patched = None  # folders, set by the main program


class ModelsTest(unittest.TestCase):
    """The patched models: every fused node on the provider, and the recorded outputs."""

    def test_goldens(self):
        if not (models and patched):
            self.skipTest("needs --models and --patched")
        files = sorted(glob.glob(os.path.join(patched, "*.onnx")))
        self.assertTrue(files, f"no models in {patched}")
        for file in files:
            with self.subTest(os.path.basename(file)):
                self.model(file)

    def model(self, file):
        name = os.path.basename(file).removesuffix(".onnx")
        recorded = np.load(os.path.join(models, name + ".npz"))
        unit = 2.0**-7 if "bf16" in name else 2.0**-10 if "fp16" in name else 2.0**-19
        of = lambda *which: {k.split(".", 2)[2]: recorded[k] for k in recorded.files if k.startswith("%d.%s." % which)}
        cases = [(of(case, "in"), of(case, "out")) for case in range(int(recorded["n"]))]
        providers = [PROVIDER, "CPUExecutionProvider"]
        if (
            "bf16" in name
        ):  # neither provider has the kernels that these need besides ours: what was patched is widened to float32
            with self.assertRaises(Exception):
                ort.InferenceSession(os.path.join(models, name + ".onnx"), providers=providers)
            name += ", as float32"
        runs, ran = profiled(file, [feeds for feeds, _ in cases], providers)
        worst = 0.0
        for (_, wanted), outputs in zip(cases, runs):
            for (output, want), got in zip(wanted.items(), outputs, strict=True):
                got, want = got.astype(np.float64), want.astype(np.float64)
                self.assertEqual(got.shape, want.shape, output)
                self.assertTrue(np.isfinite(got).all(), f"{output} is not finite")
                worst = max(worst, float(np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30)))
        fused = [r for r in ran if r[1] in FUSED]
        places = {p: sum(r[2] == p for r in ran) for p in sorted({r[2] for r in ran})}
        print(
            f"{name}: {len(fused)} fused nodes on {', '.join(sorted({r[2] for r in fused}))}, nodes by provider {places}, "
            f"worst {worst / unit:.2f} units of {unit:.2g} of the greatest output",
            flush=True,
        )
        self.assertEqual([r for r in fused if r[2] != CANN], [], "fused nodes that are not on the provider")
        # Those of branches run where the inputs lead.
        written = {n.name for n in onnx.load(file, load_external_data=False).graph.node if n.domain == "mojo"}
        self.assertEqual(written - {r[0] for r in fused}, set(), "fused nodes that did not run")
        self.assertTrue(fused, "no fused node ran")
        self.assertLess(worst, 8 * unit)
