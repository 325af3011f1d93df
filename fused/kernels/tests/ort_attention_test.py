"""Attention and LatentAttention through onnxruntime; ort_test.py runs them."""
import numpy as np
from onnx import helper

import harness as h
from formulas import FORMULAS, apart
from harness import BF16, F16, F32, I64
from ops import OPS
from ort_case import OpTest


class AttentionTest(OpTest):
    """Attention beyond the forms: any sizes, padding on either side, the cache in place."""
    device = "cpu"  # of the cache
    reads_lengths = True  # so that wrong ones are errors

    def setUp(self):
        super().setUp()
        if not h.in_library(OPS["Attention"]):
            self.skipTest("the library has no Attention")

    def check(self, inputs, attributes, dtype=F32, leave_out=0):
        """Runs one node and compares it with the formula. inputs maps names to the given inputs."""
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
            self.check(inputs, attributes, OPS["Attention"].first_types[number % 3], leave_out=pick(0, 0, 1, 2))

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
        for dtype in OPS["Attention"].first_types:
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
        """Runs a node with the cache bound over itself, and returns the result and the two buffers."""
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
        """New rows are written over the buffers; elements behind them are neither read nor written."""
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
            ({"q": np.zeros((2, 6, 8))}, ["q has shape [2,6,8]", "[B,H,S,D]"]),
            ({"q": np.zeros((2, 5, 3, 8))}, ["divides", "q [2,5,3,8]"]),
            ({"v": np.zeros((2, 2, 4, 5))}, ["v has shape [2,2,4,5]", "[2,2,3,Dv]"]),
            ({"past_key": np.zeros((2, 2, 4, 7))}, ["past_key has shape [2,2,4,7]", "[2,2,4,8]"]),
            ({"past_value": np.zeros((2, 2, 3, 5))}, ["past_value has shape [2,2,3,5]", "[2,2,4,5]"]),
            ({"past_value": None}, ["past_key and past_value, or neither"]),
            ({"key_valid": np.ones((2, 6))}, ["key_valid has shape [2,6]", "[2,>=7]"]),
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
    """LatentAttention beyond the forms: any sizes, for both ways to compute it, and lengths of a cache."""
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
            dtype = op.first_types[number % 3]
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
            (dict(key_valid=np.ones((2, 6))), ["key_valid has shape [2,6]", "[2,>=7]"]),
        ]
        for changed, words in (wrong_lengths if self.reads_lengths else []) + [
            (dict(w=np.ones((56, 16))), ["w has shape [56,16]", "[16,O]"]),
            (dict(k_pe=np.ones((2, 4, 3, 4))), ["k_pe has shape [2,4,3,4]", "[2,1,3,R]"]),
            (dict(past=np.ones((2, 4, 7, 12))), ["past has shape [2,4,7,12]", "[2,1,P,20]"]),
            (dict(past_length=np.array([1, 1, 1])), ["past_length has shape [3]", "[1] or [2]"]),
            (dict(past=np.ones((2, 1, 2, 20))), ["no more tokens of c than past has room for", "here 3 and 2"]),
            (dict(past=None), ["past_length only with past"]),
        ]:
            values = [dict(good, **changed).get(name) for name in op.inputs]
            self.fails(["LatentAttention"] + words, "LatentAttention", values, op.types[0][0], [F32] * 2, attributes)
