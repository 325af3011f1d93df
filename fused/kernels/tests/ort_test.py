"""Tests libmojo_ops through onnxruntime: python ort_test.py LIBRARY [unittest arguments]."""
import os
import sys
import threading
import unittest

import numpy as np
from onnx import helper

import harness as h
from formulas import FORMULAS, PAGED, apart, paged_inputs, random_codes, sampling_input, spread
from harness import BF16, F16, F32, I8, I32, I64, U8
from ops import OPS
from ort_attention_test import AttentionTest, LatentAttentionTest  # unittest finds them here
from ort_case import OpTest
from ort_codes_test import QPagedAttentionTest
from ort_experts_test import MoETest, TopKRouterTest
from ort_norm_test import GLUTest, RMSNormTest
from ort_paged_test import PagedAttentionTest
from ort_rotary_test import NormRotaryTest, RotaryEmbeddingTest


@unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""), "runtime_test runs every form under the sanitizers")
class EveryOpTest(OpTest):
    """Every op in every form and combination of types that the catalogue has, against its formula."""

    def inputs(self, op, shapes, types, ordered):
        """Random values; integers are experts, of which the forms have more than three. If an op returns an order, no
        two elements of a row are close, and later inputs move them little.
        """
        values, paged = [], iter(paged_inputs(self.rng, shapes) if op.name in PAGED else ())
        for name, shape, dtype in zip(op.inputs, shapes, types):
            if shape is None:
                values.append(None)
            elif dtype == I32:
                values.append(next(paged))
            elif (drawn := sampling_input(self.rng, name, shape)) is not None:
                values.append(drawn)
            elif dtype == I64:
                values.append(self.rng.integers(0, 3, shape))
            elif name == "zero":
                values.append(np.zeros(shape))
            elif dtype in (I8, U8):
                values.append(random_codes(self.rng, name, shape, dtype))
            elif ordered and not values:
                rows = [self.rng.permutation(shape[-1]) for _ in range(int(np.prod(shape[:-1])))]
                values.append((np.reshape(rows, shape) - shape[-1] / 2) * 0.125)
            else:
                values.append(self.values(shape, dtype, 0.01 if ordered else spread(name)))
        return values

    def test_forms(self):
        """If another library links the objects of the CPU kernels, one form of each combination of types is enough."""
        few = h.device() == "cpu" and not os.path.basename(h.library).startswith("libmojo_ops.")
        for name, op in OPS.items():
            if h.device() not in op.devices or not h.in_library(op):
                continue
            formula, tried = FORMULAS[name], []
            for attributes, shapes, out_shapes, types, out_types in op.cases():
                if not op.on_every(h.device(), attributes):
                    continue
                values = self.inputs(op, shapes, types, I64 in out_types)  # the same for every library
                if few and (types, out_types) in tried:
                    continue
                tried.append((types, out_types))
                wants = formula.compute(out_types, *values, **attributes)
                gots = h.run(name, values, types, out_types, attributes)
                bounds = formula.bounds(wants, out_types, *values, **attributes)
                for got, want, bound, shape in zip(gots, wants, bounds, out_shapes, strict=True):
                    self.assertEqual((got.shape, want.shape), (tuple(shape), tuple(shape)))
                    self.assertTrue(np.all(apart(got, want) <= bound), f"{name} {types} {attributes}: differs by "
                                    f"{apart(got, want).max(initial=0)}, {np.max(bound, initial=0)} allowed")


class LinearTest(OpTest):
    """Linear and Embedding beyond the forms: constant weights, threads, many rows, and errors."""

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


class BFloatProductsTest(OpTest):
    """MOJO_CPU_PRODUCTS=bfloat16 rounds X of products with weights in bfloat16, if the processor multiplies it."""

    def setUp(self):
        super().setUp()
        if h.device() != "cpu" or not h.in_library(OPS["HalfLinear"]):
            self.skipTest("the library has no HalfLinear")
        self.addCleanup(os.environ.pop, "MOJO_CPU_PRODUCTS", None)

    def test_sizes(self):
        for rows, k, n in [(1, 70, 37), (3, 1040, 300), (19, 33, 100), (300, 576, 130), (0, 8, 4), (3, 0, 4)]:
            for layout in ("out_in", "in_out"):
                for x, v in [(F32, BF16), (F16, BF16), (BF16, BF16), (F32, F16)]:
                    w = self.values((n, k) if layout == "out_in" else (k, n), v)
                    values, y = [self.values((rows, k), x), w, self.values((n,), x)], {}
                    for p in ("", "exact", "bfloat16"):
                        os.environ["MOJO_CPU_PRODUCTS"] = p
                        y[p], = h.run("HalfLinear", values, [x, v, x], [x], {"layout": layout}, (1,), threads=3)
                    np.testing.assert_array_equal(y[""], y["exact"])
                    if v != BF16 or not h.multiplies_bfloat16():
                        np.testing.assert_array_equal(y["bfloat16"], y["exact"])
                        continue
                    values[0] = values[0].astype(np.float32).astype(BF16).astype(np.float64)
                    want, = FORMULAS["HalfLinear"].compute([x], *values, layout=layout)
                    bound = 8 * h.EPSILON[x] * np.abs(want).max(initial=0)
                    self.assertLessEqual(np.abs(y["bfloat16"] - want).max(initial=0), bound, f"{rows}x{k}x{n} {layout}")


class InPlaceTest(OpTest):
    """Outputs over their inputs' memory, unless another node reads the inputs."""

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
        """A body of RMSNorm that is wrong on purpose (only the scale), to see which of both ran."""
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
