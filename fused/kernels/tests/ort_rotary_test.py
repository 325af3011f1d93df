"""Rotations through onnxruntime; ort_test.py runs them."""
import numpy as np

import harness as h
from harness import BF16, F16, F32
from ops import OPS
from ort_case import NORM_TYPES, OpTest


class RotaryEmbeddingTest(OpTest):
    FORMS = [dict(interleaved=i, rotated_side=side, output_layout=layout)
             for i in (0, 1) for side in OPS["RotaryEmbedding"].values["rotated_side"]
             for layout in OPS["RotaryEmbedding"].values["output_layout"]]

    def check(self, x_shape, cos_shape, sin_shape, dtype, attributes, **more):
        x = self.values(x_shape, dtype, 3)
        cos, sin = self.values(cos_shape, dtype), self.values(sin_shape, dtype)
        got, = h.run("RotaryEmbedding", [x, cos, sin], [dtype] * 3, [dtype], attributes, **more)
        np.testing.assert_array_equal(got, h.rotary(x, cos, sin, dtype, **attributes), str(attributes))

    def test_broadcasting(self):
        for dtype in OPS["RotaryEmbedding"].first_types:
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
        for dtype in OPS["RotaryEmbedding"].first_types:
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
        """Rows with more channels than can be moved in place."""
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
        bad(["rotary_dim 10", "[2,3,8]"], good, rotary_dim=10)  # known when it runs
        bad(["rotary_dim 9223372036854775806", "[2,3,8]"], good, rotary_dim=2**63 - 2)
        bad(["rotated_side is \"middle\"", "\"last\"", "the_node"], good, rotated_side="middle")
        bad(["output_layout is \"\"", "\"interleaved\""], good, output_layout="")
        bad(["output_layout", "the_node"], good, output_layout="x" * 100)
        for name in h.ROTARY:
            bad([name, "required", "the_node"], good, leave_out=[name])
        bad(["rotated_side", "string"], good, rotated_side=1)
        bad(["cos has shape [4,8]", "[2,3,8]"], [(2, 3, 8), (4, 8), (3, 8)])
        bad(["cos has shape [3,8]", "[2,3,4] or [2,3,2]"], good, rotary_dim=4)
        bad(["sin has shape [3,2]"], [(2, 3, 8), (3, 8), (3, 2)])
        bad(["sin has shape [1,2,3,8]"], [(2, 3, 8), (3, 8), (1, 2, 3, 8)])
        bad(["sin has shape [3,0]"], [(2, 3, 8), (3, 8), (3, 0)])
        bad(["cos has shape [0,8]"], [(2, 3, 8), (0, 8), (3, 8)])
        bad(["cos has shape []"], [(2, 3, 8), (), (3, 8)])
        bad(["X has shape []"], [(), (3, 8), (3, 8)])
        bad(["X [3,0]"], [(3, 0), (3, 8), (3, 8)])


