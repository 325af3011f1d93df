"""Tests libmojo_ops through onnxruntime: python ort_test.py LIBRARY [unittest arguments]."""
import sys
import threading
import unittest

import numpy as np
import onnx
from onnx import helper

import harness as h
from harness import BF16, F16, F32

NORM_TYPES = [  # X, scale, Y, values of scale_after_cast
    (F32, F32, F32, (0, 1)), (F16, F16, F16, (0, 1)), (BF16, BF16, BF16, (0, 1)),
    (F16, F32, F16, (0,)), (BF16, F32, BF16, (0,)), (F32, F16, F16, (1,)), (F32, BF16, BF16, (1,)),
]
SHAPES = [(5,), (3, 64), (2, 3, 70), (1, 2, 1, 8), (2, 1, 3, 2, 16), (1, 1, 2, 1, 3, 34),
          (2, 1, 1, 2, 1, 1, 4), (1, 2, 1, 2, 1, 2, 1, 130)]


class OpTest(unittest.TestCase):
    """Values and tolerances shared by the tests of one op."""

    def setUp(self):
        self.rng = np.random.default_rng(5)

    def values(self, shape, dtype, scale=1.0):
        return h.rounded(self.rng.standard_normal(shape) * scale, dtype)

    def near(self, got, want, dtype, units=2):
        self.assertEqual(got.shape, want.shape)
        tolerance = units * h.EPSILON[dtype] * np.abs(want) + (1e-7 if dtype == F16 else 1e-30)
        if dtype == F32:
            tolerance += 1e-6 * np.abs(want)
        bad = ~((np.abs(got - want) <= tolerance) | (got == want) | (np.isnan(got) & np.isnan(want)))
        self.assertFalse(bad.any(), f"got {got[bad][:3]}, want {want[bad][:3]}")

    def fails(self, words, *args, **kwargs):
        """The run must end in an error that holds all words."""
        with self.assertRaises(Exception) as caught:
            h.run(*args, **kwargs)
        for word in words:
            self.assertIn(word, str(caught.exception))


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
        self.fails(["residual", "[8]", "same shape"], "AddRMSNorm", [x, np.ones(8), np.ones(8)],
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
        for dtype in (F32, F16, BF16):
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
        self.fails(["gate", "[2,8]", "[8]", "same shape"], "GLU", [ones, np.ones(8)], [F32] * 2, [F32],
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


class RotaryEmbeddingTest(OpTest):
    FORMS = [dict(interleaved=i, rotated_side=side, output_layout=layout)
             for i in (0, 1) for side in ("first", "last") for layout in ("halves", "interleaved")]

    def check(self, x_shape, cos_shape, sin_shape, dtype, attributes, **more):
        x = self.values(x_shape, dtype, 3)
        cos, sin = self.values(cos_shape, dtype), self.values(sin_shape, dtype)
        got, = h.run("RotaryEmbedding", [x, cos, sin], [dtype] * 3, [dtype], attributes, **more)
        np.testing.assert_array_equal(got, h.rotary(x, cos, sin, dtype, **attributes), str(attributes))

    def test_broadcasting(self):
        for dtype in (F32, F16, BF16):
            for x_shape, cos_shape, sin_shape in [
                ((8,), (8,), (4,)), ((3, 8), (8,), (1, 8)), ((2, 3, 5, 16), (2, 1, 5, 16), (5, 16)),
                ((2, 3, 5, 16), (5, 8), (1, 1, 5, 8)), ((2, 5, 3, 64), (1, 5, 1, 64), (2, 5, 1, 32)),
                ((2, 3, 5, 2), (2, 3, 5, 2), (2, 1, 1, 1)), ((2, 2, 3, 2, 34), (3, 1, 34), (2, 1, 2, 34)),
                ((1, 2, 1, 2, 2, 2, 2, 6), (2, 1, 2, 1, 6), (1, 2, 1, 2, 1, 1, 2, 6)),
                ((0, 3, 8), (3, 8), (1, 4)), ((2, 0, 8), (0, 8), (1, 8)),
            ]:
                self.check(x_shape, cos_shape, sin_shape, dtype, dict(h.ROTARY, rotary_dim=x_shape[-1]))

    def test_every_broadcast(self):
        """Tables of every rank, with every choice of dims that are 1; one head and several."""
        for dtype, x_shape in [(F32, (2, 3, 5, 20)), (F16, (2, 5, 1, 20)), (BF16, (1, 4, 3, 20))]:
            shapes = [tuple(d if choice >> i & 1 else 1 for i, d in enumerate(x_shape[4 - rank:-1]))
                      for rank in range(1, 5) for choice in range(2 ** (rank - 1))]
            for i, cos in enumerate(shapes):
                form = dict(self.FORMS[i % 8], rotary_dim=20 if i % 3 else 14)
                r = form["rotary_dim"]
                sin = shapes[-1 - i]
                self.check(x_shape, cos + (r,), sin + (r // 2 if i % 2 else r,), dtype, form)

    def test_forms(self):
        """Every combination of attributes, types and widths of the tables; all of the channels and some."""
        for dtype in (F32, F16, BF16):
            for form in self.FORMS:
                for r, width in [(2, 2), (2, 5), (16, 16), (24, 96), (32, 33), (70, 134)]:
                    for table in (r, r // 2):
                        attributes = dict(form, rotary_dim=r)
                        self.check((2, 3, 5, width), (5, table), (2, 1, 1, table), dtype, attributes)
                self.check((1, 1, width), (table,), (table,), dtype, attributes)
                self.check((0, 3, width), (3, table), (table,), dtype, attributes)

    def test_threads(self):
        """Outputs over inputs too: a row that is rotated twice would show."""
        for form in self.FORMS:
            for x_shape, table in [((2, 9, 123, 64), (2, 1, 123, 48)), ((2, 123, 9, 64), (1, 123, 1, 24))]:
                for dtype in (F32, BF16):
                    self.check(x_shape, table, table, dtype, dict(form, rotary_dim=48), threads=2, dynamic=False)

    def test_long_rows_in_place(self):
        """Rows of more channels than those whose pairs are moved in place."""
        for form in self.FORMS:
            for dtype in (F32, F16):
                self.check((3, 7, 5003), (7, 5000), (7, 5000), dtype, dict(form, rotary_dim=5000), dynamic=False)

    def test_bad(self):
        def bad(words, shapes, dynamic=True, leave_out=(), **attributes):
            attributes = {k: v for k, v in {**h.ROTARY, **attributes}.items() if k not in leave_out}
            self.fails(words, "RotaryEmbedding", [np.ones(s) for s in shapes], [F32] * 3, [F32], attributes,
                       dynamic=dynamic)

        good = [(2, 3, 8), (3, 8), (3, 8)]
        bad(["interleaved is 2", "the_node"], good, interleaved=2)
        bad(["interleaved is -1"], good, interleaved=-1)
        bad(["rotary_dim is 7", "even"], good, rotary_dim=7)
        bad(["rotary_dim is 0"], good, rotary_dim=0)
        bad(["rotary_dim is -8"], good, rotary_dim=-8)
        bad(["rotary_dim is 10", "the_node", "at most 8"], good, dynamic=False, rotary_dim=10)  # known at load
        bad(["rotary_dim is 10", "[2,3,8]"], good, rotary_dim=10)  # known when it runs
        bad(["rotary_dim is 9223372036854775806", "[2,3,8]"], good, rotary_dim=2**63 - 2)
        bad(["rotated_side is \"middle\"", "\"last\"", "the_node"], good, rotated_side="middle")
        bad(["output_layout is \"\"", "\"interleaved\""], good, output_layout="")
        bad(["output_layout", "the_node"], good, output_layout="x" * 100)
        for name in h.ROTARY:
            bad([name, "required", "the_node"], good, leave_out=[name])
        bad(["rotated_side", "string"], good, rotated_side=1)
        bad(["cos has shape [4,8]", "[2,3,8]"], [(2, 3, 8), (4, 8), (3, 8)])
        bad(["cos has shape [3,8]", "4 or 2"], good, rotary_dim=4)
        bad(["sin has shape [3,2]"], [(2, 3, 8), (3, 8), (3, 2)])
        bad(["sin has shape [1,2,3,8]"], [(2, 3, 8), (3, 8), (1, 2, 3, 8)])
        bad(["sin has shape [3,0]"], [(2, 3, 8), (3, 8), (3, 0)])
        bad(["cos has shape [0,8]"], [(2, 3, 8), (0, 8), (3, 8)])
        bad(["cos has shape []"], [(2, 3, 8), (), (3, 8)])
        bad(["X has shape []"], [(), (3, 8), (3, 8)])
        bad(["X has shape [3,0]"], [(3, 0), (3, 8), (3, 8)])


class InPlaceTest(OpTest):
    """Outputs over their inputs' memory, where nothing else reads those, and not where it does."""

    def cases(self, dtype):
        shape, width = (3, 5, 70), 70
        x, r = self.values(shape, dtype, 3), self.values(shape, dtype, 3)
        scale, table = self.values((width,), dtype), self.values((5, width), dtype)
        total = h.rounded(x + r, dtype)
        yield "RMSNorm", [x, scale], h.NORM, [h.rms_norm(x, scale, dtype)]
        yield "AddRMSNorm", [x, r, scale], h.NORM, [h.rms_norm(total, scale, dtype), total]
        yield "GLU", [x, r], h.GLU, [h.glu(x, r, dtype)]
        yield ("RotaryEmbedding", [x, table, table], dict(h.ROTARY, rotary_dim=width),
               [h.rotary(x, table, table, dtype)])

    def test_in_place(self):
        for dtype in (F32, F16, BF16):
            for op, values, attributes, wants in self.cases(dtype):
                for optimize in (True, False):  # without, even a Cast to the same type is a node
                    args = (op, values, [dtype] * len(values), [dtype] * len(wants), attributes)
                    more = dict(dynamic=False, optimize=optimize)
                    for got, want in zip(h.run(*args, **more), wants):
                        self.near(got, want, dtype, units=3)
                    *gots, again = h.run(*args, reused=True, **more)
                    for got, want in zip(gots, wants):
                        self.near(got, want, dtype, units=3)
                    np.testing.assert_array_equal(again, values[0])

    def test_one_value_for_two_inputs(self):
        x = self.values((4, 8), F32)
        nodes = [helper.make_node("Neg", ["x"], ["a"]),
                 helper.make_node("AddRMSNorm", ["a", "a", "s"], ["y", "sum"], domain="mojo", **h.NORM),
                 helper.make_node("Neg", ["y"], ["out"]), helper.make_node("Neg", ["sum"], ["out2"])]
        info = lambda n, s=(4, 8): helper.make_tensor_value_info(n, 1, s)
        graph = helper.make_graph(nodes, "g", [info("x"), info("s", (8,))], [info("out"), info("out2")],
                                  value_info=[info("y"), info("sum")])
        m = helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)])
        y, total = h.session(m).run(None, {"x": x, "s": np.ones(8, np.float32)})
        np.testing.assert_array_equal(total, x + x)
        self.near(-y, h.rms_norm(-x - x, np.ones(8), F32), F32)


class LoadTest(OpTest):
    def body(self):
        """A body of RMSNorm that is wrong on purpose (scale alone), to see which of both ran."""
        node = helper.make_node("Add", ["scale", "scale"], ["Y"])
        return helper.make_function("mojo", "RMSNorm", ["X", "scale"], ["Y"], [node],
                                    [helper.make_opsetid("", 18)],
                                    ["axis", "epsilon", "scale_after_cast"])

    def test_kernel_goes_before_body(self):
        x, scale = self.values((8,), F32), self.values((8,), F32)
        m = h.model("RMSNorm", [[8], [8]], [F32, F32], [F32], h.NORM, functions=[self.body()])
        for optimize in (True, False):
            for load, want in [(True, h.rms_norm(x, scale, F32)), (False, scale + scale)]:
                s = h.session(m, optimize=optimize, load=load)
                self.near(s.run(["y0"], {"x0": x, "x1": scale})[0], want, F32)

    def test_concurrent_callers(self):
        """One session, many callers at a time; sessions come and go; options die first."""
        x, scale = self.values((1, 64, 1024), F32), self.values((1024,), F32)
        want = h.rms_norm(x, scale, F32)
        m = h.model("RMSNorm", [[None, None, 1024], [1024]], [F32, F32], [F32], h.NORM, {1: scale})
        for _ in range(3):
            s = h.session(m, threads=2)
            results = [None] * 8

            def call(i):
                results[i] = s.run(["y0"], {"x0": x[:, : 8 * (i + 1)]})[0]

            callers = [threading.Thread(target=call, args=(i,)) for i in range(8)]
            for c in callers:
                c.start()
            for c in callers:
                c.join()
            for i, got in enumerate(results):
                self.near(got, want[:, : 8 * (i + 1)], F32)

    def test_later_shape_arithmetic_loads(self):
        """Unnamed dims after a custom op: nothing may be inferred wrongly from it."""
        nodes = [helper.make_node("RMSNorm", ["x", "s"], ["y"], domain="mojo", **h.NORM),
                 helper.make_node("Shape", ["y"], ["shape"]),
                 helper.make_node("Reshape", ["y", "shape"], ["z"])]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", 1, [None, None, 4]),
                         helper.make_tensor_value_info("s", 1, [4])],
            [helper.make_tensor_value_info("z", 1, None)])
        m = helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)])
        x = self.values((2, 3, 4), F32)
        for optimize in (True, False):
            got, = h.session(m, optimize=optimize).run(None, {"x": x, "s": np.ones(4, np.float32)})
            self.near(got, h.rms_norm(x, np.ones(4), F32), F32)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: ort_test.py LIBRARY [unittest arguments]")
    h.library = sys.argv.pop(1)
    unittest.main()
