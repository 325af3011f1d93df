"""PagedAttention through onnxruntime; ort_test.py runs it."""
import unittest

import numpy as np

import harness as h
from formulas import apart, paged_attention
from harness import BF16, F16, F32, I32
from ops import OPS
from ort_case import OpTest

NAMES = OPS["PagedAttention"].inputs
ATTRIBUTES = dict(scale=0.3, causal=1, window=0, softcap=0.0, head_order="blocked")


class PagedAttentionTest(OpTest):
    """PagedAttention beyond the forms: any sizes, the same bits in any batch, pools in place, wrong numbers."""

    op = "PagedAttention"

    def setUp(self):
        super().setUp()
        if h.device() not in OPS[self.op].devices or not h.in_library(OPS[self.op]):
            self.skipTest(f"the library has no {self.op}")

    def step(self, past, added, heads=4, key_heads=2, width=16, value_width=16, block=16, dtype=F32):
        """Inputs by name: sequences in blocks in any order, with NaN in unused rows of the pools."""
        used = [-(-(p + n) // block) for p, n in zip(past, added)]
        blocks, most = self.rng.permutation(sum(used) + 2), max(used) + 1
        table, ends = np.full((len(past), most), -1), np.cumsum(used)
        for row, end, n in zip(table, ends, used):
            row[:n] = blocks[end - n:end]
        cum, tokens = np.concatenate([[0], np.cumsum(added)]), sum(added)
        values = {"q": self.values((tokens, heads, width), dtype), "k": self.values((tokens, key_heads, width), dtype),
                  "v": self.values((tokens, key_heads, value_width), dtype)}
        for name, w in (("key_cache", width), ("value_cache", value_width)):
            pool = np.full((len(blocks), block, key_heads, w), np.nan)
            for row, n in zip(table, past):
                for i, at in enumerate(row[:-(-n // block)]):
                    rows = min(block, n - i * block)
                    pool[at, :rows] = self.values((rows, key_heads, w), dtype)
            values[name] = pool
        return values | {"cumulative_sequence_length": cum, "past_seqlens": np.array(past), "block_table": table}

    def run_step(self, inputs, attributes, dtype=F32, threads=1):
        values = [inputs.get(name) for name in NAMES]
        types = [F32 if n == "sink" else I32 if i >= 5 else dtype for i, n in enumerate(NAMES)]
        return h.run("PagedAttention", values, types, [dtype] * 3, attributes, threads=threads)

    def alone(self, inputs, b):
        """The inputs of one sequence."""
        cum = inputs["cumulative_sequence_length"]
        new = slice(cum[b], cum[b + 1])
        one = dict(inputs, cumulative_sequence_length=np.array([0, cum[b + 1] - cum[b]]),
                   past_seqlens=inputs["past_seqlens"][b:b + 1], block_table=inputs["block_table"][b:b + 1])
        return one | {n: inputs[n][new] for n in ("q", "k", "v")}, new

    def test_any_sizes(self):
        pick = lambda *values: values[self.rng.integers(len(values))]
        for number in range(60):
            batch, key_heads, group = pick(1, 2, 5), pick(1, 2, 3), pick(1, 3, 4)
            dtype = (F32, F16, BF16)[number % 3]
            inputs = self.step(self.rng.integers(0, pick(5, 90, 700), batch), [pick(0, 1, 1, 3, 20, 70)
                               for _ in range(batch)], key_heads * group, key_heads, pick(8, 33, 64, 128),
                               pick(7, 64, 80), pick(1, 3, 16, 64, 256), dtype)
            attributes = dict(scale=inputs["q"].shape[2]**-0.5, causal=pick(0, 1, 1), window=pick(0, 0, 2, 40),
                              softcap=pick(0.0, 2.0), head_order=pick("blocked", "cyclic"))
            if number % 4 == 0:
                inputs["sink"] = self.rng.standard_normal(key_heads * group)
            wants = paged_attention(*(inputs.get(n) for n in NAMES), dtype, **attributes)
            for got, want in zip(self.run_step(inputs, attributes, dtype, pick(1, 3)), wants):
                bound = 8 * h.EPSILON[dtype] * np.nanmax(np.abs(want), initial=0)
                self.assertTrue(np.all((apart(got, want) <= bound) | (np.isnan(got) & np.isnan(want))),
                                f"{dtype} {attributes} {[np.shape(v) for v in inputs.values()]}")

    def test_same_bits(self):
        """A sequence gets the same bits alone and in a batch, with one thread and with three."""
        for attributes, dtype in ((ATTRIBUTES, F32), (dict(ATTRIBUTES, window=300, softcap=3.0), F16)):
            inputs = self.step([900, 0, 64, 1, 2000, 127, 700, 5], [1, 1, 40, 1, 1, 3, 100, 1], 6, 2, 64, 64, 16, dtype)
            whole, *_ = self.run_step(inputs, attributes, dtype)
            np.testing.assert_array_equal(self.run_step(inputs, attributes, dtype, 3)[0], whole)
            for b in range(len(inputs["past_seqlens"])):
                one, new = self.alone(inputs, b)
                for threads in (1, 3):
                    np.testing.assert_array_equal(self.run_step(one, attributes, dtype, threads)[0], whole[new])

    def test_freed_blocks(self):
        """A block before the window of a sequence's first new token may be any: here one of NaN."""
        for number in range(48):
            dtype, block, window = (F32, F16, BF16)[number % 3], (1, 4, 16, 64)[number % 4], (1, 7, 90)[number // 4 % 3]
            past = [0, window, 3 * window + number, 250]
            inputs = self.step(past, [[1, 1, 1, 1], [5, 40, 1, 20]][number % 2], 4, 2, 64, 64, block, dtype)
            table, run = inputs["block_table"], lambda: self.run_step(inputs, dict(ATTRIBUTES, window=window), dtype)
            want, spare = run(), min(set(range(len(inputs["key_cache"]))) - set(table.flat))
            for row, n in zip(table, past):
                row[:max(0, n - window + 1) // block] = spare
            for got, before in zip(run(), want):
                np.testing.assert_array_equal(got, before, str(number))

    def bound(self, inputs, attributes):
        """Runs a node with the pools bound over themselves, and returns a function that returns the pools."""
        values = [inputs.get(name) for name in NAMES]
        info, helper = h.helper.make_tensor_value_info, h.helper
        names = [n if v is not None else "" for n, v in zip(NAMES, values)]
        outputs = OPS["PagedAttention"].outputs
        kinds = [1 if i < 5 or n == "sink" else 6 for i, n in enumerate(NAMES)]
        graph = helper.make_graph(
            [helper.make_node("PagedAttention", names, outputs, domain="mojo", **attributes)], "g",
            [info(n, kind, [None] * np.ndim(v)) for n, v, kind in zip(NAMES, values, kinds) if v is not None],
            [info(n, 1, None) for n in outputs])
        session = h.session(helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)]), threads=2)
        binding, held = session.io_binding(), {}
        for name, value, kind in zip(NAMES, values, kinds):
            if value is not None:
                value = np.ascontiguousarray(value, np.float32 if kind == 1 else np.int32)
                held[name] = h.ort.OrtValue.ortvalue_from_numpy(value)
                binding.bind_ortvalue_input(name, held[name])
        binding.bind_output("Y")
        for name in ("key_cache", "value_cache"):
            binding.bind_ortvalue_output(name + "_out", held[name])
        return (lambda: (session.run_with_iobinding(binding), binding.copy_outputs_to_cpu()[0])[1],
                lambda: [np.array(held[n].numpy()) for n in ("key_cache", "value_cache")])

    def test_in_place(self):
        for past, added in (([40, 3, 0], [1, 1, 1]), ([100, 0], [30, 5])):
            inputs = self.step(past, added)
            run, pools = self.bound(inputs, ATTRIBUTES)
            y, wants = run(), self.run_step(inputs, ATTRIBUTES)
            for got, want in zip([y, *pools()], wants):
                np.testing.assert_array_equal(got, want)

    def test_errors(self):
        """Wrong numbers are errors before anything is written."""
        inputs = self.step([20, 5], [2, 1])
        pool, row = len(inputs["key_cache"]) * 16, lambda b: inputs["block_table"][b].copy()
        shared = np.array([[row(0)[0], row(0)[1], -1], [row(0)[1], -1, -1]])
        changes = [
            ("cumulative_sequence_length", [1, 2, 3], ["element 0", "is 1", "begin with 0"]),
            ("cumulative_sequence_length", [0, 2, 1], ["element 2", "is 1 after 2"]),
            ("cumulative_sequence_length", [0, 2, 2], ["element 2", "is 2", "end with 3"]),
            ("cumulative_sequence_length", [0, -2, 3], ["element 1", "is -2"]),
            ("past_seqlens", [20, -1], ["past_seqlens of sequence 1 is -1"]),
            ("past_seqlens", [47, 5], ["past_seqlens of sequence 0 is 47", "3 blocks of 16"]),
            ("past_seqlens", [2**31 - 1, 5], ["past_seqlens of sequence 0"]),
            ("past_seqlens", [30, 16], ["block 1 of sequence 1", "is -1"]),
            ("block_table", [row(0), [pool // 16, -1, -1]], ["block 0 of sequence 1", f"is {pool // 16}"]),
            ("block_table", [row(0), [-(2**31), -1, -1]], ["block 0 of sequence 1"]),
            ("block_table", shared, ["two tokens are written to row", "block_table"]),
            ("slot_mapping", [1, 2, pool], [f"slot_mapping of token 2 is {pool}"]),
            ("slot_mapping", [1, -1, 1], ["two tokens are written to row 1", "slot_mapping"]),
            ("block_table", np.zeros((3, 3)), ["block_table has shape [3,3]"]),
        ]
        for name, value, words in changes:
            given = dict(inputs, **{name: np.array(value)})
            if words[0].startswith("two tokens") and name == "block_table":
                given["past_seqlens"] = np.array([16, 1])
            run, pools = self.bound(given, ATTRIBUTES)
            before = pools()
            with self.assertRaises(Exception) as caught:
                run()
            for word in ["mojo.PagedAttention", *words]:
                self.assertIn(word, str(caught.exception))
            for a, b in zip(pools(), before):
                np.testing.assert_array_equal(a, b)


if __name__ == "__main__":
    unittest.main()
