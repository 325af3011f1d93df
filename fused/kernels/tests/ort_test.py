"""Tests libmojo_ops through onnxruntime: python ort_test.py LIBRARY [unittest arguments]."""
import os
import sys
import threading
import unittest

import numpy as np
import onnx
from onnx import helper

import harness as h
from formulas import FORMULAS, apart, random_codes, spread
from harness import BF16, F16, F32, I8, I64, U8
from ops import OPS

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


@unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""), "runtime_test runs every form under the sanitizers")
class EveryOpTest(OpTest):
    """Every op in every form and combination of types that the catalogue has, against its formula."""

    def inputs(self, op, shapes, types, ordered):
        """Random values; integers are experts, of which the forms have more than three. Where an op gives an order, no
        two elements of a row are close, and what comes after them moves them little."""
        values = []
        for name, shape, dtype in zip(op.inputs, shapes, types):
            if shape is None:
                values.append(None)
            elif dtype == I64:
                values.append(self.rng.integers(0, 3, shape))
            elif dtype in (I8, U8):
                values.append(random_codes(self.rng, name, shape, dtype))
            elif ordered and not values:
                rows = [self.rng.permutation(shape[-1]) for _ in range(int(np.prod(shape[:-1])))]
                values.append((np.reshape(rows, shape) - shape[-1] / 2) * 0.125)
            else:
                values.append(self.values(shape, dtype, 0.01 if ordered else spread(name)))
        return values

    def test_forms(self):
        for name, op in OPS.items():
            if h.device() not in op.devices or not h.in_library(op):
                continue
            formula = FORMULAS[name]
            for attributes, shapes, out_shapes, types, out_types in op.cases():
                if not op.on_every(h.device(), attributes):
                    continue
                values = self.inputs(op, shapes, types, I64 in out_types)
                wants = formula.compute(out_types, *values, **attributes)
                gots = h.run(name, values, types, out_types, attributes)
                bounds = formula.bounds(wants, out_types, *values, **attributes)
                for got, want, bound, shape in zip(gots, wants, bounds, out_shapes, strict=True):
                    self.assertEqual((got.shape, want.shape), (tuple(shape), tuple(shape)))
                    self.assertTrue(np.all(apart(got, want) <= bound), f"{name} {types} {attributes}: differs by "
                                    f"{apart(got, want).max(initial=0)}, {np.max(bound, initial=0)} allowed")