class NormRotaryTest(OpTest):
    def slack(self, x, scale, cos, sin, dtype, attributes):
        """How far a result may be off: a norm that is one unit off, turned, and the roundings of the rotation."""
        n = np.abs(h.rms_norm(x, scale, dtype, epsilon=attributes["epsilon"])).max(initial=0)
        turn = np.abs(cos).max(initial=1) + np.abs(sin).max(initial=1)
        return (2 + attributes["scale_after_cast"]) * h.EPSILON[dtype] * n * turn + 1e-6 * n * turn + 1e-7

    def check(self, x_shape, cos_shape, sin_shape, types, attributes, spread=3, **more):
        x_type, s_type, y_type = types
        x, scale = self.values(x_shape, x_type, spread), self.values(x_shape[-1:], s_type)
        cos, sin = self.values(cos_shape, y_type), self.values(sin_shape, y_type)
        got, = h.run("NormRotary", [x, scale, cos, sin], [x_type, s_type, y_type, y_type], [y_type], attributes, **more)
        want = h.norm_rotary(x, scale, cos, sin, y_type, **attributes)
        self.assertEqual(got.shape, want.shape)
        bound = self.slack(x, scale, cos, sin, y_type, attributes)
        self.assertTrue(
            (np.abs(got - want) <= bound).all(), f"{types} {attributes}: {np.abs(got - want).max(initial=0)} of {bound}"
        )
        if (
            got.size > 1000 and x_type != F32
        ):  # a rounding that is missing shows in many places, another order of a sum in few
            self.assertLess((got != want).mean(), 0.05, f"{types} {attributes}")

    def test_types_and_forms(self):
        for x_type, s_type, y_type, afters in NORM_TYPES:
            for after in afters:
                for form in RotaryEmbeddingTest.FORMS:
                    attributes = dict(h.NORM_ROTARY, scale_after_cast=after, **form)
                    for r, width in [(2, 5), (16, 16), (24, 96), (70, 134)]:
                        for i, table in enumerate((r, r // 2)):
                            self.check((2, 3, 5, width), (5, table), (2, 1, 1, table), (x_type, s_type, y_type),
                                       dict(attributes, rotary_dim=r), constant=(1,) if i else ())

    def test_broadcasting(self):
        for dtype in OPS["RotaryEmbedding"].first_types:
            for x_shape, cos_shape, sin_shape in [
                ((8,), (8,), (4,)), ((3, 8), (8,), (1, 8)), ((2, 3, 5, 16), (2, 1, 5, 16), (5, 16)),
                ((2, 5, 3, 64), (1, 5, 1, 64), (2, 5, 1, 32)), ((2, 3, 5, 2), (2, 3, 5, 2), (2, 1, 1, 1)),
                ((1, 2, 1, 2, 2, 2, 2, 6), (2, 1, 2, 1, 6), (1, 2, 1, 2, 1, 1, 2, 6)),
                ((0, 3, 8), (3, 8), (1, 4)), ((2, 0, 8), (0, 8), (1, 8)),
            ]:
                self.check(x_shape, cos_shape, sin_shape, (dtype,) * 3, dict(h.NORM_ROTARY, rotary_dim=x_shape[-1]))

    def test_extremes(self):
        """Rows of zeros, and of numbers whose squares overflow or vanish; the next row must be correct."""
        x = np.array(
            [[0] * 4, [3e38] * 4, [2e19, 1, 1, 1], [1e-30] * 4, [np.inf, 1, 1, 1], [np.nan, 1, 1, 1], [1, 2, 3, 4]],
            np.float32,
        )
        one, half = np.ones((1, 4), np.float32), np.full((1, 4), 0.5, np.float32)
        got, = h.run("NormRotary", [x, np.ones(4), one, half], [F32] * 4, [F32], dict(h.NORM_ROTARY, rotary_dim=4))
        with np.errstate(all="ignore"):
            n = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
            self.near(got, h.rotary(n, one, half, F32), F32)
        self.assertFalse(np.isnan(got[:4]).any())

    def test_threads(self):
        """Outputs over inputs too: a row that is done twice would show."""
        for form in RotaryEmbeddingTest.FORMS:
            for x_shape, table in [((2, 9, 123, 64), (2, 1, 123, 48)), ((2, 123, 9, 64), (1, 123, 1, 24))]:
                for dtype in (F32, BF16):
                    self.check(
                        x_shape,
                        table,
                        table,
                        (dtype,) * 3,
                        dict(h.NORM_ROTARY, **dict(form, rotary_dim=48)),
                        threads=2,
                        dynamic=False,
                    )

    def test_long_rows(self):
        for form in RotaryEmbeddingTest.FORMS:
            for dtype in (F32, F16):
                for constant in [(), (1,)]:
                    self.check(
                        (3, 7, 5003),
                        (7, 5000),
                        (7, 5000),
                        (dtype,) * 3,
                        dict(h.NORM_ROTARY, **dict(form, rotary_dim=5000)),
                        dynamic=False,
                        constant=constant,
                    )

    def test_bad(self):
        def bad(words, shapes, types=(F32,) * 4, leave_out=(), **attributes):
            attributes = {k: v for k, v in {**h.NORM_ROTARY, **attributes}.items() if k not in leave_out}
            self.fails(words, "NormRotary", [np.ones(s) for s in shapes], list(types), [types[-1]], attributes)

        good = [(2, 3, 8), (8,), (3, 8), (3, 8)]
        bad(["NormRotary", "scale has shape [4]", "must be [8]"], [(2, 3, 8), (4,), (3, 8), (3, 8)])
        bad(["NormRotary", "scale has shape [3,8]"], [(2, 3, 8), (3, 8), (3, 8), (3, 8)])
        bad(["NormRotary", "cos has shape [4,8]", "[2,3,8]"], [(2, 3, 8), (8,), (4, 8), (3, 8)])
        bad(["NormRotary", "sin has shape [3,2]"], [(2, 3, 8), (8,), (3, 8), (3, 2)])
        bad(["NormRotary", "X has shape []"], [(), (8,), (3, 8), (3, 8)])
        bad(["rotary_dim 10", "[2,3,8]"], good, rotary_dim=10)
        bad(["interleaved is 2", "the_node"], good, interleaved=2)
        bad(["epsilon is -1", "the_node"], good, epsilon=-1.0)
        bad(["scale_after_cast is 2", "the_node"], good, scale_after_cast=2)
        bad(["scale_after_cast is 1"], good, types=(F16, F32, F16, F16), scale_after_cast=1)
        bad(["scale_after_cast is 0"], good, types=(F32, F16, F16, F16))
        for name in h.NORM_ROTARY:
            bad([name, "required", "the_node"], good, leave_out=[name])
        with self.assertRaises(Exception):  # tables of another type than the norm's result
            h.run("NormRotary", [np.ones(s) for s in good], [F16, F16, F32, F32], [F16], h.NORM_ROTARY)
