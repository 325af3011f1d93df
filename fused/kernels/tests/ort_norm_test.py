"""Norms and gated units through onnxruntime; ort_test.py runs them."""
import numpy as np

import harness as h
from harness import BF16, F16, F32
from ops import OPS
from ort_case import NORM_TYPES, SHAPES, OpTest


class RMSNormTest(OpTest):
    def test_types_and_ranks(self):
        for x_type, s_type, y_type, afters in NORM_TYPES:
            for after in afters:
                for shape in SHAPES:
                    x, scale = self.values(shape, x_type, 3), self.values(shape[-1:], s_type)
                    want = h.rms_norm(x, scale, y_type, scale_after_cast=after)
                    for constant in [(), (1,)]:
                        attributes = dict(h.NORM, scale_after_cast=after)
                        got, = h.run("RMSNorm", [x, scale], [x_type, s_type], [y_type], attributes,
                                     constant)
                        self.near(got, want, y_type)

    def test_add_types_and_ranks(self):
        for x_type, s_type, y_type, afters in NORM_TYPES:
            for after in afters:
                for shape in SHAPES:
                    x, r = self.values(shape, x_type, 3), self.values(shape, x_type, 3)
                    scale = self.values(shape[-1:], s_type)
                    total = h.rounded(x + r, x_type)
                    want = h.rms_norm(total, scale, y_type, scale_after_cast=after)
                    attributes = dict(h.NORM, scale_after_cast=after)
                    args = ("AddRMSNorm", [x, r, scale], [x_type, x_type, s_type], [y_type, x_type],
                            attributes)
                    for constant in [(), (2,)]:
                        got, added = h.run(*args, constant)
                        self.near(got, want, y_type)
                        np.testing.assert_array_equal(added, total)
                    got, = h.run(*args, leave_out=1)
                    self.near(got, want, y_type)

    def test_axis(self):
        x = self.values((2, 3, 4, 5), F32)
        for axis in (-1, -2, -3, -4):
            scale = self.values(x.shape[axis:], F32)
            for constant in [(), (1,)]:
                got, = h.run("RMSNorm", [x, scale], [F32, F32], [F32], dict(h.NORM, axis=axis), constant)
                self.near(got, h.rms_norm(x, scale, F32, axis), F32)

    def test_zero_rows(self):
        for shape in [(0,), (0, 4), (3, 0), (2, 0, 4), (0, 0), (0, 2**40, 4)]:
            x, scale = np.zeros(shape, np.float32), np.ones(shape[-1:], np.float32)
            for constant in [(), (1,)]:
                got, = h.run("RMSNorm", [x, scale], [F32, F32], [F32], h.NORM, constant)
                self.assertEqual(got.shape, shape)
                got, added = h.run("AddRMSNorm", [x, x, scale], [F32] * 3, [F32] * 2, h.NORM)
                self.assertEqual((got.shape, added.shape), (shape, shape))

    def test_extremes(self):
        x = np.array([[0] * 4, [3e38] * 4, [2e19, 1, 1, 1], [1e-30] * 4, [np.inf, 1, 1, 1],
                      [np.nan, 1, 1, 1]], np.float32)
        got, = h.run("RMSNorm", [x, np.ones(4)], [F32, F32], [F32], h.NORM)
        with np.errstate(all="ignore"):
            inv = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
            self.near(got, x * inv, F32)
        self.assertFalse(np.isnan(got[:4]).any())

    def test_many_rows_on_threads(self):
        for shape in [(1, 300, 1000), (7, 40001), (70001, 3)]:
            x, r = self.values(shape, F32), self.values(shape, F32)
            scale = self.values(shape[-1:], F32)
            got, added = h.run("AddRMSNorm", [x, r, scale], [F32] * 3, [F32] * 2, h.NORM, threads=2)
            self.near(got, h.rms_norm(x + r, scale, F32), F32)
            np.testing.assert_array_equal(added, x + r)

    def test_bad_shapes(self):
        x = np.ones((2, 8))
        run = ("RMSNorm", [F32, F32], [F32])
        for constant in [(), (1,)]:
            bad = lambda words, v, a=h.NORM: self.fails(words, run[0], v, run[1], run[2], a, constant)
            bad(["scale has shape [4]", "[2,8]", "must be [8]"], [x, np.ones(4)])
            bad(["scale has shape [1,8]"], [x, np.ones((1, 8))])
            bad(["scale has shape []"], [x, np.float32(1)])
            bad(["axis -3", "[2,8]"], [x, np.ones((1, 2, 8))], dict(h.NORM, axis=-3))
        self.fails(["residual", "[8]", "must be [2,8]"], "AddRMSNorm", [x, np.ones(8), np.ones(8)],
                   [F32] * 3, [F32] * 2, h.NORM)
        self.fails(["scale has shape [0]", "[2,0,3]"], "RMSNorm", [np.ones((2, 0, 3)), np.ones(0)], [F32, F32], [F32],
                   h.NORM)
        self.fails(["rank 17"], "RMSNorm", [np.ones((1,) * 17), np.ones(1)], [F32, F32], [F32], h.NORM)

    def test_bad_attributes(self):
        values = [np.ones((2, 8)), np.ones(8)]
        for attributes, words in [
            (dict(h.NORM, axis=1), ["axis is 1", "negative", "the_node"]),
            (dict(h.NORM, axis=0), ["axis is 0"]),
            (dict(h.NORM, epsilon=-1.0), ["epsilon is -1"]),
            (dict(h.NORM, epsilon=float("nan")), ["epsilon is"]),
            (dict(h.NORM, scale_after_cast=2), ["scale_after_cast is 2"]),
            (dict(axis=-1, scale_after_cast=0), ["epsilon", "required", "the_node"]),
            (dict(h.NORM, epsilon=1), ["epsilon", "float"]),
        ]:
            self.fails(words, "RMSNorm", values, [F32, F32], [F32], attributes)
        self.fails(["scale_after_cast is 1"], "RMSNorm", values, [F16, F32], [F16],
                   dict(h.NORM, scale_after_cast=1))
        self.fails(["scale_after_cast is 0"], "RMSNorm", values, [F32, F16], [F16], h.NORM)

    def test_unsupported_types(self):
        with self.assertRaises(Exception):
            h.run("RMSNorm", [np.ones((2, 8)), np.ones(8)], [F16, BF16], [F16], h.NORM)


