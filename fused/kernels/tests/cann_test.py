"""Tests libmojo_ops_cann through onnxruntime's CANN provider, on an emulation of CANN or an Ascend device.

    python cann_test.py LIBRARY [--emulation FOLDER] [--models DIR] [--patched DIR] [unittest arguments]

Runs every op in every form and type that CANN's calls take against the op's definition, with no node on the CPU; has
every call of CANN fail that a run of each op makes; and, with --models and --patched (models that `mojo-patch apply`
wrote, under the names that they have in --models), compares whole models with their recorded outputs NAME.npz, every
fused node on the provider. Needs onnxruntime-cann, onnx, numpy and ml_dtypes, and CANN: the emulation of
ascend/emulation in FOLDER, or else an installed one (LD_LIBRARY_PATH), where the tests that need the emulation's own
calls are left out.
"""

import argparse
import glob
import os
import shutil
import sys
import tempfile
import threading
import unittest

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

import cann
import harness as h
import ort_test
from cuda_test import FUSED, profiled, to_numpy, to_ort
from harness import BF16, F16, F32, I64
from ort_test import NORM_TYPES, SHAPES, OpTest

CANN = "CANNExecutionProvider"
# With graphs the provider takes models whole, and runs no kernel of a library.
PROVIDER = (CANN, {"enable_cann_graph": "0"})
DTYPES = (F32, F16, BF16)
models = patched = emulation = None  # set by main; emulation is None on a device


def one_node(op, values, types, out_types, attributes, constant=(), leave_out=0):
    """A model of one node, inputs and outputs of the node's own types: the provider's Cast lacks bfloat16."""
    info = lambda name, dtype, rank: helper.make_tensor_value_info(name, h.ONNX_TYPE[dtype], [None] * rank)
    inputs, initializers = [], []
    for i, (value, dtype) in enumerate(zip(values, types)):
        if value is None:
            continue
        if i in constant:
            data = np.asarray(value, np.float32).astype(h.NUMPY_TYPE[dtype])
            initializers.append(helper.make_tensor(f"x{i}", h.ONNX_TYPE[dtype], data.shape, data.tobytes(), raw=True))
        else:
            inputs.append(info(f"x{i}", dtype, np.ndim(value)))
    outputs = [
        helper.make_tensor_value_info(f"y{i}", h.ONNX_TYPE[t], None)
        for i, t in enumerate(out_types[: len(out_types) - leave_out])
    ]
    node = helper.make_node(
        op,
        [f"x{i}" if v is not None else "" for i, v in enumerate(values)],
        [o.name for o in outputs],
        name="the_node",
        domain="mojo",
        **attributes,
    )
    graph = helper.make_graph([node], "g", inputs, outputs, initializers)
    return helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)]
    )


def session(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(h.library)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=[PROVIDER])


def feeds_of(values, types, constant=()):
    return {
        f"x{i}": np.asarray(v).astype(h.NUMPY_TYPE[t])
        for i, (v, t) in enumerate(zip(values, types))
        if v is not None and i not in constant
    }


def run_session(s, feeds):
    kinds = {i.name: i.type for i in s.get_inputs()}
    got = s.run_with_ort_values(None, {name: to_ort(v, kinds[name]) for name, v in feeds.items()})
    return [np.array(to_numpy(v)) for v in got]


def run(op, values, types, out_types, attributes, constant=(), leave_out=0):
    """Runs one node and gives its outputs as float32, numbers of experts as they are."""
    s = session(one_node(op, values, types, out_types, attributes, constant, leave_out))
    got = run_session(s, feeds_of(values, types, constant))
    return [g if g.dtype == np.int64 else g.astype(np.float32) for g in got]


class CANNTest(OpTest):
    # No test has a tensor without elements: the provider's own copy to the device refuses one.
    def within(self, got, want, dtype, units, floor=1e-6, what=""):
        """Results of CANN's calls are rounded in between: they are within units of the greatest magnitude of a row."""
        self.assertEqual(got.shape, want.shape, what)
        if not want.size:
            return
        scale = np.abs(want).max(-1, keepdims=True) if want.ndim else np.abs(want)
        slack = (units * h.EPSILON[dtype] + (4e-6 if dtype == F32 else 0)) * scale + floor
        self.assertTrue(
            (np.abs(got - want) <= slack).all(),
            f"{what}: off by {np.abs(got - want).max()}, {np.abs(want).max()} is the greatest",
        )

    def refused(self, words, *args, **kwargs):
        with self.assertRaises(Exception) as caught:
            run(*args, **kwargs)
        for word in words:
            self.assertIn(word, str(caught.exception))


