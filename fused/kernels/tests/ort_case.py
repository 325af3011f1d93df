"""Helpers of the tests of ops through onnxruntime: values, tolerances, shapes."""
import unittest

import numpy as np

import harness as h
from harness import F16, F32
from ops import OPS


def norm_types():
    """X, scale, Y, values of scale_after_cast: the types that the catalogue declares for a norm."""
    afters = {}
    for attributes, _, _, types, out_types in OPS["RMSNorm"].cases():
        afters.setdefault((*types, *out_types), set()).add(attributes["scale_after_cast"])
    return [(*types, sorted(values)) for types, values in afters.items()]


NORM_TYPES = norm_types()
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
