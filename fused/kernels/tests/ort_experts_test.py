"""Routers and experts through onnxruntime; ort_test.py runs them."""
import os

import numpy as np

import harness as h
from harness import BF16, F16, F32, I64
from ops import OPS
from ort_case import OpTest


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
        for types, _ in OPS["TopKRouter"].types:
            for form in self.FORMS:
                for shape in [(64,), (3, 64), (2, 3, 32), (1, 2, 1, 40)]:
                    self.check(shape, types, form)
                    self.check(shape, types, form, constant=(1,))
                self.check((5, 32), types, form, bias=False)
                self.check((0, 32), types, form, bias=False)
                self.check((2, 0, 32), types, form)

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
        bad(["top_k 9", "[3,8]"], top_k=9)
        bad(["score is \"linear\"", "\"softmax\", \"sigmoid\" or \"sqrtsoftplus\""], score="linear")
        bad(["order is \"\""], order="")
        bad(["groups 3", "[3,8]"], groups=3)
        bad(["group_top_k is 3"], groups=2, group_top_k=3)
        bad(["top2_sum"], groups=8, group_top_k=8, group_score="top2_sum")
        bad(["excluded_score is 1"], excluded_score=1.0)
        bad(["renormalize is 2", "0 or 1"], renormalize=2)
        bad(["epsilon is -1"], epsilon=-1.0)
        bad(["scale is"], scale=float("inf"))
        bad(["correction_bias has shape [4]"], [(3, 8), (4,)])
        bad(["logits has shape []"], [()])
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
        for first in OPS["MoE"].values["gate_up_layout"]
        for second in OPS["MoE"].values["down_layout"]
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
            ids = self.rng.integers(-1, experts, shape[:-1] + (k,))
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

    def test_products_in_bfloat16(self):
        """MOJO_CPU_PRODUCTS=bfloat16 rounds x and the activations. Near a tie, they round to the other side."""
        if h.device() != "cpu":
            self.skipTest("a variable of the CPU kernels")
        rounds = h.multiplies_bfloat16()
        self.addCleanup(os.environ.pop, "MOJO_CPU_PRODUCTS", None)
        narrow = lambda v: v.astype(np.float32).astype(BF16).astype(np.float64)
        for i, form in enumerate(self.FORMS):
            shape, k, experts, inner = [((90, 48), 2, 3, 75), ((5, 70), 1, 4, 33), ((40, 64), 2, 2, 150)][i % 3]
            types = [F32, F32, I64, BF16]
            values = self.inputs(shape, k, experts, inner, types, form, [(True, True), (False, False)][i % 2])
            x, w, ids, v = types
            got = {}
            for products in ("exact", "bfloat16"):
                os.environ["MOJO_CPU_PRODUCTS"] = products
                got[products], = h.run("MoE", values, [x, w, ids, v, v, v, v], [x], form, threads=2)
            if not rounds:
                np.testing.assert_array_equal(got["exact"], got["bfloat16"])
                continue
            want = h.moe(*values, x, **form, narrow=narrow)
            off, exact = (np.abs(y - want).mean() for y in (got["bfloat16"], got["exact"]))
            self.assertLess(off, exact / 10, f"{form}: {off}, {exact} without rounding")

    def test_types_and_forms(self):
        for (*types, _, _, _), _ in OPS["MoE"].types:
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
        """An unused expert, all on one, one twice for a token, no token, no choices, no expert for some or all."""
        types = [F32, F32, I64, BF16]
        for form in (self.FORMS[0], self.FORMS[7]):
            for ids in ([[0, 1], [1, 0], [3, 1]], [[2, 2]] * 9, [[3, 3], [0, 3]], np.zeros((0, 2)), np.zeros((4, 0)),
                        [[-1, 2]], [[-1, -1]], [[-1, 1], [-1, -1], [3, -1]]):
                ids = np.array(ids)
                values = self.inputs((len(ids), 33), ids.shape[1], 4, 17, types, form, ids=ids)
                values[1] = np.where(ids < 0, np.nan, values[1])  # not read
                self.check(values, types, form)

    def test_threads_repeat(self):
        """The same bits on any number of threads, and nearly the same for a single token."""
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
        for id_ in (4, -2, 10**6):
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
        bad(["X [8]"], {0: ones(8)})
        bad(["ids has shape [3,2]", "weights [3,1]"], {1: ones((3, 1))})
        bad(["ids [2,2]", "as many ids as tokens"], {2: np.zeros((2, 2))})
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
