"""QPagedAttention through onnxruntime; ort_test.py runs it."""
import numpy as np

import harness as h
from formulas import FORMULAS, apart
from harness import BF16, F8, F16, F32, I8, I32
from ops import OPS
from ort_paged_test import ATTRIBUTES
from ort_paged_test import PagedAttentionTest as Paged

NAMES = OPS["QPagedAttention"].inputs


class QPagedAttentionTest(Paged):
    """The tests of PagedAttention with pools of codes, and steps that follow each other."""

    op = "QPagedAttention"

    def coded(self, inputs, codes):
        """The inputs with codes for the rows of the pools that are read. Other blocks have no scale."""
        inputs = dict(inputs)
        for name in ("key", "value"):
            pool = inputs[f"{name}_cache"]
            used = ~np.isnan(pool).all(axis=(1, 3))
            inputs[f"{name}_scale"] = np.where(used, 2.0**self.rng.integers(-8, -5, used.shape), np.nan)
            values = np.clip(np.round(self.rng.standard_normal(pool.shape) * 40), -127, 127)
            inputs[f"{name}_cache"] = values if codes == I8 else np.where(np.isnan(pool), np.nan, h.rounded(values, F8))
        return inputs

    def run_codes(self, inputs, codes, attributes, dtype, threads=1):
        types = [I32 if n in NAMES[5:8] + ["slot_mapping"] else codes if n.endswith("_cache") else
                 dtype if n in NAMES[:3] else F32 for n in NAMES]
        return h.run(self.op, [inputs.get(n) for n in NAMES], types, [dtype, codes, codes, F32, F32], attributes,
                     threads=threads)

    def test_any_sizes(self):
        pick = lambda *values: values[self.rng.integers(len(values))]
        for number in range(60):
            batch, key_heads, group = pick(1, 2, 5), pick(1, 2, 3), pick(1, 3, 4)
            dtype, codes = (F32, F16, BF16)[number % 3], (I8, F8)[number % 2]
            inputs = self.coded(self.step(self.rng.integers(0, pick(5, 90, 700), batch), [pick(0, 1, 1, 3, 20, 70)
                                for _ in range(batch)], key_heads * group, key_heads, pick(8, 33, 64, 128),
                                pick(7, 64, 80), pick(1, 3, 16, 64, 256), dtype), codes)
            attributes = dict(scale=inputs["q"].shape[2]**-0.5, causal=pick(0, 1, 1), window=pick(0, 0, 2, 40),
                              softcap=pick(0.0, 2.0), head_order=pick("blocked", "cyclic"))
            if number % 4 == 0:
                inputs["sink"] = self.rng.standard_normal(key_heads * group)
            types = [dtype, codes, codes, F32, F32]
            wants = FORMULAS[self.op].compute(types, *(inputs.get(n) for n in NAMES), **attributes)
            got = self.run_codes(inputs, codes, attributes, dtype, pick(1, 3))
            bound = 8 * h.EPSILON[dtype] * np.abs(wants[0]).max(initial=0)
            off = apart(got[0], wants[0])
            self.assertTrue(np.all(off <= bound), f"{dtype} {codes} {attributes}: {off.max(initial=0)}, not {bound}")
            for a, b in zip(got[1:], wants[1:]):
                np.testing.assert_array_equal(a, np.asarray(b, np.float32))

    def test_same_bits(self):
        """A sequence gets the same bits and the same codes alone and in a batch, with one thread and with three."""
        for attributes, dtype, codes in ((ATTRIBUTES, F32, I8), (dict(ATTRIBUTES, window=300, softcap=3.0), F16, F8)):
            inputs = self.coded(self.step([900, 0, 64, 1, 2000, 127, 700, 5], [1, 1, 40, 1, 1, 3, 100, 1], 6, 2, 64, 64,
                                          16, dtype), codes)
            whole = self.run_codes(inputs, codes, attributes, dtype)
            np.testing.assert_array_equal(self.run_codes(inputs, codes, attributes, dtype, 3)[0], whole[0])
            for b in range(len(inputs["past_seqlens"])):
                one, new = self.alone(inputs, b)
                own = [i for i in one["block_table"][0] if i >= 0]
                for threads in (1, 3):
                    got = self.run_codes(one, codes, attributes, dtype, threads)
                    np.testing.assert_array_equal(got[0], whole[0][new])
                    for a, c in zip(got[1:], whole[1:]):
                        np.testing.assert_array_equal(a[own], c[own])

    def test_growth(self):
        """Rows that are written one by one, each greater than those before, stay within a step of their block's scale,
        and codes that did not move are as those of one step."""
        for codes, dtype in ((I8, F32), (F8, BF16)):
            inputs = self.step([0], [13], 2, 1, 24, 24, 16, dtype)
            grows = 1.5**np.arange(13)[:, None, None]
            inputs |= {n: h.rounded(inputs[n] * grows, dtype) for n in "kv"}
            inputs = self.coded(inputs, codes)
            at = inputs["block_table"][0, 0]
            once = self.run_codes(inputs, codes, ATTRIBUTES, dtype)
            step = dict(inputs)
            for i in range(13):
                step |= {n: inputs[n][i:i + 1] for n in "qkv"}
                step |= {"cumulative_sequence_length": np.array([0, 1]), "past_seqlens": np.array([i])}
                _, *pools = self.run_codes(step, codes, ATTRIBUTES, dtype)
                step |= dict(zip(("key_cache", "value_cache", "key_scale", "value_scale"), pools))
            for k, pool, scale in zip("kv", pools[:2], pools[2:]):
                np.testing.assert_array_equal(scale[at], once[3 if k == "k" else 4][at])
                s, want = scale[at][None, :, None], inputs[k]
                allowed = s if codes == I8 else np.abs(want) / 16 + s / 512
                self.assertTrue(np.all(np.abs(pool[at, :13] * s - want) <= allowed))

    def test_in_place(self):
        """The forms run in place in the runtime's test."""

    def test_errors(self):
        """Wrong numbers are errors that name the op."""
        inputs = self.coded(self.step([20, 5], [2, 1]), I8)
        for name, value, words in [("past_seqlens", [20, -1], ["past_seqlens of sequence 1 is -1"]),
                                   ("slot_mapping", [1, -1, 1], ["two tokens are written to row 1", "slot_mapping"]),
                                   ("key_scale", inputs["key_scale"][:1], ["key_scale has shape [1,2]"])]:
            with self.assertRaises(Exception) as caught:
                self.run_codes(dict(inputs, **{name: np.array(value)}), I8, ATTRIBUTES, F32)
            for word in ["mojo.QPagedAttention", *words]:
                self.assertIn(word, str(caught.exception))