class AttentionTest(OpTest):
    """Attention where forms do not reach: any sizes, padding on either side, the cache in place."""
    device = "cpu"  # of the cache
    reads_lengths = True  # so that wrong ones are errors

    def setUp(self):
        super().setUp()
        if not h.in_library(OPS["Attention"]):
            self.skipTest("the library has no Attention")

    def check(self, inputs, attributes, dtype=F32, leave_out=0):
        """Runs one node and compares it with the formula. inputs are by name, of those that are given."""
        op = OPS["Attention"]
        values = [inputs.get(name) for name in op.inputs]
        values = [h.rounded(v, dtype) if t == F32 and v is not None and n not in ("bias", "sink") else v
                  for v, t, n in zip(values, op.types[0][0], op.inputs)]
        types = [t if t == I64 or n in ("bias", "sink") else dtype for t, n in zip(op.types[0][0], op.inputs)]
        gots = h.run("Attention", values, types, [dtype] * 3, attributes, leave_out=leave_out)
        wants = h.attention(*values, dtype, **attributes)
        for got, want in zip(gots, wants):
            self.assertEqual(got.shape, want.shape)
            bound = 8 * h.EPSILON[dtype] * np.abs(want).max(initial=0)
            worst = np.abs(got - want).max(initial=0)
            shapes = {n: np.shape(v) for n, v in inputs.items()}
            self.assertLessEqual(worst, bound, f"{dtype} {shapes} {attributes}")

    def inputs(self, batch, heads, key_heads, queries, new, past, width, value_width, attributes):
        shaped = lambda name, n, length, w: self.rng.standard_normal(
            (batch, length, n, w) if attributes[name + "_layout"] == "bsnh" else (batch, n, length, w))
        inputs = {"q": shaped("q", heads, queries, width), "k": shaped("k", key_heads, new, width),
                  "v": shaped("v", key_heads, new, value_width)}
        if past is not None:
            inputs["past_key"] = self.rng.standard_normal((batch, key_heads, past, width))
            inputs["past_value"] = self.rng.standard_normal((batch, key_heads, past, value_width))
        return inputs

    def test_large_past(self):
        """Copies of a past that does not fit into the caches of a processor are made while it is read."""
        for queries, group, dtype, width in ((1, 3, F32, 64), (1, 1, F16, 72), (2, 4, BF16, 64), (9, 3, F32, 33),
                                             (40, 3, F32, 64), (140, 1, BF16, 64)):
            past, attributes = 301, dict(h.ATTENTION, causal=1)
            inputs = self.inputs(2, 8 * group, 8, queries, queries, past, width, width, attributes)
            self.check(inputs, attributes, dtype)
            self.check(inputs | {"past_length": np.array([150, 60])}, attributes | {"window": 100}, dtype)

    def test_any_sizes(self):
        pick = lambda *values: values[self.rng.integers(len(values))]
        for number in range(90):
            batch, key_heads, group = pick(1, 2, 3), pick(1, 2, 3), pick(1, 2, 3, 7)
            queries, width, value_width = pick(1, 1, 2, 5, 17, 40, 140), pick(1, 8, 17, 40, 64), pick(1, 8, 33, 64)
            past = pick(None, 0, 1, 9, 130, 300)
            new = pick(queries, queries, queries, 4)
            attributes = dict(h.ATTENTION, causal=pick(0, 1, 1), window=pick(0, 0, 1, 5, 200),
                              softcap=pick(0.0, 0.0, 2.0), empty=pick("zero", "mean"),
                              head_order=pick("blocked", "cyclic"))
            for name in "qkvy":
                attributes[name + "_layout"] = pick("bnsh", "bsnh")
            heads = key_heads * group
            inputs = self.inputs(batch, heads, key_heads, queries, new, past, width, value_width, attributes)
            length = np.full(batch, new + (past or 0))
            if past is not None and past >= new and pick(0, 1):
                most = past - new
                lengths = self.rng.integers(0, most + 1, pick(1, batch))
                inputs["past_length"] = lengths
                length = np.broadcast_to(lengths + new, batch)
            longest = length.max()
            padding = pick("none", "left", "right", "holes", "all")
            if padding != "none":
                valid = np.ones((batch, longest + pick(0, 3)), np.int64)
                for b in range(batch):
                    n = self.rng.integers(0, longest + 1)
                    if padding == "left":
                        valid[b, :n] = 0
                    elif padding == "right":
                        valid[b, n:] = 0
                    elif padding == "holes":
                        valid[b] = self.rng.integers(-1, 2, valid.shape[1])
                    else:
                        valid[b] = b
                inputs["key_valid"] = valid
            if pick(0, 0, 1):
                shape = (pick(1, batch), pick(1, heads), pick(1, queries), pick(1, longest))
                bias = self.rng.standard_normal(shape).astype(np.float32)
                inputs["bias"] = np.where(self.rng.random(shape) < 0.2, -np.inf, bias)
            if pick(0, 0, 1):
                inputs["sink"] = self.rng.standard_normal(heads).astype(np.float32)
            self.check(inputs, attributes, (F32, F16, BF16)[number % 3], leave_out=pick(0, 0, 1, 2))

    def test_long(self):
        """Several slices of keys, and panels that are filled in several goes."""
        for queries, past, batch, dtype in [(1, 3000, 1, F32), (3, 2100, 2, BF16), (40, 1500, 1, F16),
                                            (300, 0, 3, F32)]:
            for empty in ("zero", "mean"):
                attributes = dict(h.ATTENTION, causal=1, empty=empty, q_layout="bsnh", y_layout="bsnh")
                inputs = self.inputs(batch, 3, 1, queries, queries, past, 64, 48, attributes)
                inputs["key_valid"] = np.ones((batch, past + queries), np.int64)
                inputs["key_valid"][-1, :past + queries - 1] = 0
                if empty == "zero":  # a sink counts once, however many slices there are
                    inputs["sink"] = self.rng.standard_normal(3).astype(np.float32) + 4
                self.check(inputs, attributes, dtype)

    def test_no_keys(self):
        """No queries, no new keys, no keys at all, no sequences."""
        for queries, new, past, batch in [(0, 0, 5, 2), (3, 0, 4, 2), (0, 2, 0, 1), (2, 0, None, 2), (1, 1, 0, 0)]:
            for empty in ("zero", "mean"):
                attributes = dict(h.ATTENTION, causal=1, empty=empty)
                self.check(self.inputs(batch, 4, 2, queries, new, past, 8, 6, attributes), attributes)

    def test_large_scores(self):
        """Scores beyond float16, and so far apart that all but one weigh nothing."""
        for dtype in (F32, F16, BF16):
            attributes = dict(h.ATTENTION, causal=1, scale=1.0)
            inputs = self.inputs(1, 2, 1, 20, 20, None, 64, 16, attributes)
            inputs["q"] *= 60
            inputs["k"] *= 60
            self.check(inputs, attributes, dtype)

    def test_not_a_number(self):
        """A NaN stays with the queries that see it."""
        inputs = self.inputs(1, 2, 1, 30, 30, None, 16, 8, dict(h.ATTENTION))
        inputs["k"][0, 0, 20, 3] = np.nan
        y, *_ = h.run("Attention", [inputs[n] for n in "qkv"], [F32] * 3, [F32] * 3, dict(h.ATTENTION, causal=1))
        self.assertTrue(np.isfinite(y[:, :, :20]).all() and np.isnan(y[:, :, 20:]).all())

    def bound(self, shape, past, new, attributes, values, lengths):
        """Runs a node with the cache bound over itself, and gives the result and the two buffers."""
        (batch, heads, queries, width), key_heads = shape, past[0].shape[1]
        names = ["q", "k", "v", "", "past_key", "past_value", "past_length"]
        node = helper.make_node("Attention", names, ["y", "present_key", "present_value"], domain="mojo", **attributes)
        info = helper.make_tensor_value_info
        cache = [batch, key_heads, "room", width]
        graph = helper.make_graph(
            [node], "g", [info("q", 1, [batch, heads, queries, width])] +
            [info(n, 1, [batch, key_heads, new, width]) for n in "kv"] +
            [info(n, 1, cache) for n in ("past_key", "past_value")] + [info("past_length", 7, [None])],
            [info("y", 1, None), info("present_key", 1, None), info("present_value", 1, None)])
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18),
                                                                      helper.make_opsetid("mojo", 1)])
        session = h.session(model, threads=2)
        binding = session.io_binding()
        binding.bind_output("y")
        held = [h.ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(p), self.device, 0) for p in past]
        for name, value in zip("qkv", values):
            binding.bind_cpu_input(name, np.ascontiguousarray(value, dtype=np.float32))
        binding.bind_cpu_input("past_length", lengths)
        for i, name in enumerate(("key", "value")):
            binding.bind_ortvalue_input("past_" + name, held[i])
            binding.bind_ortvalue_output("present_" + name, held[i])
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0], held[0].numpy(), held[1].numpy()

    def test_in_place(self):
        """New rows are written over the buffers; what lies behind them is neither read nor written."""
        for queries, room, lengths in [(1, 40, [3, 17]), (2, 300, [150]), (30, 200, [0, 170]), (1, 9, [8])]:
            attributes = dict(h.ATTENTION, causal=1)
            inputs = self.inputs(2, 6, 2, queries, queries, room, 16, 16, attributes)
            lengths = np.array(lengths, np.int64)
            past = [np.array(inputs[n], np.float32) for n in ("past_key", "past_value")]
            ends = np.broadcast_to(lengths, 2) + queries
            values = [np.asarray(inputs[n], np.float32) for n in "qkv"]
            want, keys, cached = h.attention(*values, None, *past, lengths, None, None, F32, **attributes)
            for b, end in enumerate(ends):  # a rest that would spoil everything
                for buffer in past:
                    buffer[b, :, end:] = np.nan
            got, *buffers = self.bound(values[0].shape, past, queries, attributes, values, lengths)
            self.assertLessEqual(np.abs(got - want).max(), 8 * h.EPSILON[F32] * np.abs(want).max())
            for buffer, full in zip(buffers, (keys, cached)):
                for b, end in enumerate(ends):
                    np.testing.assert_array_equal(buffer[b, :, :end], full[b, :, :end])
                    self.assertTrue(np.isnan(buffer[b, :, end:]).all())

    def test_errors(self):
        good = {n: np.zeros(s) for n, s in [("q", (2, 6, 3, 8)), ("k", (2, 2, 3, 8)), ("v", (2, 2, 3, 5)),
                                           ("past_key", (2, 2, 4, 8)), ("past_value", (2, 2, 4, 5))]}
        full = dict(good, past_key=np.zeros((2, 2, 9, 8)), past_value=np.zeros((2, 2, 9, 5)))
        wrong_lengths = [
            (dict(full, past_length=np.array([7])), ["past_length of sequence 0 is 7", "from 0 to 6"]),
            (dict(full, past_length=np.array([2, -1])), ["past_length of sequence 1 is -1"]),
        ]
        for changed, words in (wrong_lengths if self.reads_lengths else []) + [
            ({"q": np.zeros((2, 6, 8))}, ["q has shape [2,6,8]", "4 dimensions"]),
            ({"q": np.zeros((2, 5, 3, 8))}, ["q has shape [2,5,3,8]", "divides"]),
            ({"v": np.zeros((2, 2, 4, 5))}, ["v [2,2,4,5]", "one length"]),
            ({"past_key": np.zeros((2, 2, 4, 7))}, ["past_key has shape [2,2,4,7]", "[2,2,keys,8]"]),
            ({"past_value": np.zeros((2, 2, 3, 5))}, ["past_value [2,2,3,5]", "as many keys"]),
            ({"past_value": None}, ["past_key and past_value", "together"]),
            ({"key_valid": np.ones((2, 6))}, ["key_valid has shape [2,6]", "[2,7]"]),
            ({"sink": np.ones(5)}, ["sink has shape [5]", "[6]"]),
            ({"bias": np.ones((3, 6))}, ["bias has shape [3,6]", "[2,6,3,7]"]),
            (dict(full, past_length=np.array([2, 1, 1])), ["past_length has shape [3]", "[1] or [2]"]),
        ]:
            op = OPS["Attention"]
            values = [{**good, **changed}.get(name) for name in op.inputs]
            self.fails(["Attention"] + words, "Attention", values, op.types[0][0], [F32] * 3, h.ATTENTION)
        for changed, words in [({"causal": 2}, ["causal is 2"]), ({"window": -1}, ["window is -1"]),
                               ({"softcap": -1.0}, ["softcap is -1"]),
                               ({"empty": "none"}, ["empty", '"zero" or "mean"']),
                               ({"q_layout": "sbnh"}, ["q_layout", '"bnsh" or "bsnh"'])]:
            self.fails(words, "Attention", [good[n] for n in "qkv"], [F32] * 3, [F32] * 3, dict(h.ATTENTION, **changed))


