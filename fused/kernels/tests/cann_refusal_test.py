"""Tests the calls that the emulation of CANN refuses: python cann_refusal_test.py FOLDER [unittest arguments]."""

import ctypes
import sys
import unittest

import cann
from cann import BOOL, F16, F32, I32, I64, INT64, U64, P

e = None  # the emulation


class Refusals(cann.Case):
    def test_arguments(self):
        x, g, y, r = e.tensor(self.normal(2, 8)), e.tensor(self.normal(8)), e.empty((2, 8), F32), e.empty((2, 1), F32)
        norm = lambda *args: ("aclnnRmsNorm", *args)
        half, ints = e.empty((2, 8), F16), e.empty((2, 8), I32)
        q = e.tensor(self.normal(1, 2, 3, 64))
        attend = lambda **a: ("aclnnFlashAttentionScore", q, q, q, None, None, None, a.get("mask"), None,
                              ctypes.c_double(1), ctypes.c_double(1), 9, 9, a.get("heads", 2),
                              ctypes.c_char_p(a.get("layout", b"BNSD")), 0, 0, *[e.empty((1, 2, 3, 8), F32)] * 2, None,
                              a.get("out", e.empty((1, 2, 3, 64), F32)))
        for code, words, call in [
            (cann.NULL_POINTER, "gamma is NULL", norm(x, None, 1e-5, y, r)),
            (cann.INVALID, "yOut is of FLOAT16", norm(x, g, 1e-5, half, r)),
            (cann.INVALID, "x is of INT32", norm(ints, g, 1e-5, ints, r)),
            (cann.INVALID, "rstdOut is of FLOAT16", norm(x, g, 1e-5, y, e.empty((2, 1), F16))),
            (cann.TILING, "rstdOut has shape [2, 8], not [2, 1]", norm(x, g, 1e-5, y, y)),
            (cann.TILING, "gamma has shape [2]", norm(x, e.empty((2,), F32), 1e-5, y, r)),
            (cann.INVALID, "gamma is of FLOAT, x1 of FLOAT16", ("aclnnAddRmsNorm", half, half, g, 1e-5, half, r, half)),
            (cann.NULL_POINTER, "out is NULL", ("aclnnSilu", x, None)),
            (cann.INVALID, "odd size", ("aclnnSwiGlu", e.empty((2, 7), F32), -1, y)),
            (cann.INVALID, "dim is 2", ("aclnnSwiGlu", x, 2, y)),
            (
                cann.INVALID,
                "not contiguous",
                ("aclnnSwiGlu", e.window(x, (4, 2), (1, 8)),
                 -1, e.empty((4, 1), F32)),
            ),
            (cann.INVALID, "cannot be broadcast", ("aclnnMul", x, e.empty((3,), F32), y)),
            (cann.INVALID, "the result of FLOAT", ("aclnnMul", x, x, ints)),
            (cann.NULL_POINTER, "alpha is NULL", ("aclnnAdd", x, x, None, y)),
            (cann.INVALID, "dtype is FLOAT16", ("aclnnCast", x, F16, y)),
            (cann.NULL_POINTER, "clipValueMin and clipValueMax", ("aclnnClamp", x, None, None, y)),
            (cann.INVALID, "k is 9", ("aclnnTopk", x, 9, -1, True, True, y, e.empty((2, 8), INT64))),
            (cann.INVALID, "indicesOut is of INT32", ("aclnnTopk", x, 8, -1, True, True, y, ints)),
            (cann.INVALID, "64 channels, not 128",
             ("aclnnApplyRotaryPosEmbV2", q, q, q, q, 1, ctypes.c_char_p(b"half"))),
            (
                cann.TILING,
                "no supported pair",
                ("aclnnRotaryPositionEmbedding", e.tensor(self.normal(2, 3, 4, 8)),
                 *[e.tensor(self.normal(1, 3, 4, 8))] * 2, 0, e.empty((2, 3, 4, 8), F32)),
            ),
            (cann.TILING, "mode 2", ("aclnnRotaryPositionEmbedding", q, q, q, 2, e.empty((1, 2, 3, 64), F32))),
            (cann.TILING, "896 channels",
             ("aclnnRotaryPositionEmbedding", *[e.empty((1, 1, 1, 896), F32)] * 3, 0, e.empty((1, 1, 1, 896), F32))),
            (cann.TILING, "headNum is 3", attend(heads=3)),
            (cann.TILING, "attenMaskOptional has shape [3, 2]", attend(mask=e.empty((3, 2), BOOL))),
            (cann.INVALID, "inputLayout is BSND", attend(layout=b"BSND")),
            (cann.INVALID, "attentionOutOut is of FLOAT16", attend(out=e.empty((1, 2, 3, 64), F16))),
            (cann.TILING, "k is 9",
             ("aclnnMoeGatingTopKSoftmax", x, None, 9, e.empty((2, 9), F32), *[e.empty((2, 9), I32)] * 2)),
        ]:
            with self.subTest(words):
                self.refused(code, words, *call)

    def test_experts(self):
        x, ids = e.empty((3, 8), F32), e.empty((3, 2), I32)
        out, where, counts = e.empty((6, 8), F32), e.empty((6,), I32), e.empty((4,), I32)
        start = lambda **a: [a.get("x", x), a.get("ids", ids), 0, 0, a.get("experts", 4), a.get("mode", 0),
                             a.get("flag", 2), False, a.get("out", out), where, a.get("counts", counts), None]
        self.refused(cann.INVALID, "expertIdx is of INT64", "aclnnMoeInitRoutingV2", *start(ids=e.empty((3, 2), INT64)))
        self.refused(cann.INNER_NULL, "expertNum is 0", "aclnnMoeInitRoutingV2", *start(experts=0))
        self.refused(cann.INNER_NULL, "expertTokensCountOrCumsumFlag is 3", "aclnnMoeInitRoutingV2", *start(flag=3))
        self.refused(
            cann.NULL_POINTER, "expertTokensCountOrCumsumOut is NULL", "aclnnMoeInitRoutingV2", *start(counts=None)
        )
        self.refused(
            cann.INNER_NULL, "expandedXOut has shape [3, 8], not [6, 8]", "aclnnMoeInitRoutingV2", *start(out=x)
        )
        product = lambda **a: [e.list(a.get("x", out)), e.list(a.get("weight", e.empty((4, 8, 5), F32))), a.get("bias"),
                               *[None] * 5, a.get("groups", e.empty((4,), INT64)), *[None] * 3, a.get("split", 3), 0,
                               a.get("type", 1), a.get("act", 0), e.list(a.get("out", e.empty((6, 5), F32))), None,
                               None]
        for code, words, args in [
            (cann.INVALID, "groupListOptional is of INT32", product(groups=counts)),
            (cann.NULL_POINTER, "groupListOptional", product(groups=None)),
            (cann.INVALID, "weight has shape [4, 5, 8]", product(weight=e.empty((4, 5, 8), F32))),
            (cann.INVALID, "actType is 5", product(act=5)),
            (cann.INVALID, "weight is of FLOAT16", product(weight=e.empty((4, 8, 5), F16))),
            (cann.INVALID, "groupListType is 3", product(type=3)),
            (cann.INVALID, "out has shape [6, 8], not [6, 5]", product(out=e.empty((6, 8), F32))),
            (cann.INVALID, "biasOptional is of FLOAT16", product(bias=e.list(e.empty((4, 5), F16)))),
        ]:
            with self.subTest(words):
                self.refused(code, words, "aclnnGroupedMatmulV4", *args)
        rows, scales, y = e.empty((6,), I32), e.empty((3, 2), F32), e.empty((3, 8), F32)
        self.refused(cann.INNER_NULL, "dropPadMode is 4", "aclnnMoeFinalizeRoutingV2", out, rows, None, None, None,
                     scales, None, 4, y)
        self.refused(cann.INVALID, "scalesOptional is of FLOAT16", "aclnnMoeFinalizeRoutingV2", out, rows, None, None,
                     None, e.empty((3, 2), F16), None, 2, y)
        self.refused(cann.INNER_NULL, "without x1Optional", "aclnnMoeFinalizeRoutingV2", out, rows, None, y, None,
                     scales, None, 2, y)

    def test_tensors(self):
        address = e.allocate(64)
        for words, handle in [
            ("aligned to 32", lambda: e.view(P(address.value + 4), F32, (2,))),
            ("reach beyond a storage of 15 elements", lambda: e.view(address, F32, (16,), storage=(15,))),
            ("type 99", lambda: e.base.aclCreateTensor(None, U64(0), 99, None, I64(0), 2, None, U64(0), address)),
        ]:
            self.assertIsNone(handle())
            self.assertIn(words, e.message())
        odd = cann.Held(e, address, (4,), F32, e.view(address, F32, (4,), form=0))
        self.refused(cann.INVALID, "format 0, not ND", "aclnnSilu", odd, odd)

    def test_other_chip(self):
        got = cann.in_a_process("""
import cann
from cann import BF16, F16, F32, I32
e = cann.start(FOLDER)
def told(name, *args):
    try:
        e.plan(name, *args)
        print(name, "ok")
    except cann.CannError as error:
        print(error)
b, f, r, w = e.empty((2, 16), BF16), e.empty((2, 16), F16), e.empty((2, 1), F32), e.empty((2, 64), F16)
told("aclnnSilu", b, b)
told("aclnnSilu", f, f)
told("aclnnRmsNorm", f, e.empty((16,), F32), 1e-5, f, r)
told("aclnnRmsNorm", f, e.empty((16,), F16), 1e-5, f, r)
told("aclnnSwiGlu", f, -1, e.empty((2, 8), F16))
told("aclnnSwiGlu", w, -1, e.empty((2, 32), F16))
told("aclnnMoeGatingTopKSoftmax", w, None, 2, e.empty((2, 2), F16), *[e.empty((2, 2), I32)] * 2)
""", CANN_EMULATION_SOC="Ascend310P3")
        self.assertEqual(got.returncode, 0, got.stderr)
        for line, words in zip(
            got.stdout.splitlines(),
            ["self is of BFLOAT16, which is not supported on Ascend310P3", "aclnnSilu ok", "gamma is of FLOAT",
             "aclnnRmsNorm ok", "no multiple of 64 bytes", "aclnnSwiGlu ok", "aclnnMoeGatingTopKSoftmax ok"],
        ):
            self.assertIn(words, line)
        self.assertEqual(len(got.stdout.splitlines()), 7)


if __name__ == "__main__":
    e = cann.start(sys.argv.pop(1))
    unittest.main()
