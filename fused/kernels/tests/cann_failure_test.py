"""Tests failures around the kernels of libmojo_ops_cann, and sessions beside each other: see cann_test.py."""

import os
import shutil
import tempfile
import threading

import numpy as np

import cann
import cann_node as node
import harness as h
import ort_test
from cann_node import CANN, PROVIDER, CANNTest, feeds_of, one_node, run_session, session
from harness import BF16, F16, F32, I64
from patched_models import profiled


class FailureTest(CANNTest):
    """Every call of CANN that a run makes fails once: an exception says so, and nothing is left behind."""

    def cases(self):
        v = lambda *shape: self.values(shape, BF16)
        ids, f32 = np.array([[0, 1], [1, 2], [3, 0]]), self.values((3, 2), F32)
        clamped = dict(h.MOE, packing="interleaved", alpha=1.702, limit=1.0, up_offset=1.0)
        grouped = dict(
            h.ROUTER, score="sigmoid", groups=4, group_top_k=2, group_score="top2_sum", epsilon=1e-20, scale=2.5
        )
        halves = dict(h.ROTARY, rotary_dim=8, interleaved=1)
        attention = dict(h.ATTENTION, causal=1, window=2, empty="mean")
        keys, past, exist = v(2, 2, 3, 8), v(2, 2, 2, 8), np.eye(2, 5, dtype=np.int64)
        cache = [v(2, 4, 3, 8), keys, keys, exist, past, past]
        experts = [v(4, 12, 8), v(4, 8, 6), v(4, 12), v(4, 8)]
        return [
            ("RMSNorm", [self.values((3, 8), F32), v(8)], [F32, BF16], [BF16], dict(h.NORM, scale_after_cast=1)),
            ("AddRMSNorm", [v(3, 8)] * 2 + [v(8)], [BF16] * 3, [BF16] * 2, h.NORM),
            ("AddRMSNorm", [v(3, 8)] * 2 + [v(8)], [BF16, BF16, F32], [BF16] * 2, h.NORM),
            ("GLU", [v(3, 8)] * 2, [BF16] * 2, [BF16], dict(h.GLU, alpha=1.702, limit=7.0, up_offset=1.0)),
            ("GLU", [v(3, 8)] * 2, [BF16] * 2, [BF16], h.GLU),
            ("GLU", [v(3, 8)] * 2, [BF16] * 2, [BF16], dict(h.GLU, activation="gelu")),
            ("RotaryEmbedding", [v(2, 3, 16), v(3, 4), v(3, 4)], [BF16] * 3, [BF16], halves),
            ("NormRotary", [v(2, 3, 16), v(16), v(3, 8), v(3, 8)], [BF16] * 4, [BF16], h.NORM_ROTARY),
            ("Attention", cache, [BF16] * 3 + [I64] + [BF16] * 2, [BF16] * 3, attention),
            ("TopKRouter", [v(3, 16)], [BF16], [F32, I64], dict(h.ROUTER, epsilon=1e-6)),
            ("TopKRouter", [v(3, 16)], [BF16], [F32, I64], dict(h.ROUTER, order="top_k_first", score="sqrtsoftplus")),
            ("TopKRouter", [v(3, 16), v(16)], [BF16] * 2, [F32, I64], grouped),
            ("MoE", [v(3, 8), f32, ids] + experts, [BF16, F32, I64] + [BF16] * 4, [BF16], h.MOE),
            ("MoE", [v(3, 8), f32, ids] + experts, [F16, F32, I64] + [F16] * 4, [F16], clamped),
            (
                "MoE",
                [v(3, 8), f32, ids, v(4, 6, 8), v(4, 8, 6)],
                [F32, F32, I64, F32, F32],
                [F32],
                dict(h.MOE, packing="none", activation="relu2"),
            ),
        ]

    def calls(self, log):
        """The calls of the library's own kernels: the provider's are of the runtime."""
        ours = ("aclnn", "aclCreateTensor", "aclCreateScalar", "aclCreateIntArray")
        return dict.fromkeys(c for c in log if c.startswith(ours) and not c.startswith("aclCreateTensorDesc"))

    def live(self):
        return {kind: node.emulation.live(kind) for kind in ("tensor", "list", "scalar", "array", "executor")}

    def test_every_call(self):
        if node.emulation is None:
            self.skipTest("CANN is not the emulation")
        planted = 0
        for op, values, types, outs, attributes in self.cases():
            s, feeds = session(one_node(op, values, types, outs, attributes)), feeds_of(values, types)
            node.emulation.reset()
            want = run_session(s, feeds)
            before = self.live()
            self.assertTrue(all(n == 0 for n in before.values()), before)
            calls = self.calls(node.emulation.log())
            self.assertTrue(any(c.startswith("aclnn") for c in calls))
            for call in calls:
                with self.subTest(f"{op}: {call}"):
                    planted += 1
                    node.emulation.reset()
                    node.emulation.fail(call)
                    with self.assertRaises(Exception) as caught:
                        run_session(s, feeds)
                    self.assertEqual(self.live(), before)
                    if "@device" in call:  # found by the provider, which waits for the stream; that one is lost
                        s = session(one_node(op, values, types, outs, attributes))
                    else:
                        for words in (f"mojo.{op}: {call} failed with status", f"{call}: planted failure of call 1"):
                            self.assertIn(words, str(caught.exception))
                    node.emulation.reset()
                    for a, b in zip(run_session(s, feeds), want):  # the next run must be correct
                        np.testing.assert_array_equal(a, b)
        print(f"{planted} calls failed as planted", flush=True)
        self.assertGreater(planted, 100)