class LatentAttentionTest(OpTest):
    """LatentAttention where forms do not reach: any sizes, for both ways to compute it, and lengths of a cache."""
    reads_lengths = True  # so that wrong ones are errors

    def setUp(self):
        super().setUp()
        if not h.in_library(OPS["LatentAttention"]):
            self.skipTest("the library has no LatentAttention")

    def test_any_sizes(self):
        pick = lambda *values: values[self.rng.integers(len(values))]
        op, normal = OPS["LatentAttention"], self.rng.standard_normal
        for number in range(60):
            batch, heads, nope, rotated = pick(1, 2, 3), pick(1, 2, 5, 20), pick(1, 8, 17, 32), pick(0, 2, 9, 16)
            latent, value_width = pick(1, 16, 33, 64, 130), pick(1, 8, 33)
            tokens, past = pick(1, 1, 2, 5, 40, 140), pick(None, 0, 1, 9, 130, 300)
            attributes = dict(scale=0.2 / (nope + rotated) ** 0.5, causal=pick(0, 1, 1), empty=pick("zero", "mean"),
                              q_layout=pick("bnsh", "bsnh"), y_layout=pick("bnsh", "bsnh"),
                              w_layout=pick("in_out", "out_in"))
            by_token = attributes["q_layout"] == "bsnh"
            w = normal((latent, heads * (nope + value_width))) / latent ** 0.5
            inputs = {"q": normal((batch, tokens, heads, nope + rotated) if by_token else
                                  (batch, heads, tokens, nope + rotated)),
                      "c": normal((batch, tokens, latent)), "k_pe": normal((batch, 1, tokens, rotated)),
                      "w": w.T if attributes["w_layout"] == "out_in" else w}
            longest = tokens + (past or 0)
            if past is not None:
                inputs["past"] = normal((batch, 1, past, latent + rotated))
                if past >= tokens and pick(0, 1):
                    inputs["past_length"] = self.rng.integers(0, past - tokens + 1, pick(1, batch))
                    longest = inputs["past_length"].max() + tokens
            if pick(0, 1):
                valid = np.ones((batch, longest + pick(0, 3)), np.int64)
                for b in range(batch):
                    valid[b, :self.rng.integers(0, longest + 1)] = 0
                inputs["key_valid"] = valid
            dtype = (F32, F16, BF16)[number % 3]
            types = [t if t == I64 else dtype for t in op.types[0][0]]
            values = [inputs.get(name) for name in op.inputs]
            values = [v if v is None or t == I64 else h.rounded(v, t) for v, t in zip(values, types)]
            leave_out = pick(0, 1)
            gots = h.run("LatentAttention", values, types, [dtype] * 2, attributes, leave_out=leave_out,
                         threads=pick(1, 3))
            wants = FORMULAS["LatentAttention"].compute([dtype] * 2, *values, **attributes)
            for got, want in zip(gots, wants):
                self.assertEqual(got.shape, want.shape)
                bound = 8 * h.EPSILON[dtype] * np.abs(want).max(initial=0)
                shapes = {n: np.shape(v) for n, v in inputs.items()}
                self.assertLessEqual(np.abs(got - want).max(initial=0), bound, f"{dtype} {shapes} {attributes}")

    def test_errors(self):
        op = OPS["LatentAttention"]
        attributes = dict(scale=0.25, causal=1, empty="zero", q_layout="bnsh", y_layout="bnsh", w_layout="in_out")
        good = {"q": np.ones((2, 4, 3, 12)), "c": np.ones((2, 3, 16)), "k_pe": np.ones((2, 1, 3, 4)),
                "w": np.ones((16, 56)), "past": np.ones((2, 1, 7, 20)), "past_length": np.array([4])}
        wrong_lengths = [
            (dict(past_length=np.array([5])), ["past_length of sequence 0 is 5", "from 0 to 4"]),
            (dict(past_length=np.array([1, -1])), ["past_length of sequence 1 is -1"]),
            (dict(key_valid=np.ones((2, 6))), ["key_valid has shape [2,6]", "[2,7]"]),
        ]
        for changed, words in (wrong_lengths if self.reads_lengths else []) + [
            (dict(w=np.ones((56, 16))), ["w [56,16]", "[C,H*(E+Dv)]"]),
            (dict(k_pe=np.ones((2, 4, 3, 4))), ["k_pe [2,4,3,4]"]),
            (dict(past=np.ones((2, 4, 7, 12))), ["past has shape [2,4,7,12]", "[2,1,tokens,20]"]),
            (dict(past_length=np.array([1, 1, 1])), ["past_length has shape [3]", "[1] or [2]"]),
            (dict(past=np.ones((2, 1, 2, 20))), ["no room for the 3 tokens"]),
            (dict(past=None), ["past_length is given without past"]),
        ]:
            values = [dict(good, **changed).get(name) for name in op.inputs]
            self.fails(["LatentAttention"] + words, "LatentAttention", values, op.types[0][0], [F32] * 2, attributes)


