"""Tests libmojo_ops_cuda on a GPU, through onnxruntime's CUDA provider.

    python cuda_test.py LIBRARY [--jobs N] [--models DIR] [--patched DIR] [unittest arguments]

Runs what ort_test.py runs for the CPU kernels, and what only a GPU shows: which provider each node ran on, replays of
CUDA graphs, sessions side by side. No node may fall back to the CPU. With --models and --patched (models that
`mojo-patch apply` wrote, under the names that they have in --models), those run too (ModelsTest) and are compared with
their recorded outputs NAME.npz, within what the type in the name allows: -fp16, -bf16, else float32. Needs onnxruntime
with the CUDA provider, onnx, numpy and ml_dtypes. Without unittest arguments the classes of tests are run by N
processes side by side (6).
"""
import argparse
import concurrent.futures
import glob
import os
import subprocess
import sys
import threading
import unittest

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import harness as h
import ort_test
from harness import BF16, F16, F32, I64
from ops import OPS
from ort_test import (  # unittest finds them here
    EveryOpTest,
    GLUTest,
    InPlaceTest,
    LoadTest,
    NormRotaryTest,
    OpTest,
    RMSNormTest,
    RotaryEmbeddingTest,
    TopKRouterTest,
)
from patched_models import check_patched, profiled, recorded

CUDA = "CUDAExecutionProvider"
PROVIDERS = [(CUDA, {"use_tf32": "0"}), "CPUExecutionProvider"]  # of whole models
models = patched = None  # folders, set by main


class AttentionTest(ort_test.AttentionTest):
    device = "cuda"
    reads_lengths = False

    def test_lengths_that_do_not_fit(self):
        """They are on the device: the nearest that fits is taken."""
        attributes = dict(h.ATTENTION, causal=1)
        inputs = self.inputs(3, 4, 2, 2, 2, 9, 16, 16, attributes)
        inputs["past_length"] = np.array([-5, 8, 1 << 40])
        op = OPS["Attention"]
        got = h.run("Attention", [inputs.get(n) for n in op.inputs], op.types[0][0], [F32] * 3, attributes)
        inputs["past_length"] = np.array([0, 7, 7])
        want = h.attention(*[inputs.get(n) for n in op.inputs], F32, **attributes)
        np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-5)
        for a, b in zip(got[1:], want[1:]):
            np.testing.assert_array_equal(a, b)


class LatentAttentionTest(ort_test.LatentAttentionTest):
    reads_lengths = False


class MoETest(ort_test.MoETest):
    def slack(self, want, x, v):
        base = super().slack(want, x, v)
        if x == F32 and v == F32:
            return base
        # Between the products, 16 bit numbers go through the matrix units.
        least = max(h.EPSILON[t] for t in (x, v) if t != F32)
        return base + least * np.abs(want).max(initial=0)

    def test_bad_ids(self):
        """Invalid ids add nothing: the host does not wait for them."""
        for x in (F32, BF16):
            types = [x, F32, I64, x]
            for tokens in (3, 70):
                values = self.inputs((tokens, 40), 2, 4, 24, types, h.MOE)
                ids = values[2]
                ids[0], ids[1, 1], ids[2, 0] = -1, 4, 10**6
                got, = h.run("MoE", values, [x, F32, I64] + [x] * 4, [x], h.MOE)
                known = (ids >= 0) & (ids < 4)
                values[1], values[2] = np.where(known, values[1], 0), np.where(known, ids, 0)
                want = h.moe(*values, x, **h.MOE)
                np.testing.assert_array_less(np.abs(got - want), self.slack(want, x, x) + 1e-30)
                np.testing.assert_array_equal(got[0], 0)

    def test_threads_repeat(self):
        """The same bits every time; a single token gets about the same."""
        for x in (F32, BF16):
            for form in (self.FORMS[0], self.FORMS[3], self.FORMS[4]):
                types = [x, F32, I64, x]
                values = self.inputs((90, 304), 4, 8, 208, types, form)
                args = ([x, F32, I64] + [x] * 4, [x], form)
                got = [h.run("MoE", values, *args)[0] for _ in range(3)]
                for other in got[1:]:
                    np.testing.assert_array_equal(got[0], other)
                one, = h.run("MoE", [a[7:8] for a in values[:3]] + values[3:], *args)
                want = h.moe(*[a[7:8] for a in values[:3]], *values[3:], x, **form)
                np.testing.assert_array_less(np.abs(one - got[0][7:8]), 2 * self.slack(want, x, x) + 1e-30)
                self.check(values, types, form)

    def test_numbers_of_tokens(self):
        """From one to many: other kernels, other tiles. The last routings are lopsided."""
        for x in (F16, BF16, F32):
            for tokens in (0, 1, 3, 8, 33, 130, 512):
                types = [x, x if tokens % 2 else F32, I64, x]
                for form in (self.FORMS[0], self.FORMS[7], self.FORMS[-1]):
                    self.check(self.inputs((tokens, 136), 2, 16, 72, types, form), types, form)
                ids = np.full((tokens, 2), 5)
                self.check(self.inputs((tokens, 136), 2, 16, 72, types, h.MOE, ids=ids), types, h.MOE)