class GLUTest(OpTest):
    CASES = [dict(h.GLU), dict(h.GLU, alpha=1.702, limit=7.0, up_offset=1.0),
             dict(h.GLU, activation="gelu"), dict(h.GLU, activation="gelu_tanh"),
             dict(h.GLU, activation="gelu_tanh", limit=2.0)]

    def test_types_and_ranks(self):
        for dtype in OPS["GLU"].first_types:
            for attributes in self.CASES:
                for shape in SHAPES:
                    gate, up = self.values(shape, dtype, 4), self.values(shape, dtype, 4)
                    got, = h.run("GLU", [gate, up], [dtype] * 2, [dtype], attributes)
                    want = h.glu(gate, up, dtype, **attributes)
                    # 1 + erf and 1 + tanh cancel; the bound is a few units of the largest.
                    slack = 2 * h.EPSILON[dtype] * np.abs(want) + 1e-6 * np.abs(up).max()
                    self.assertTrue((np.abs(got - want) <= slack).all())

    def test_zero_elements_scalars_threads(self):
        for shape in [(), (0,), (2, 0, 3), (3, 100003)]:
            gate, up = self.values(shape, F32), self.values(shape, F32)
            got, = h.run("GLU", [gate, up], [F32] * 2, [F32], h.GLU, threads=2)
            self.near(got, h.glu(gate, up, F32), F32, units=4)

    def test_bad(self):
        ones = np.ones((2, 8))
        self.fails(["gate", "[2,8]", "[8]", "must be [2,8]"], "GLU", [ones, np.ones(8)], [F32] * 2, [F32],
                   h.GLU)
        for change, words in [
            (dict(activation="relu"), ['activation is "relu"', "gelu_tanh", "the_node"]),
            (dict(activation="gelu", alpha=2.0), ["alpha is 2"]),
            (dict(limit=-1.0), ["limit is -1"]),
            (dict(limit=float("inf")), ["limit is inf"]),
            (dict(up_offset=float("nan")), ["up_offset"]),
            (dict(activation="x" * 100), ["activation"]),
        ]:
            self.fails(words, "GLU", [ones, ones], [F32] * 2, [F32], dict(h.GLU, **change))