class LoadTest(CANNTest):
    """CANN's libraries: the places to look for them, and the error if one is missing."""

    CODE = """
import ctypes, os, sys
for name in {preload}:
    ctypes.CDLL(os.path.join({folder!r}, name), ctypes.RTLD_GLOBAL)
import numpy as np
import cann_node as t
t.h.library = {library!r}
x = np.ones((2, 8), np.float32)
try:
    y, = t.run("RMSNorm", [x, x[0]], ["float32"] * 2, ["float32"], t.h.NORM)
    print("ran", float(abs(y - 1).max()) < 1e-4)
except Exception as error:
    print(error)
"""
    RUNTIME = ("libascendcl.so", "libacl_op_compiler.so", "libfmk_onnx_parser.so")

    def loaded(self, folder, preload, **environment):
        """The output of a process that has opened the listed libraries and looks for the others by itself."""
        code = self.CODE.format(folder=folder, preload=preload, library=h.library)
        got = cann.in_a_process(code, **environment)
        return got.stdout + got.stderr

    def setUp(self):
        super().setUp()
        if node.emulation is None:
            self.skipTest("CANN is not the emulation")

    def test_by_the_systems_ways(self):
        self.assertIn("ran True", self.loaded(cann.FOLDER, [], LD_LIBRARY_PATH=cann.FOLDER))

    def test_beside_the_runtime(self):
        self.assertIn("ran True", self.loaded(cann.FOLDER, self.RUNTIME, LD_LIBRARY_PATH=""))

    def test_missing(self):
        for name, words in [
            ("libnnopbase.so", "libnnopbase.so of CANN: libnnopbase.so: cannot open"),
            ("libopapi", "libopapi.so of CANN: libopapi.so: cannot open"),
        ]:
            with tempfile.TemporaryDirectory() as folder:
                for file in os.listdir(cann.FOLDER):
                    if not file.startswith(name):
                        shutil.copy(os.path.join(cann.FOLDER, file), folder)
                said = self.loaded(folder, self.RUNTIME, LD_LIBRARY_PATH=folder)
                self.assertIn("mojo.RMSNorm: its kernel for CANNExecutionProvider needs " + words, said)

    def test_missing_operator(self):
        """Newer releases have their operators in parts: without one of these, the kernels that need no other work."""
        if not os.path.exists(os.path.join(cann.FOLDER, "libopapi_nn.so")):
            self.skipTest("the operators are in one library")
        with tempfile.TemporaryDirectory() as folder:
            for file in os.listdir(cann.FOLDER):
                if file != "libopapi_nn.so":
                    shutil.copy(os.path.join(cann.FOLDER, file), folder)
            said = self.loaded(folder, self.RUNTIME, LD_LIBRARY_PATH=folder)
            self.assertIn("needs aclnnRmsNormGetWorkspaceSize, which this release of CANN lacks", said)


class ChipTest(CANNTest):
    """The Atlas inference series (310P), of which CANN's calls take less."""

    CODE = """
import sys
import cann, cann_test as t
t.h.library = {library!r}
cann.start(FOLDER, device=False)
rotary = t.RotaryEmbeddingTest()
rotary.setUp()
for dtype in (t.F32, t.F16):
    x, scale = rotary.values((3, 64), dtype), rotary.values((64,), dtype)
    t.run("RMSNorm", [x, scale], [dtype] * 2, [dtype], t.h.NORM)
    t.run("AddRMSNorm", [x, x, scale], [dtype] * 3, [dtype] * 2, t.h.NORM)
    t.run("GLU", [x, x], [dtype] * 2, [dtype], dict(t.h.GLU, limit=7.0, alpha=1.702, up_offset=1.0))
    for shape, table in (((2, 4, 3, 64), (1, 1, 3, 32)), ((2, 3, 4, 64), (2, 3, 1, 64)),
                         ((1, 32, 1, 64), (1, 1, 1, 64))):
        rotary.check(shape, table, table, dtype, dict(t.h.ROTARY, rotary_dim=64))
try:
    t.run("RMSNorm", [x, scale], ["bfloat16"] * 2, ["bfloat16"], t.h.NORM)
except Exception as error:
    print(error)
"""

    def test_310p(self):
        if node.emulation is None:
            self.skipTest("CANN is not the emulation")
        got = cann.in_a_process(self.CODE.format(library=h.library), CANN_EMULATION_SOC="Ascend310P3")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("mojo.RMSNorm: aclnnRmsNormGetWorkspaceSize failed with status 161002: ", got.stdout)


class CallersTest(CANNTest):
    def test_side_by_side(self):
        """Runs of one session on several threads: each has its stream, and scratch memory is not shared."""
        form = dict(h.MOE, packing="interleaved", alpha=1.702, limit=1.0, up_offset=1.0)
        types = [F16, F32, I64, F16]
        values = ort_test.MoETest.inputs(self, (20, 24), 2, 4, 20, types, form)
        s = session(one_node("MoE", values, types + [F16] * 3, [F16], form, (3, 4, 5, 6)))
        feeds = [feeds_of([self.values((20, 24), F16)] + values[1:3], types) for _ in range(4)]
        alone = [run_session(s, f)[0] for f in feeds]
        wrong = []

        def call(i):
            for _ in range(10):
                if not np.array_equal(run_session(s, feeds[i])[0], alone[i]):
                    wrong.append(i)

        callers = [threading.Thread(target=call, args=(i,)) for i in range(len(feeds))]
        for c in callers:
            c.start()
        for c in callers:
            c.join()
        self.assertEqual(wrong, [])


class PlacementTest(CANNTest):
    def test_every_op_runs_on_the_provider(self):
        for case in FailureTest.cases(self):
            op, values, types, outs, attributes = case
            _, ran = profiled(one_node(*case).SerializeToString(), [feeds_of(values, types)], [PROVIDER])
            self.assertIn(("the_node", op, CANN), ran)