class RMSNormTest(CANNTest):
    def test_types_and_ranks(self):
        for x_type, s_type, y_type, afters in NORM_TYPES:
            for after in afters:
                for shape in SHAPES:
                    x, r = self.values(shape, x_type, 3), self.values(shape, x_type, 3)
                    scale = self.values(shape[-1:], s_type)
                    attributes = dict(h.NORM, scale_after_cast=after)
                    (got,) = run("RMSNorm", [x, scale], [x_type, s_type], [y_type], attributes, (1,) if after else ())
                    self.within(
                        got,
                        h.rms_norm(x, scale, y_type, scale_after_cast=after),
                        y_type,
                        2,
                        what=f"{shape} {x_type} {s_type}",
                    )
                    total = h.rounded(x + r, x_type)
                    want = h.rms_norm(total, scale, y_type, scale_after_cast=after)
                    for leave_out in (0, 1):
                        got = run(
                            "AddRMSNorm",
                            [x, r, scale],
                            [x_type, x_type, s_type],
                            [y_type, x_type],
                            attributes,
                            leave_out=leave_out,
                        )
                        self.within(got[0], want, y_type, 3, what=f"{shape} {x_type} {s_type}")
                        if not leave_out:
                            np.testing.assert_array_equal(got[1], total)

    def test_axis(self):
        x = self.values((2, 3, 4, 5), F32)
        for axis in (-1, -2, -4):
            scale = self.values(x.shape[axis:], F32)
            (got,) = run("RMSNorm", [x, scale], [F32] * 2, [F32], dict(h.NORM, axis=axis))
            self.within(got, h.rms_norm(x, scale, F32, axis), F32, 2)

    def test_bad(self):
        x = np.ones((2, 8))
        self.refused(["scale has shape [4]", "must be [8]"], "RMSNorm", [x, np.ones(4)], [F32] * 2, [F32], h.NORM)
        self.refused(
            ["epsilon is -1", "the_node"], "RMSNorm", [x, np.ones(8)], [F32] * 2, [F32], dict(h.NORM, epsilon=-1.0)
        )
        self.refused(
            ["residual", "same shape"], "AddRMSNorm", [x, np.ones(8), np.ones(8)], [F32] * 3, [F32] * 2, h.NORM
        )


class GLUTest(CANNTest):
    def test_forms(self):
        for dtype in DTYPES:
            for attributes in ort_test.GLUTest.CASES + [
                dict(h.GLU, limit=2.0),
                dict(h.GLU, alpha=1.702),
                dict(h.GLU, up_offset=1.0),
            ]:
                for shape in SHAPES[:5] + [()]:
                    gate, up = self.values(shape, dtype, 4), self.values(shape, dtype, 4)
                    (got,) = run("GLU", [gate, up], [dtype] * 2, [dtype], attributes)
                    self.within(
                        got, h.glu(gate, up, dtype, **attributes), dtype, 2, what=f"{shape} {dtype} {attributes}"
                    )