class LinearTest(OpTest):
    """Linear and Embedding where forms do not reach: constant weights, threads, many rows, and errors."""

    def setUp(self):
        super().setUp()
        if h.device() != "cpu" or not h.in_library(OPS["Linear"]):
            self.skipTest("the library has no Linear")

    def weights(self, n, k, form):
        code, zero, scale_type, minus = {"q4_1": ("int4", 0, F16, True), "q8_0": ("int8", 128, F32, False),
                                         "mxfp4": ("e2m1", 0, U8, False), "fp8": ("e4m3", 0, F32, False)}[form]
        block, rows = (128, 1) if form == "fp8" else (32, 16)
        attributes = dict(code=code, zero=zero, block=block, n=n, k=k)
        panels = -(-n // 16)
        codes = random_codes(self.rng, "codes", (panels, k // 32, 8 if code in ("int8", "e4m3") else 4, 64), U8)
        scales = [random_codes(self.rng, "scale", (panels, k // 32, 16), U8) if scale_type == U8 else
                  self.values((panels, k // block, rows), scale_type) for _ in range(1 + minus)]
        values = [codes, *scales] + [None] * (4 - len(scales))
        return values, [U8, scale_type, scale_type, F16, F16], attributes

    def test_sizes(self):
        for form in ("q4_1", "q8_0", "mxfp4", "fp8"):
            for tokens, n, k in [(1, 1, 32), (1, 300, 2048), (5, 64, 1056), (150, 33, 320), (300, 17, 64)]:
                k = -(-k // 128) * 128 if form == "fp8" else k
                kinds = ((F32, "fp8"), (F16, "fp8")) if form == "fp8" else ((F32, "int8"), (F32, "int16"))
                for dtype, activations in (*kinds, (BF16, "float")):
                    values, types, attributes = self.weights(n, k, form)
                    values = [self.values((tokens, k), dtype), *values, None]
                    types = [dtype, *types, dtype]
                    attributes["activations"] = activations
                    want, = FORMULAS["Linear"].compute([dtype], *values, **attributes)
                    got, = h.run("Linear", values, types, [dtype], attributes, constant=(1, 2), threads=3)
                    bound = 8 * h.EPSILON[dtype] * np.abs(want).max()
                    self.assertLessEqual(np.abs(got - want).max(), bound, f"{form} {tokens}x{k}x{n} {attributes}")

    def test_errors(self):
        values, types, attributes = self.weights(20, 64, "q4_1")
        x = self.values((2, 64), F32)
        for at, value, words in [(0, x[:, :32], ["X has shape [2,32]", "64"]),
                                 (1, values[0][:1], ["codes has shape [1,2,4,64]", "[2,2,4,64]"]),
                                 (2, values[1][:, :1], ["scale has shape [2,1,16]", "[2,2,16]"]),
                                 (4, np.ones((2, 1, 16)), ["super_scale"]),
                                 (6, np.ones(16), ["bias has shape [16]", "[20]"])]:
            given = [x, *values, None]
            given[at] = value
            self.fails(["mojo.Linear"] + words, "Linear", given, [F32, *types, F32], [F32],
                       dict(attributes, activations="int16"))
        for name, value, words in [("block", 64, ["block is 64", "32"]), ("zero", 16, ["zero is 16"]),
                                   ("k", 80, ["k is 80", "multiple of 32"]), ("n", 0, ["n is 0"]),
                                   ("code", "e2m1", ["code", "uint8"])]:
            self.fails(["mojo.Linear", "attribute"] + words, "Linear", [x, *values, None], [F32, *types, F32], [F32],
                       {**attributes, "activations": "int16", name: value})
        for bad in (20, -21):
            self.fails(["mojo.Embedding", f"element 1 of ids is {bad}", "from -20 to 19"], "Embedding",
                       [np.array([0, bad]), *values], [I64, *types], [F32], attributes)


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
        for dtype in (F32, F16, BF16):
            for x_shape, cos_shape, sin_shape in [
                ((8,), (8,), (4,)), ((3, 8), (8,), (1, 8)), ((2, 3, 5, 16), (2, 1, 5, 16), (5, 16)),
                ((2, 5, 3, 64), (1, 5, 1, 64), (2, 5, 1, 32)), ((2, 3, 5, 2), (2, 3, 5, 2), (2, 1, 1, 1)),
                ((1, 2, 1, 2, 2, 2, 2, 6), (2, 1, 2, 1, 6), (1, 2, 1, 2, 1, 1, 2, 6)),
                ((0, 3, 8), (3, 8), (1, 4)), ((2, 0, 8), (0, 8), (1, 8)),
            ]:
                self.check(x_shape, cos_shape, sin_shape, (dtype,) * 3, dict(h.NORM_ROTARY, rotary_dim=x_shape[-1]))

    def test_extremes(self):
        """Rows of zeros, and of numbers whose squares overflow or vanish; the next row is none the worse."""
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
        bad(["rotary_dim is 10", "[2,3,8]"], good, rotary_dim=10)
        bad(["interleaved is 2", "the_node"], good, interleaved=2)
        bad(["epsilon is -1", "the_node"], good, epsilon=-1.0)
        bad(["scale_after_cast is 2", "the_node"], good, scale_after_cast=2)
        bad(["scale_after_cast is 1"], good, types=(F16, F32, F16, F16), scale_after_cast=1)
        bad(["scale_after_cast is 0"], good, types=(F32, F16, F16, F16))
        for name in h.NORM_ROTARY:
            bad([name, "required", "the_node"], good, leave_out=[name])
        with self.assertRaises(Exception):  # tables of another type than the norm's result
            h.run("NormRotary", [np.ones(s) for s in good], [F16, F16, F32, F32], [F16], h.NORM_ROTARY)


class TopKRouterTest(OpTest):
    FORMS = [dict(h.ROUTER), dict(h.ROUTER, renormalize=0, scale=2.5), dict(h.ROUTER, score="sigmoid", epsilon=0.125),
             dict(h.ROUTER, score="sqrtsoftplus", epsilon=1e-20, scale=2.5),
             dict(h.ROUTER, order="top_k_first", renormalize=0),
             dict(h.ROUTER, order="top_k_first", score="sigmoid", renormalize=0, top_k=1),
             dict(h.ROUTER, groups=4, group_top_k=2, top_k=6, renormalize=0, scale=16.0),
             dict(h.ROUTER, score="sigmoid", groups=8, group_top_k=4, group_score="top2_sum", top_k=8,
                  excluded_score=float("-inf"), epsilon=1e-20, scale=2.5)]

    def check(self, shape, types, attributes, bias=True, **more):
        # Multiples of 1/8, each once in a row: no type and no rounding changes the order.
        count, experts = int(np.prod(shape[:-1])), shape[-1]
        step = 0.125 if experts < 100 else 1 / 64
        logits = np.stack([self.rng.permutation(experts) for _ in range(count)] or [np.zeros(experts)])[:count]
        logits = (logits.reshape(shape) - experts / 2) * step
        values = [logits]
        if bias:
            # So fine that no group gets as good as another, and sums of two as little.
            values.append(h.rounded(self.rng.standard_normal(experts) * 1e-2, types[1]))
        else:
            values.append(None)
        w, ids = h.run("TopKRouter", values, types, [F32, I64], attributes, **more)
        want, want_ids = h.router(*values, **attributes)
        self.assertEqual((w.shape, ids.shape), (want.shape, want.shape))
        same = (ids == want_ids).all(-1)
        self.assertGreaterEqual(same.mean() if same.size else 1, 0.9)  # the others are too close to tell
        np.testing.assert_allclose(w[same], want[same], rtol=2e-6, atol=1e-12)
        return w, ids

    def test_forms(self):
        for x in (F32, F16, BF16):
            for b in (F32, F16, BF16):
                for form in self.FORMS:
                    for shape in [(64,), (3, 64), (2, 3, 32), (1, 2, 1, 40)]:
                        self.check(shape, [x, b], form)
                        self.check(shape, [x, b], form, constant=(1,))
                    self.check((5, 32), [x, b], form, bias=False)
                    self.check((0, 32), [x, b], form, bias=False)
                    self.check((2, 0, 32), [x, b], form)

    def test_left_out_without_a_name(self):
        """An input that is left out at the end may have no place in the list."""
        x = self.values((3, 8), F32)
        w, ids = h.run("TopKRouter", [x], [F32], [F32, I64], h.ROUTER)
        want, want_ids = h.router(x, None, **h.ROUTER)
        np.testing.assert_array_equal(ids, want_ids)
        np.testing.assert_allclose(w, want, rtol=2e-6)

    def test_check_vectors(self):
        """Vectors worked out by hand for a router with groups."""
        x = np.array([[2, -1, 0.5, 0.4, 1.9, 1.8, -3, -3]], np.float32)
        bias = np.array([0, 0, 0, 0, -0.5, -0.5, 0.9, 0.9], np.float32)
        form = dict(h.ROUTER, score="sigmoid", groups=2, excluded_score=float("-inf"), scale=2.5)
        w, ids = h.run("TopKRouter", [x], [F32], [F32, I64], dict(form, group_score="max"))
        np.testing.assert_array_equal(ids, [[0, 2]])
        np.testing.assert_allclose(w, [[1.46482, 1.03518]], atol=1e-5)
        w, ids = h.run("TopKRouter", [x, bias], [F32] * 2, [F32, I64], dict(form, group_score="top2_sum"))
        self.assertEqual(set(ids[0]), {6, 7})
        np.testing.assert_allclose(w, [[1.25, 1.25]], atol=1e-5)

    def test_ties_and_extremes(self):
        run = lambda rows, **a: h.run(
            "TopKRouter", [np.array(rows, np.float32)], [F32], [F32, I64], dict(h.ROUTER, **a)
        )
        inf = np.inf
        w, ids = run([[1, 2, 2, 2], [0, 0, 0, 0], [1e4, -1e4, 0, 1e4], [-inf, -inf, 3, -inf]])
        np.testing.assert_array_equal(ids, [[1, 2], [0, 1], [0, 3], [2, 0]])
        np.testing.assert_array_equal(w, [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [1, 0]])
        _, ids = run([[np.nan] * 4, [1, np.nan, inf, 0]], top_k=4)
        self.assertEqual([sorted(r) for r in ids.tolist()], [[0, 1, 2, 3]] * 2)

    def test_every_row_on_threads(self):
        for experts, form in [(8, self.FORMS[0]), (128, self.FORMS[1]), (256, self.FORMS[6]), (2000, self.FORMS[3])]:
            one = self.rng.standard_normal((4001 if experts < 2000 else 41, experts)).astype(np.float32)
            got = [h.run("TopKRouter", [one], [F32], [F32, I64], form, threads=t) for t in (1, 2)]
            for a, b in zip(*got):
                np.testing.assert_array_equal(a, b)
            want, want_ids = h.router(one, None, **form)
            same = (got[0][1] == want_ids).all(-1)
            self.assertGreater(same.mean(), 0.99)
            np.testing.assert_allclose(got[0][0][same], want[same], rtol=4e-6, atol=1e-12)

    def test_bad(self):
        def bad(words, shapes=((3, 8),), leave_out=(), **attributes):
            attributes = {k: v for k, v in {**h.ROUTER, **attributes}.items() if k not in leave_out}
            self.fails(words, "TopKRouter", [np.ones(s) for s in shapes], [F32] * len(shapes), [F32, I64], attributes)

        bad(["top_k is 0", "the_node"], top_k=0)
        bad(["top_k (9)", "[3,8]"], top_k=9)
        bad(["score is \"linear\"", "\"softmax\", \"sigmoid\" or \"sqrtsoftplus\""], score="linear")
        bad(["order is \"\""], order="")
        bad(["groups (3)", "8 experts"], groups=3)
        bad(["group_top_k is 3"], groups=2, group_top_k=3)
        bad(["top2_sum"], groups=8, group_top_k=8, group_score="top2_sum")
        bad(["excluded_score is 1"], excluded_score=1.0)
        bad(["renormalize is 2", "0 or 1"], renormalize=2)
        bad(["epsilon is -1"], epsilon=-1.0)
        bad(["scale is"], scale=float("inf"))
        bad(["correction_bias has shape [4]"], [(3, 8), (4,)])
        bad(["rank 0"], [()])
        for name in h.ROUTER:
            bad([name, "required", "the_node"], leave_out=[name])


class MoETest(OpTest):
    FORMS = [
        dict(h.MOE, activation=act, packing=packing, gate_up_layout=first, down_layout=second)
        for act, packing in [
            ("silu", "halves"),
            ("gelu", "interleaved"),
            ("gelu_tanh", "halves"),
            ("relu", "none"),
            ("silu", "none"),
            ("relu2", "none"),
            ("relu2", "halves"),
        ]
        for first in ("out_in", "in_out")
        for second in ("out_in", "in_out")
    ]
    FORMS.append(
        dict(
            h.MOE,
            packing="interleaved",
            gate_up_layout="in_out",
            down_layout="in_out",
            alpha=1.702,
            limit=1.0,
            up_offset=1.0,
        )
    )

    def inputs(self, shape, k, experts, inner, types, attributes, biases=(True, True), ids=None):
        x, w, _, v = types
        hidden = shape[-1]
        packed = inner * (1 if attributes["packing"] == "none" else 2)
        order = lambda out, wide, layout: (experts,) + ((out, wide) if layout == "out_in" else (wide, out))
        if ids is None:
            ids = self.rng.integers(0, experts, shape[:-1] + (k,))
        return [self.values(shape, x), self.values(shape[:-1] + (k,), w), ids,
                self.values(order(packed, hidden, attributes["gate_up_layout"]), v, hidden**-0.5),
                self.values(order(hidden, inner, attributes["down_layout"]), v, inner**-0.5),
                self.values((experts, packed), v) if biases[0] else None,
                self.values((experts, hidden), v) if biases[1] else None]

    def check(self, values, types, attributes, **more):
        x, w, i, v = types
        got, = h.run("MoE", values, [x, w, i, v, v, v, v], [x], attributes, **more)
        want = h.moe(*values, x, **attributes)
        self.assertEqual(got.shape, want.shape)
        slack = self.slack(want, x, v)
        self.assertTrue(
            (np.abs(got - want) <= slack).all(), f"{types} {attributes}: {np.abs(got - want).max(initial=0)}"
        )
        return got

    def slack(self, want, x, v):
        """How far a result may be off."""
        return 1.1 * h.EPSILON[x] * np.abs(want) + 2e-5

    def test_types_and_forms(self):
        for x in (F32, F16, BF16):
            for w in dict.fromkeys((F32, x)):
                for v in (F32, F16, BF16):
                    types = [x, w, I64, v]
                    for i, form in enumerate(self.FORMS):
                        biases = [(True, True), (False, False), (True, False), (False, True)][i % 4]
                        shape = [(5, 24), (2, 3, 40), (1, 70), (7, 1, 16)][i % 4]
                        values = self.inputs(shape, 1 + i % 3, 4, 20, types, form, biases)
                        self.check(values, types, form, constant=(3, 4) if i % 2 else ())

    def test_left_out_without_a_place(self):
        values = self.inputs((3, 8), 2, 4, 6, [F32, F32, I64, F32], h.MOE)
        for count in (5, 6):
            got, = h.run("MoE", values[:count], [F32, F32, I64, F32, F32, F32][:count], [F32], h.MOE)
            want = h.moe(*(values[:count] + [None] * (7 - count)), F32, **h.MOE)
            np.testing.assert_allclose(got, want, atol=2e-5)

    def test_routings(self):
        """An expert nobody picks, all on one, one twice for a token, no token, no expert at all for a token."""
        types = [F32, F32, I64, BF16]
        for form in (self.FORMS[0], self.FORMS[7]):
            for ids in ([[0, 1], [1, 0], [3, 1]], [[2, 2]] * 9, [[3, 3], [0, 3]], np.zeros((0, 2)), np.zeros((4, 0))):
                ids = np.array(ids)
                self.check(self.inputs((len(ids), 33), ids.shape[1], 4, 17, types, form, ids=ids), types, form)

    def test_threads_repeat(self):
        """The same bits on any number of threads, and nearly the same for a token alone."""
        for form in (self.FORMS[0], self.FORMS[3], self.FORMS[4]):
            for v in (F32, BF16):
                types = [F32, F32, I64, v]
                values = self.inputs((90, 300), 4, 8, 200, types, form)
                got = [h.run("MoE", values, [F32, F32, I64, v, v, v, v], [F32], form, threads=t)[0] for t in (1, 2, 5)]
                for other in got[1:]:
                    np.testing.assert_array_equal(got[0], other)
                alone = [a[7:8] for a in values[:3]] + values[3:]
                one, = h.run("MoE", alone, [F32, F32, I64, v, v, v, v], [F32], form)
                np.testing.assert_allclose(one, got[0][7:8], rtol=1e-4, atol=1e-4)
        self.check(values, types, form)

    def test_bad_ids(self):
        values = self.inputs((3, 8), 2, 4, 6, [F32, F32, I64, F32], h.MOE)
        for id_ in (4, -1, 10**6):
            values[2] = np.array([[0, 1], [2, id_], [3, 3]])
            self.fails(
                [f"ids has {id_}", "token 1, choice 1", "E = 4"],
                "MoE",
                values,
                [F32, F32, I64] + [F32] * 4,
                [F32],
                h.MOE,
            )

    def test_bad(self):
        types = [F32, F32, I64, F32, F32, F32, F32]
        values = self.inputs((3, 8), 2, 4, 6, [F32, F32, I64, F32], h.MOE)

        def bad(words, change=None, attributes=h.MOE):
            changed = [change.get(i, v) for i, v in enumerate(values)] if change else values
            self.fails(words, "MoE", changed, types, [F32], attributes)

        ones = np.ones
        bad(["X has shape [8]"], {0: ones(8)})
        bad(["weights [3,1]"], {1: ones((3, 1))})
        bad(["ids [2,2]"], {2: np.zeros((2, 2))})
        bad(["gate_up", "[4,12,7]"], {3: ones((4, 12, 7))})
        bad(["gate_up", "[4,11,8]"], {3: ones((4, 11, 8))})
        bad(["gate_up", "[12,8]"], {3: ones((12, 8))})
        bad(["down", "[4,6,8]"], {4: ones((4, 6, 8))})
        bad(["down", "[3,8,6]"], {4: ones((3, 8, 6))})
        bad(["gate_up_bias", "[4,6]"], {5: ones((4, 6))})
        bad(["down_bias", "[8]"], {6: ones(8)})
        for change, words in [
            (dict(activation="tanh"), ['activation is "tanh"', "relu", "the_node"]),
            (dict(packing="pairs"), ['packing is "pairs"', "interleaved"]),
            (dict(gate_up_layout=""), ["gate_up_layout"]),
            (dict(down_layout="io"), ["down_layout", "out_in"]),
            (dict(activation="relu", alpha=2.0), ["alpha is 2"]),
            (dict(limit=-1.0), ["limit is -1"]),
            (dict(packing="none", limit=1.0), ["limit is 1"]),
            (dict(packing="none", up_offset=1.0), ["up_offset is 1"]),
        ]:
            bad(words, attributes=dict(h.MOE, **change))
        for name in h.MOE:
            bad([name, "required", "the_node"], attributes={k: v for k, v in h.MOE.items() if k != name})


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
        yield (
            "NormRotary",
            [x, np.ones(width, np.float32), table, np.zeros((5, width), np.float32)],
            dict(h.NORM_ROTARY, rotary_dim=width),
            [h.norm_rotary(x, np.ones(width), table, np.zeros((5, width), np.float32), dtype)],
        )

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