class PlacementTest(OpTest):
    def test_every_op_runs_on_the_device(self):
        for name, op in OPS.items():
            if "cuda" not in op.devices:
                continue
            done = set()
            for attributes, shapes, _, types, out_types in op.cases():
                if tuple(types) in done or not op.on_every(h.device(), attributes):
                    continue
                done.add(tuple(types))
                m = h.model(name, shapes, types, out_types, attributes, declared=False)
                feeds = {f"x{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes) if shape is not None}
                _, ran = profiled(m.SerializeToString(), [feeds])
                self.assertIn(("the_node", name, CUDA), ran)
                self.assertEqual({provider for _, _, provider in ran}, {CUDA}, ran)


class GraphTest(OpTest):
    """CUDA graphs: a capture must hold for other inputs at the same addresses."""

    def block(self, dtype, tokens, hidden=64, inner=48, experts=8, k=2):
        """AddRMSNorm, a router and its experts, in one graph."""
        t = h.ONNX_TYPE[dtype]
        self.weights = {
            "scale": self.values((hidden,), dtype),
            "gate_up": self.values((experts, 2 * inner, hidden), dtype, hidden**-0.5),
            "down": self.values((experts, hidden, inner), dtype, inner**-0.5),
        }
        tensors = [
            helper.make_tensor(n, t, a.shape, a.astype(h.NUMPY_TYPE[dtype]).tobytes(), raw=True)
            for n, a in self.weights.items()
        ]
        info = lambda n, *shape: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
        nodes = [helper.make_node("Cast", [f"{n}32"], [n], to=t) for n in ("x", "r", "logits")]
        nodes += [helper.make_node("AddRMSNorm", ["x", "r", "scale"], ["n", "sum"], domain="mojo", **h.NORM),
                  helper.make_node("TopKRouter", ["logits"], ["w", "ids"], domain="mojo", **dict(h.ROUTER, top_k=k)),
                  helper.make_node("MoE", ["n", "w", "ids", "gate_up", "down"], ["y"], domain="mojo", **h.MOE),
                  helper.make_node("Cast", ["y"], ["y32"], to=TensorProto.FLOAT)]
        graph = helper.make_graph(
            nodes,
            "g",
            [info("x32", tokens, hidden), info("r32", tokens, hidden), info("logits32", tokens, experts)],
            [info("y32", tokens, hidden)],
            tensors,
        )
        return helper.make_model(
            graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)]
        )

    def want(self, feeds, dtype):
        total = h.rounded(feeds["x32"] + feeds["r32"], dtype)
        n = h.rms_norm(total, self.weights["scale"], dtype)
        w, ids = h.router(feeds["logits32"], None, **h.ROUTER)
        return h.moe(n, w, ids, self.weights["gate_up"], self.weights["down"], None, None, dtype, **h.MOE)

    def feeds(self, dtype, tokens, hidden=64, experts=8):
        logits = np.stack([self.rng.permutation(experts) for _ in range(tokens)]) * 0.25
        return {
            "x32": self.values((tokens, hidden), dtype),
            "r32": self.values((tokens, hidden), dtype),
            "logits32": logits.astype(np.float32),
        }

    def test_replays(self):
        for dtype in (F32, F16, BF16):
            for tokens in (1, 8, 200):
                options = ort.SessionOptions()
                options.log_severity_level = 4
                options.register_custom_ops_library(h.library)
                options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
                session = ort.InferenceSession(self.block(dtype, tokens).SerializeToString(), options,
                                               providers=[(CUDA, {"enable_cuda_graph": "1"})])
                binding = session.io_binding()
                feeds = self.feeds(dtype, tokens)
                bound = {n: ort.OrtValue.ortvalue_from_numpy(a, "cuda", 0) for n, a in feeds.items()}
                out = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(feeds["x32"]), "cuda", 0)
                for n, value in bound.items():
                    binding.bind_ortvalue_input(n, value)
                binding.bind_ortvalue_output("y32", out)
                for replay in range(6):  # the first ones warm up, the next records
                    if replay:
                        feeds = self.feeds(dtype, tokens)
                        for n, value in bound.items():
                            value.update_inplace(feeds[n])
                    # Memory comes and goes in between.
                    others = [
                        ort.OrtValue.ortvalue_from_numpy(np.full((1 << 18,), np.nan, np.float32), "cuda", 0)
                        for _ in range(replay)
                    ]
                    session.run_with_iobinding(binding)
                    got, want = out.numpy(), self.want(feeds, dtype)
                    del others
                    tolerance = (8 if dtype != F32 else 64) * h.EPSILON[dtype] * np.abs(want).max()
                    self.assertLess(np.abs(got - want).max(), tolerance, f"{dtype}, {tokens} tokens, replay {replay}")
                    session.run_with_iobinding(binding)
                    np.testing.assert_array_equal(out.numpy(), got)

    def test_sessions_side_by_side(self):
        """Runs of one session on several threads: each has its stream, and they must not share scratch."""
        for dtype in (F16, F32):
            tokens = 200
            session = h.session(self.block(dtype, tokens))
            feeds = [self.feeds(dtype, tokens) for _ in range(6)]
            alone = [session.run(None, f)[0] for f in feeds]
            wrong = []

            def call(i):
                for _ in range(20):
                    if not np.array_equal(session.run(None, feeds[i])[0], alone[i]):
                        wrong.append(i)

            callers = [threading.Thread(target=call, args=(i,)) for i in range(len(feeds))]
            for c in callers:
                c.start()
            for c in callers:
                c.join()
            self.assertEqual(wrong, [])