class RotaryEmbeddingTest(CANNTest):
    FORMS = ort_test.RotaryEmbeddingTest.FORMS

    def check(self, x_shape, cos_shape, sin_shape, dtype, attributes):
        x, cos, sin = self.values(x_shape, dtype, 3), self.values(cos_shape, dtype), self.values(sin_shape, dtype)
        (got,) = run("RotaryEmbedding", [x, cos, sin], [dtype] * 3, [dtype], attributes)
        what = f"{x_shape} {cos_shape} {sin_shape} {dtype} {attributes}"
        self.within(got, h.rotary(x, cos, sin, dtype, **attributes), dtype, 2, what=what)
        r, first = attributes["rotary_dim"], attributes["rotated_side"] == "first"
        kept = (Ellipsis, slice(r, None) if first else slice(0, x_shape[-1] - r))
        np.testing.assert_array_equal(got[kept], x[kept], what)

    def test_forms(self):
        """Every combination of attributes and widths of the tables; all of the channels and some."""
        for dtype in DTYPES:
            for form in self.FORMS:
                for r, width in [(2, 5), (16, 16), (24, 96), (70, 134)]:
                    for table in (r, r // 2):
                        self.check((2, 3, 5, width), (5, table), (2, 1, 1, table), dtype, dict(form, rotary_dim=r))

    def test_layouts(self):
        """What the models have: [B,N,S,D] and [B,S,N,D], a table for all of the batch or for each, prompts, tokens."""
        for dtype in DTYPES:
            for form in ({}, dict(interleaved=1, output_layout="interleaved"), dict(interleaved=1)):
                for b, n, s, d in [
                    (1, 4, 7, 16),
                    (2, 4, 7, 16),
                    (2, 8, 1, 64),
                    (1, 32, 1, 128),
                    (3, 32, 5, 96),
                    (1, 2, 40, 10),
                ]:
                    for tables in (1, b):
                        for table in (d, d // 2):
                            attributes = dict(h.ROTARY, rotary_dim=d, **form)
                            self.check((b, n, s, d), (tables, 1, s, table), (tables, 1, s, table), dtype, attributes)
                            self.check((b, s, n, d), (tables, s, 1, table), (tables, s, 1, table), dtype, attributes)

    def test_broadcasting(self):
        x_shape = (2, 3, 5, 20)
        shapes = [
            tuple(d if choice >> i & 1 else 1 for i, d in enumerate(x_shape[4 - rank : -1]))
            for rank in range(1, 5)
            for choice in range(2 ** (rank - 1))
        ]
        for i, cos in enumerate(shapes):
            for sin in (cos, shapes[-1 - i]):
                form = dict(self.FORMS[i % 8], rotary_dim=20 if i % 3 else 14)
                r = form["rotary_dim"]
                self.check(x_shape, cos + (r,), sin + (r // 2 if i % 2 else r,), DTYPES[i % 3], form)
        for x_shape, cos_shape, sin_shape in [
            ((8,), (8,), (4,)),
            ((3, 8), (8,), (1, 8)),
            ((1100, 8), (8,), (8,)),
            ((1100, 3, 8), (1100, 1, 8), (1100, 1, 8)),
            ((3, 1100, 8), (1100, 8), (1100, 8)),
            ((2, 2, 3, 2, 34), (3, 1, 34), (2, 1, 2, 34)),
            ((1, 2, 1, 2, 2, 2, 2, 6), (2, 1, 2, 1, 6), (1, 2, 1, 2, 1, 1, 2, 6)),
        ]:
            for form in (self.FORMS[0], self.FORMS[5]):
                self.check(x_shape, cos_shape, sin_shape, F32, dict(form, rotary_dim=x_shape[-1]))

    def test_refused(self):
        x, t = np.ones((1, 2, 1024)), np.ones((2, 896))
        self.refused(
            ["rotary_dim is 896", "less than 896", "aclnnRotaryPositionEmbedding", "the_node"],
            "RotaryEmbedding",
            [x, t, t],
            [F32] * 3,
            [F32],
            dict(h.ROTARY, rotary_dim=896),
        )
        shape = (2,) * 8 + (6,)
        table = tuple(1 if i % 2 else d for i, d in enumerate(shape[:-1])) + (6,)
        self.refused(
            ["broadcast", "8 groups"],
            "RotaryEmbedding",
            [np.ones(shape), np.ones(table), np.ones(table)],
            [F32] * 3,
            [F32],
            dict(h.ROTARY, rotary_dim=6),
        )


class NormRotaryTest(CANNTest):
    def test_types_and_forms(self):
        for x_type, s_type, y_type, afters in NORM_TYPES:
            for after in afters:
                for form in ort_test.RotaryEmbeddingTest.FORMS:
                    for r, width in [(2, 5), (16, 16), (24, 96)]:
                        attributes = dict(h.NORM_ROTARY, scale_after_cast=after, **dict(form, rotary_dim=r))
                        x, scale = self.values((2, 3, 5, width), x_type, 3), self.values((width,), s_type)
                        cos, sin = self.values((5, r), y_type), self.values((2, 1, 1, r // 2), y_type)
                        (got,) = run(
                            "NormRotary", [x, scale, cos, sin], [x_type, s_type, y_type, y_type], [y_type], attributes
                        )
                        want = h.norm_rotary(x, scale, cos, sin, y_type, **attributes)
                        turn = np.abs(cos).max() + np.abs(sin).max()
                        slack = 3 * h.EPSILON[y_type] * np.abs(h.rms_norm(x, scale, y_type)).max() * turn + 1e-5
                        self.assertLess(np.abs(got - want).max(), slack, f"{x_type} {s_type} {attributes}")


class TopKRouterTest(CANNTest):
    def check(self, shape, types, attributes, bias):
        count, experts = int(np.prod(shape[:-1])), shape[-1]
        # Multiples of 1/8, each once in a row: no type and no rounding changes the order.
        logits = np.stack([self.rng.permutation(experts) for _ in range(count)])
        logits = (logits.reshape(shape) - experts / 2) * 0.125
        # So fine that no group gets as good as another.
        values = [logits, h.rounded(self.rng.standard_normal(experts) * 1e-2, types[1]) if bias else None]
        w, ids = run("TopKRouter", values, types, [F32, I64], attributes)
        want, want_ids = h.router(*values, **attributes)
        self.assertEqual((w.shape, ids.shape), (want.shape, want.shape))
        same = (ids == want_ids).all(-1)
        self.assertGreaterEqual(same.mean() if same.size else 1, 0.9, f"{shape} {types} {attributes}")
        np.testing.assert_allclose(w[same], want[same], rtol=4e-6, atol=1e-12, err_msg=f"{attributes}")

    def test_forms(self):
        for i, form in enumerate(ort_test.TopKRouterTest.FORMS + [dict(h.ROUTER, groups=4, group_top_k=2, top_k=3)]):
            for x in DTYPES:
                for shape in [(64,), (3, 64), (2, 3, 32)]:
                    for bias in (True, False):
                        self.check(shape, [x, DTYPES[i % 3]], form, bias)

    def test_groups(self):
        """Excluded groups, where a choice is negative: 0 is better than what is left, minus infinity never is."""
        x = np.array([[2, -1, 0.5, 0.4, 1.9, 1.8, -3, -3]], np.float32)
        bias = np.array([-2, -2, -2, -2, -4, -4, -2.1, -2.2], np.float32)
        for excluded in (0.0, float("-inf")):
            form = dict(h.ROUTER, score="sigmoid", groups=2, group_score="top2_sum", excluded_score=excluded)
            w, ids = run("TopKRouter", [x, bias], [F32] * 2, [F32, I64], form)
            want, want_ids = h.router(x, bias, **form)
            if excluded:
                np.testing.assert_array_equal(ids, want_ids)
                np.testing.assert_allclose(w, want, rtol=1e-5)
            else:  # four of one value
                self.assertTrue((ids >= 4).all())


class MoETest(CANNTest):
    FORMS = ort_test.MoETest.FORMS
    inputs = ort_test.MoETest.inputs

    def check(self, values, types, attributes, constant=()):
        x, w, i, v = types
        (got,) = run("MoE", values, [x, w, i, v, v, v, v], [x], attributes, constant)
        want = h.moe(*values, x, **attributes)
        # Between the calls, 16 bit numbers are rounded.
        slack = (1e-5 if x == F32 else 4 * h.EPSILON[x]) * np.abs(want).max(initial=0) + 2e-5
        self.assertEqual(got.shape, want.shape)
        self.assertLessEqual(np.abs(got - want).max(initial=0), slack, f"{types} {attributes}")

    def test_types_and_forms(self):
        for x in DTYPES:
            for w in dict.fromkeys((F32, x)):
                for i, form in enumerate(self.FORMS):
                    biases = [(True, True), (False, False), (True, False), (False, True)][i % 4]
                    shape = [(5, 24), (2, 3, 40), (1, 70), (7, 1, 16)][(i + 1) % 4]
                    types = [x, w, I64, x]
                    self.check(
                        self.inputs(shape, 1 + i % 3, 4, 20, types, form, biases), types, form, (3, 4) if i % 2 else ()
                    )

    def test_routings(self):
        """An expert nobody picks, all on one, one twice for a token."""
        for form in (self.FORMS[0], self.FORMS[7]):
            for ids in ([[0, 1], [1, 0], [3, 1]], [[2, 2]] * 9, [[3, 3], [0, 3]]):
                types = [F32, F32, I64, F32]
                self.check(self.inputs((len(ids), 33), 2, 4, 17, types, form, ids=np.array(ids, np.int64)), types, form)

    def test_refused(self):
        values = self.inputs((3, 8), 2, 4, 6, [F32, F32, I64, F16], h.MOE)
        self.refused(
            ["different types", "aclnnGroupedMatmulV4"], "MoE", values, [F32, F32, I64] + [F16] * 4, [F32], h.MOE
        )
        values = self.inputs((3, 8), 5, 4, 6, [F32, F32, I64, F32], h.MOE)
        self.refused(["5 of 4 experts"], "MoE", values, [F32, F32, I64] + [F32] * 4, [F32], h.MOE)


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
        return {kind: emulation.live(kind) for kind in ("tensor", "list", "scalar", "array", "executor")}

    def test_every_call(self):
        if emulation is None:
            self.skipTest("CANN is not the emulation")
        planted = 0
        for op, values, types, outs, attributes in self.cases():
            s, feeds = session(one_node(op, values, types, outs, attributes)), feeds_of(values, types)
            emulation.reset()
            want = run_session(s, feeds)
            before = self.live()
            self.assertTrue(all(n == 0 for n in before.values()), before)
            calls = self.calls(emulation.log())
            self.assertTrue(any(c.startswith("aclnn") for c in calls))
            for call in calls:
                with self.subTest(f"{op}: {call}"):
                    planted += 1
                    emulation.reset()
                    emulation.fail(call)
                    with self.assertRaises(Exception) as caught:
                        run_session(s, feeds)
                    self.assertEqual(self.live(), before)
                    if "@device" in call:  # found by the provider, which waits for the stream; that one is lost
                        s = session(one_node(op, values, types, outs, attributes))
                    else:
                        for words in (f"mojo.{op}: {call} failed with status", f"{call}: planted failure of call 1"):
                            self.assertIn(words, str(caught.exception))
                    emulation.reset()
                    for a, b in zip(run_session(s, feeds), want):  # the next run is none the worse
                        np.testing.assert_array_equal(a, b)
        print(f"{planted} calls failed as planted", flush=True)
        self.assertGreater(planted, 100)


class LoadTest(CANNTest):
    """CANN's libraries: where they are looked for, and what is said of one that is missing."""

    CODE = """
import ctypes, os, sys
for name in {preload}:
    ctypes.CDLL(os.path.join({folder!r}, name), ctypes.RTLD_GLOBAL)
import numpy as np
import cann_test as t
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
        """What a process says that has the libraries of the list open and looks for the others by itself."""
        code = self.CODE.format(folder=folder, preload=preload, library=h.library)
        got = cann.in_a_process(code, **environment)
        return got.stdout + got.stderr

    def setUp(self):
        super().setUp()
        if emulation is None:
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
case = t.OpTest()
case.setUp()
rotary = t.RotaryEmbeddingTest()
rotary.setUp()
for dtype in (t.F32, t.F16):
    x, scale = case.values((3, 64), dtype), case.values((64,), dtype)
    t.run("RMSNorm", [x, scale], [dtype] * 2, [dtype], t.h.NORM)
    t.run("AddRMSNorm", [x, x, scale], [dtype] * 3, [dtype] * 2, t.h.NORM)
    t.run("GLU", [x, x], [dtype] * 2, [dtype], dict(t.h.GLU, limit=7.0, alpha=1.702, up_offset=1.0))
    for shape, table in (((2, 4, 3, 64), (1, 1, 3, 32)), ((2, 3, 4, 64), (2, 3, 1, 64)), ((1, 32, 1, 64), (1, 1, 1, 64))):
        rotary.check(shape, table, table, dtype, dict(t.h.ROTARY, rotary_dim=64))
try:
    t.run("RMSNorm", [x, scale], [t.BF16] * 2, [t.BF16], t.h.NORM)
except Exception as error:
    print(error)
"""

    def test_310p(self):
        if emulation is None:
            self.skipTest("CANN is not the emulation")
        got = cann.in_a_process(self.CODE.format(library=h.library), CANN_EMULATION_SOC="Ascend310P3")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("mojo.RMSNorm: aclnnRmsNormGetWorkspaceSize failed with status 161002: ", got.stdout)


class CallersTest(CANNTest):
    def test_side_by_side(self):
        """Runs of one session on several threads: each has a stream of its own, and scratch memory is not shared."""
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


def main():
    global models, patched, emulation
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--emulation", metavar="FOLDER")
    parser.add_argument("--models")
    parser.add_argument("--patched")
    args, rest = parser.parse_known_args()
    h.library, h.providers = os.path.abspath(args.library), [PROVIDER]
    models, patched = args.models, args.patched
    if CANN not in ort.get_available_providers():
        sys.exit("this onnxruntime has no CANN provider")
    if args.emulation:
        emulation = cann.start(args.emulation, device=False)
    unittest.main(argv=[sys.argv[0]] + rest)


if __name__ == "__main__":
    main()
