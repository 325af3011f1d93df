"""Tests libmojo_ops_cann through onnxruntime's CANN provider, on an emulation of CANN or an Ascend device.

    python cann_test.py LIBRARY [--emulation FOLDER] [--models DIR] [--patched DIR] [unittest arguments]

Runs every op in every form and type that CANN's calls take against the op's definition, with no node on the CPU; has
every call of CANN fail that a run of each op makes; and, with --models and --patched (models that `mojo-patch apply`
wrote, under the names that they have in --models), compares whole models with their recorded outputs NAME.npz, every
fused node on the provider. Needs onnxruntime-cann, onnx, numpy and ml_dtypes, and CANN: the emulation of
cann_emulation in FOLDER, or else an installed one (LD_LIBRARY_PATH), where the tests that need the emulation's own
calls are left out.
"""

import argparse
import os
import sys
import unittest

import numpy as np
import onnxruntime as ort

import cann
import cann_models_test
import cann_node as node
import harness as h
import ort_test
from cann_failure_test import CallersTest, ChipTest, FailureTest, LoadTest, PlacementTest  # unittest finds them here
from cann_models_test import ModelsTest
from cann_node import CANN, DTYPES, PROVIDER, CANNTest, run
from harness import F16, F32, I64
from ops import OPS
from ort_case import NORM_TYPES, SHAPES


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
            ["residual", "must be"], "AddRMSNorm", [x, np.ones(8), np.ones(8)], [F32] * 3, [F32] * 2, h.NORM
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
        """The models' forms: [B,N,S,D] and [B,S,N,D], a table for all of the batch or for each, prompts, tokens."""
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


class AttentionTest(CANNTest):
    """The forms that aclnnFlashAttentionScore takes: masks by position and padding, shared heads of keys, a growing
    cache.
    """

    inputs = ort_test.AttentionTest.inputs

    def check(self, inputs, attributes, dtype, leave_out=0):
        names = OPS["Attention"].inputs
        values = [inputs.get(name) for name in names]
        values = [v if v is None or n == "key_valid" else h.rounded(v, dtype) for n, v in zip(names, values)]
        types = [I64 if n == "key_valid" else dtype for n in names]
        gots = run("Attention", values, types, [dtype] * 3, attributes, leave_out=leave_out)
        for got, want in zip(gots, h.attention(*values, dtype, **attributes)):
            self.assertEqual(got.shape, want.shape)
            worst = np.abs(got - want).max()
            shapes = {n: np.shape(v) for n, v in inputs.items()}
            self.assertLessEqual(worst, 8 * h.EPSILON[dtype] * np.abs(want).max(), f"{dtype} {shapes} {attributes}")

    def test_any_sizes(self):
        pick = lambda *values: values[self.rng.integers(len(values))]
        for number in range(60):
            batch, key_heads, group, width = pick(1, 2, 3), pick(1, 2), pick(1, 3), pick(8, 17, 64)
            queries, past = pick(1, 1, 2, 5, 17), pick(None, 1, 9, 30)
            attributes = dict(h.ATTENTION, causal=pick(0, 1, 1), window=pick(0, 0, 1, 5), empty=pick("zero", "mean"))
            for name in "qkvy":
                attributes[name + "_layout"] = pick("bnsh", "bsnh")
            inputs = self.inputs(batch, key_heads * group, key_heads, queries, queries, past, width, width, attributes)
            keys = queries + (past or 0)
            padding = pick("none", "left", "right", "holes", "all")
            if padding != "none":
                valid = np.ones((batch, keys + pick(0, 3)), np.int64)
                for b in range(batch):
                    n = self.rng.integers(0, keys + 1)
                    if padding == "holes":
                        valid[b] = self.rng.integers(-1, 2, valid.shape[1])
                    elif padding == "all":
                        valid[b] = b
                    else:
                        valid[b, slice(0, n) if padding == "left" else slice(n, None)] = 0
                inputs["key_valid"] = valid
            self.check(inputs, attributes, DTYPES[number % 3], leave_out=pick(0, 2))

    def test_refused(self):
        for words, changed in [(["softcap is 2", "aclnnFlashAttentionScore"], dict(softcap=2.0)),
                               (["head_order is cyclic"], dict(head_order="cyclic"))]:
            attributes = dict(h.ATTENTION, **changed)
            inputs = self.inputs(1, 2, 1, 3, 3, None, 8, 8, attributes)
            self.refused(words, "Attention", [inputs[n] for n in "qkv"], [F32] * 3, [F32] * 3, attributes)
        inputs = self.inputs(1, 2, 1, 3, 3, 5, 8, 8, dict(h.ATTENTION))
        given = dict(bias=np.zeros((1, 1, 3, 8)), sink=np.zeros(2), past_length=np.array([1]))
        for name, value in given.items():
            values = [dict(inputs, **{name: value}).get(n) for n in OPS["Attention"].inputs]
            types = OPS["Attention"].types[0][0]
            self.refused([f"{name} is given"], "Attention", values, types, [F32] * 3, h.ATTENTION)
        inputs = self.inputs(1, 2, 1, 3, 3, None, 8, 6, dict(h.ATTENTION))
        self.refused(
            ["v of 6", "one width"], "Attention", [inputs[n] for n in "qkv"], [F32] * 3, [F32] * 3, h.ATTENTION
        )


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
        """Excluded groups with negative choices: 0 is better than the other choices, minus infinity never is."""
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
        """An unused expert, all on one, one twice for a token, no expert for some or all."""
        for form in (self.FORMS[0], self.FORMS[7]):
            for ids in ([[0, 1], [1, 0], [3, 1]], [[2, 2]] * 9, [[3, 3], [0, 3]], [[-1, 2]], [[-1, -1]],
                        [[-1, 1], [-1, -1], [3, -1]]):
                types = [F32, F32, I64, F32]
                values = self.inputs((len(ids), 33), 2, 4, 17, types, form, ids=np.array(ids, np.int64))
                values[1] = np.where(values[2] < 0, np.nan, values[1])  # not read
                self.check(values, types, form)

    def test_refused(self):
        values = self.inputs((3, 8), 2, 4, 6, [F32, F32, I64, F16], h.MOE)
        self.refused(
            ["different types", "aclnnGroupedMatmulV4"], "MoE", values, [F32, F32, I64] + [F16] * 4, [F32], h.MOE
        )
        values = self.inputs((3, 8), 5, 4, 6, [F32, F32, I64, F32], h.MOE)
        self.refused(["5 of 4 experts"], "MoE", values, [F32, F32, I64] + [F32] * 4, [F32], h.MOE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--emulation", metavar="FOLDER")
    parser.add_argument("--models")
    parser.add_argument("--patched")
    args, rest = parser.parse_known_args()
    h.library, h.providers = os.path.abspath(args.library), [PROVIDER]
    cann_models_test.models, cann_models_test.patched = args.models, args.patched
    if CANN not in ort.get_available_providers():
        sys.exit("this onnxruntime has no CANN provider")
    if args.emulation:
        node.emulation = cann.start(args.emulation, device=False)
    unittest.main(argv=[sys.argv[0]] + rest)


if __name__ == "__main__":
    main()