class ModelsTest(unittest.TestCase):
    """The patched models: every fused node on the device, and the recorded outputs."""

    def test_goldens(self):
        if not (models and patched):
            self.skipTest("needs --models and --patched")
        files = sorted(glob.glob(os.path.join(patched, "*.onnx")))
        self.assertTrue(files, f"no models in {patched}")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            checks = {os.path.basename(file): pool.submit(self.model, file) for file in files}
        for name, check in checks.items():
            with self.subTest(name):
                check.result()

    def model(self, file):
        name = os.path.basename(file).removesuffix(".onnx")
        cases = recorded(models, name)
        more = f"; as exported {as_exported(name, cases)}"
        check_patched(self, file, name, cases, CUDA, PROVIDERS, more)


def as_exported(name, cases):
    """Whether onnxruntime runs an unpatched model without the library; if not, the error."""
    try:
        profiled(os.path.join(models, name + ".onnx"), [feeds for feeds, _ in cases], PROVIDERS, library=False)
    except Exception as error:  # onnxruntime's have no common class
        return "it does not run: " + " ".join(str(error).split())[:300]
    return "it runs"


def main():
    global models, patched
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--models")
    parser.add_argument("--patched")
    args, rest = parser.parse_known_args()
    h.library, h.providers = os.path.abspath(args.library), [CUDA]
    models, patched = args.models, args.patched
    if hasattr(ort, "preload_dlls"):  # CUDA's libraries, if installed as Python packages
        ort.preload_dlls()
    if CUDA not in ort.get_available_providers():
        sys.exit("this onnxruntime has no CUDA provider")
    if rest:
        unittest.main(argv=[sys.argv[0]] + rest)
    classes = [c.__name__ for c in vars(sys.modules["__main__"]).values()
               if isinstance(c, type) and issubclass(c, unittest.TestCase) and c is not OpTest]
    again = lambda name: subprocess.run(
        [sys.executable] + sys.argv + ["-v", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(again, classes))
    for name, result in zip(classes, results):
        print(f"== {name}: {'ok' if result.returncode == 0 else 'FAILED'}\n{result.stdout}")
    sys.exit(any(r.returncode for r in results))


if __name__ == "__main__":
    main()
