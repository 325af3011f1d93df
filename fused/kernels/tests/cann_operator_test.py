"""Tests the emulated operators of CANN against numpy: python cann_operator_test.py FOLDER [unittest arguments]."""

import ctypes
import sys
import unittest

import numpy as np

import cann
from cann import BF16, BOOL, F16, F32, I32, INT64, U64, wide
from formulas import gelu, gelu_tanh

e = None  # the emulation


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Operators(cann.Case):
    def test_norms(self):
        for dtype, gamma_type in ((F32, F32), (F16, F16), (BF16, BF16), (F16, F32), (BF16, F32)):
            x, r, g = (self.normal(2, 3, 16, dtype=dtype), self.normal(2, 3, 16, dtype=dtype),
                       self.normal(16, dtype=gamma_type))
            y, rstd, total = e.empty(x.shape, dtype), e.empty((2, 3, 1), F32), e.empty(x.shape, dtype)
            e.call("aclnnRmsNorm", e.tensor(x), e.tensor(g), 1e-5, y, rstd)
            scale = 1 / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-5)
            self.near(y, wide(x) * scale * wide(g))
            self.near(rstd, scale)
            if gamma_type != dtype:
                continue
            e.call("aclnnAddRmsNorm", e.tensor(x), e.tensor(r), e.tensor(g), 1e-5, y, rstd, total)
            s = wide(x) + wide(r)
            self.near(total, s)
            self.near(y, s / np.sqrt((s * s).mean(-1, keepdims=True) + 1e-5) * wide(g))

    def test_activations(self):
        x = self.normal(3, 8) * 2
        for dtype in (F32, F16, BF16):
            held, w = e.tensor(x.astype(dtype)), wide(x.astype(dtype))
            for name, args, f in [("aclnnSilu", [], lambda v: v * sigmoid(v)), ("aclnnSigmoid", [], sigmoid),
                                  ("aclnnGelu", [], gelu_tanh), ("aclnnGeluV2", [0], gelu),
                                  ("aclnnGeluV2", [1], gelu_tanh),
                                  ("aclnnRelu", [], lambda v: np.maximum(v, 0)),
                                  ("aclnnSwish", [e.scalar(1.5)], lambda v: v * sigmoid(1.5 * v)),
                                  ("aclnnSoftplus", [e.scalar(1), e.scalar(20)], lambda v: np.log1p(np.exp(v))),
                                  ("aclnnSoftmax", [-1], lambda v: np.exp(v) / np.exp(v).sum(-1, keepdims=True))]:
                with self.subTest(name=name, args=args, dtype=dtype):
                    y = e.empty(x.shape, dtype)
                    e.call(name, held, *args, y)
                    self.near(y, f(w))
            y = e.empty((3, 4), dtype)
            e.call("aclnnSwiGlu", held, -1, y)
            self.near(y, w[:, :4] * sigmoid(w[:, :4]) * w[:, 4:])
            e.call("aclnnInplaceSigmoid", held)
            self.near(held, sigmoid(w))

    def test_arithmetic(self):
        a, b, two = self.normal(2, 3, 4), self.normal(3, 1), e.scalar(2)
        for name, args, want in [("aclnnAdd", [two], a + 2 * b), ("aclnnSub", [two], a - 2 * b),
                                 ("aclnnMul", [], a * b), ("aclnnDiv", [], a / b)]:
            y = e.empty(a.shape, F32)
            e.call(name, e.tensor(a), e.tensor(b), *args, y)
            self.near(y, want)
        y = e.empty(a.shape, F32)
        e.call("aclnnAdds", e.tensor(a), two, e.scalar(3), y)
        self.near(y, a + 6)
        e.call("aclnnMuls", e.tensor(a), two, y)
        self.near(y, a * 2)
        e.call("aclnnSqrt", e.tensor(np.abs(a)), y)
        self.near(y, np.sqrt(np.abs(a)))
        e.call("aclnnClamp", e.tensor(a), e.scalar(-0.5), e.scalar(0.25), y)
        self.near(y, np.clip(a, -0.5, 0.25))
        e.call("aclnnClamp", e.tensor(a), None, e.scalar(0.25), y)
        self.near(y, np.minimum(a, 0.25))
        for name, args, want in [("aclnnInplaceAdd", [e.tensor(b), two], a + 2 * b),
                                 ("aclnnInplaceMul", [e.tensor(b)], a * b)]:
            held = e.tensor(a)
            e.call(name, held, *args)
            self.near(held, want)
        mixed = e.empty(a.shape, F32)
        e.call("aclnnMul", e.tensor(a.astype(F16)), e.tensor(b.astype(BF16)), mixed)
        self.near(mixed, wide(a.astype(F16)) * wide(b.astype(BF16)))

    def test_rounding(self):
        """Casts round to nearest even, at every exponent."""
        bits = self.rng.integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32).view(F32)
        edges = np.array(
            [0, -0.0, np.inf, -np.inf, 65504, 65519.996, 65520, 2**-24, 2**-25, 1.5 * 2**-25, 6.1e-5, 3.4e38,
             1 + 2**-11, 1 + 2**-8],
            F32,
        )
        x = np.concatenate([bits[~np.isnan(bits)], edges])
        for dtype in (F16, BF16):
            y, back = e.empty(x.shape, dtype), e.empty(x.shape, F32)
            e.call("aclnnCast", e.tensor(x), np.dtype(dtype), y)
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(y.value().view(np.uint16), x.astype(dtype).view(np.uint16))
            e.call("aclnnCast", y, F32, back)
            np.testing.assert_array_equal(back.value(), y.value().astype(F32))
        counts = e.empty((3,), INT64)
        e.call("aclnnCast", e.tensor(np.array([3, 0, 7], I32)), INT64, counts)
        self.near(counts, [3, 0, 7])

    def test_moves(self):
        a = self.normal(2, 3, 4)
        y = e.empty((4, 2, 3), F32)
        e.call("aclnnPermute", e.tensor(a), e.integers(2, 0, 1), y)
        self.near(y, a.transpose(2, 0, 1))
        held, row = e.empty((2, 3, 4), F32), e.tensor(a[0, :, :1])
        e.call("aclnnInplaceCopy", held, row)
        self.near(held, np.broadcast_to(a[0, :, :1], a.shape))
        source = e.tensor(a)  # every other channel of it
        y = e.empty((2, 3, 2), F32)
        e.call("aclnnInplaceCopy", y, e.window(source, (2, 3, 2), (12, 4, 2), 1))
        self.near(y, a[:, :, 1::2])
        values, ids = e.empty((2, 3, 2), F32), e.empty((2, 3, 2), INT64)
        e.call("aclnnTopk", e.tensor(a), 2, -1, True, True, values, ids)
        want = np.argsort(-a, -1, kind="stable")[..., :2]
        self.near(ids, want)
        self.near(values, np.take_along_axis(a, want, -1))
        y = e.empty((2, 3, 2), F32)
        e.call("aclnnGather", e.tensor(a), -1, ids, y)
        self.near(y, np.take_along_axis(a, want, -1))
        y = e.empty((2, 2, 2, 4), F32)
        e.call("aclnnGatherV2", e.tensor(a), 1, e.tensor(np.array([[2, 0], [1, 1]])), y)
        self.near(y, a[:, [[2, 0], [1, 1]]])
        sums = e.empty((2, 1, 4), F32)
        e.call("aclnnReduceSum", e.tensor(a), e.integers(1), True, F32, sums)
        self.near(sums, wide(a).sum(1, keepdims=True))
        mask = e.empty((2, 4), BOOL)
        e.call("aclnnInplaceOne", mask)
        e.call("aclnnInplaceScatterValue", mask, 1, e.tensor(np.array([[0, 2], [3, 3]])), e.scalar(0), 0)
        self.near(mask, [[0, 1, 0, 1], [1, 1, 1, 0]])
        held = e.tensor(a[:, 0])
        e.call("aclnnInplaceMaskedFillScalar", held, mask, e.scalar(-9))
        self.near(held, np.where(mask.value(), -9, a[:, 0]))

    def test_rotary(self):
        x, k = self.normal(2, 8, 3, 128), self.normal(2, 8, 1, 128)
        c, s = self.normal(1, 8, 1, 128), self.normal(1, 8, 1, 128)
        halves = lambda v: np.concatenate([-v[..., 64:], v[..., :64]], -1)
        pairs = lambda v: np.stack([-v[..., 1::2], v[..., ::2]], -1).reshape(v.shape)
        for mode, turned in ((0, halves(x)), (1, pairs(x))):
            y = e.empty(x.shape, F32)
            e.call("aclnnRotaryPositionEmbedding", e.tensor(x), e.tensor(c), e.tensor(s), mode, y)
            self.near(y, wide(x) * c + wide(turned) * s)
        c, s = np.repeat(c, 2, 0), np.repeat(s, 2, 0)
        q, key = e.tensor(x), e.tensor(k)
        e.call("aclnnApplyRotaryPosEmbV2", q, key, e.tensor(c), e.tensor(s), 1, ctypes.c_char_p(b"half"))
        self.near(q, wide(x) * c + wide(halves(x)) * s)
        self.near(key, wide(k) * c + wide(halves(k)) * s)

    def test_masks(self):
        ones, mask = e.tensor(np.ones((3, 5), np.int32).astype(bool)), e.empty((3, 5), BOOL)
        for name, want in [("aclnnTriu", np.triu), ("aclnnTril", np.tril)]:
            for diagonal in (-2, 0, 3):
                e.call(name, ones, diagonal, mask)
                self.near(mask, want(np.ones((3, 5)), diagonal))
        row, same, both = e.tensor(np.array([[1, 0, 1, 1, 0]])), e.empty((1, 5), BOOL), e.empty((3, 5), BOOL)
        e.call("aclnnEqScalar", row, e.scalar(0), same)
        self.near(same, [[0, 1, 0, 0, 1]])
        e.call("aclnnLogicalOr", same, mask, both)
        self.near(both, np.tril(np.ones((3, 5)), 3) + [[0, 1, 0, 0, 1]] > 0)
        all_of = e.empty((3, 1), BOOL)
        e.call("aclnnAll", both, e.integers(1), True, all_of)
        self.near(all_of, [[1], [1], [1]])

    def test_attention(self):
        q, k, v = self.normal(2, 4, 3, 8), self.normal(2, 2, 5, 8), self.normal(2, 2, 5, 8)
        mask = np.triu(np.ones((3, 5)), 3).astype(bool)
        for hidden in (None, mask):
            y, most, total = e.empty(q.shape, F32), e.empty((2, 4, 3, 8), F32), e.empty((2, 4, 3, 8), F32)
            e.call("aclnnFlashAttentionScore", e.tensor(q), e.tensor(k), e.tensor(v), None, None, None,
                   None if hidden is None else e.tensor(hidden), None, ctypes.c_double(0.5), ctypes.c_double(1.0),
                   2**31 - 1, 2**31 - 1, 4, ctypes.c_char_p(b"BNSD"), 0, 0, most, total, None, y)
            s = 0.5 * np.einsum("bhid,bhjd->bhij", wide(q), wide(np.repeat(k, 2, 1)))
            if hidden is not None:
                s = np.where(hidden, -np.inf, s)
            p = np.exp(s - s.max(-1, keepdims=True))
            self.near(most, np.repeat(s.max(-1, keepdims=True), 8, -1))
            self.near(total, np.repeat(p.sum(-1, keepdims=True), 8, -1))
            self.near(y, p / p.sum(-1, keepdims=True) @ wide(np.repeat(v, 2, 1)))

    def test_experts(self):
        """A mixture of experts from its router to its result."""
        rows, experts, k, width, inner = 5, 4, 2, 8, 6
        x, logits = self.normal(rows, width), self.normal(rows, experts)
        first, second, bias = (self.normal(experts, width, inner), self.normal(experts, width, inner),
                               self.normal(experts, inner))
        scores, ids, row_ids = e.empty((rows, k), F32), e.empty((rows, k), I32), e.empty((rows, k), I32)
        e.call("aclnnMoeGatingTopKSoftmax", e.tensor(logits), None, k, scores, ids, row_ids)
        p = np.exp(wide(logits)) / np.exp(wide(logits)).sum(-1, keepdims=True)
        chosen = np.argsort(-p, -1, kind="stable")[:, :k]
        self.near(ids, chosen)
        self.near(scores, np.take_along_axis(p, chosen, -1))
        self.near(row_ids, np.arange(rows * k).reshape(k, rows).T)
        sorted_x, where, counts = e.empty((rows * k, width), F32), e.empty((rows * k,), I32), e.empty((experts,), I32)
        e.call("aclnnMoeInitRoutingV2", e.tensor(x), ids, 0, 0, experts, 0, 2, False, sorted_x, where, counts, None)
        order = np.argsort(chosen.ravel(), kind="stable")
        self.near(sorted_x, x[order // k])
        self.near(where, np.argsort(order))
        self.near(counts, np.bincount(chosen.ravel(), minlength=experts))
        groups = e.empty((experts,), INT64)
        e.call("aclnnCast", counts, INT64, groups)
        hidden, back = e.empty((rows * k, inner), F32), e.empty((rows * k, width), F32)
        tail = [None] * 7
        e.call("aclnnGroupedMatmulV4", e.list(sorted_x), e.list(e.tensor(first)), e.list(e.tensor(bias)), *tail[:5],
               groups, *tail[:3], 3, 0, 1, 0, e.list(hidden), None, None)
        want = np.einsum("rw,rwi->ri", wide(x)[order // k], first[chosen.ravel()[order]]) + bias[chosen.ravel()[order]]
        np.testing.assert_allclose(wide(hidden.value()), want, rtol=1e-5, atol=1e-5)
        # second is [experts, width, inner]; the product wants [experts, inner, width], a transposed view.
        turned = e.window(e.tensor(second), (experts, inner, width), (width * inner, 1, inner))
        hidden = e.tensor(want.astype(F32))
        e.call("aclnnGroupedMatmulV5", e.list(hidden), e.list(turned), None, *tail[:5], groups, *tail[:3], 3, 0, 1, 0,
               None, e.list(back), None, None)
        rows_back = np.einsum("ri,rwi->rw", want, second[chosen.ravel()[order]])
        np.testing.assert_allclose(wide(back.value()), rows_back, rtol=1e-4, atol=1e-4)
        out = e.empty((rows, width), F32)
        e.call(
            "aclnnMoeFinalizeRoutingV2", e.tensor(rows_back.astype(F32)), where, None, None, None, scores, None, 2, out
        )
        each = rows_back[np.argsort(order)].reshape(rows, k, width)
        np.testing.assert_allclose(
            wide(out.value()), (each * wide(scores.value())[..., None]).sum(1), rtol=1e-4, atol=1e-4
        )

    def test_empty(self):
        y = e.empty((0, 4), F32)
        size, executor = e.plan("aclnnSilu", e.tensor(np.zeros((0, 4), F32)), y)
        self.assertEqual(size, 0)
        e.check(e.operator("aclnnSilu")(None, U64(0), executor, None))
        e.run("aclrtSynchronizeStream", None)


if __name__ == "__main__":
    e = cann.start(sys.argv.pop(1))
    unittest.main()
