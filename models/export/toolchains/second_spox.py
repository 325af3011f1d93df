"""The second set of spox: norms, gated units and rotary embeddings with the operators of opsets 17 to 24; numpy gives
their outputs."""

import importlib

import numpy as np
from spox import Tensor, argument, build, inline
from spox._function import to_function

from cases import Cases, Weights, angles, f16, f32, i32
from spox_models import gelu, gelu_tanh, inverse, rms, sigmoid, silu, turned

CASES = Cases()
D, F, H, W = 16, 24, 4, 8
x3 = {"x": f32("B", "S", D)}
placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}


class Ops:
    """The operators of one opset, with what scripts around them call by shorter names."""

    def __init__(self, version):
        self.version = version
        self.module = importlib.import_module(f"spox.opset.ai.onnx.v{version}")

    def __getattr__(self, name):
        return getattr(self.module, name)

    def c(self, a, dtype=np.float32):
        return self.module.const(np.asarray(a, dtype))

    def ints(self, *v):
        return self.module.const(np.array(v, np.int64))

    def mean(self, x, *axes):
        axes = axes or (-1,)
        if self.version < 18:
            return self.module.reduce_mean(x, axes=axes, keepdims=1)
        return self.module.reduce_mean(x, self.ints(*axes), keepdims=1)

    def total(self, x, axis=-1, keepdims=1):
        return self.module.reduce_sum(x, self.ints(axis), keepdims=keepdims)

    def root(self, x, eps=1e-6, *axes):
        """The root of the mean square."""
        return self.module.sqrt(self.module.add(self.mean(self.module.mul(x, x), *axes), self.c(eps)))

    def silu(self, x):
        return self.module.mul(x, self.module.sigmoid(x))


def case(name, version, form, golden, shapes=x3, **blocks):
    """Adds a model: form is a function of the operators and the inputs, golden one of numpy's."""
    CASES(name, **blocks)(lambda: ((lambda *args: form(Ops(version), *args)), golden, shapes))


S, B = Weights("second").scale(D), Weights("second").bias(D)


def norm(name, version, form, golden=lambda x: rms(x, S), shapes=x3, rmsnorm=1, **blocks):
    case(name, version, form, golden, shapes, rmsnorm=rmsnorm, **blocks)


def axes_rms(x, s, axes, eps=1e-6):
    return x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axes, keepdims=True) + eps) * s


def layer(x, eps=1e-5):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + eps)


norm("norm-17", 17, lambda o, x: o.mul(o.mul(x, o.reciprocal(o.root(x))), o.c(S)))
norm("norm-19", 19, lambda o, x: o.div(o.mul(x, o.c(S)), o.root(x)))
norm("norm-op-23", 23, lambda o, x: o.rmsnormalization(x, o.c(S), epsilon=1e-6))
norm(
    "norm-op-23-heads",
    23,
    lambda o, x: o.rmsnormalization(x, o.c(S[:W]), axis=-1, epsilon=1e-6),
    lambda x: rms(x, S[:W]),
    {"x": f32("B", "S", H, W)},
)
norm(
    "norm-sum-of-squares",
    18,
    lambda o, x: o.mul(
        o.c(S),
        o.div(
            x,
            o.sqrt(
                o.add(
                    o.div(
                        o.reduce_sum_square(x, o.ints(-1)),
                        o.cast(o.slice(o.shape(x), o.ints(-1), o.ints(9)), to=np.float32),
                    ),
                    o.c(1e-6),
                )
            ),
        ),
    ),
)
norm("norm-plain", 20, lambda o, x: o.div(x, o.root(x)), lambda x: rms(x, 1))
norm("norm-one-plus", 22, lambda o, x: o.mul(o.div(x, o.root(x)), o.add(o.c(B), o.c(1.0))), lambda x: rms(x, 1 + B))
norm(
    "norm-channels-first",
    20,
    lambda o, x: o.mul(o.div(x, o.root(x, 1e-6, 1)), o.c(S[:, None])),
    lambda x: axes_rms(x, S[:, None], 1),
    {"x": f32("B", D, "S")},
)
norm(
    "norm-two-axes",
    21,
    lambda o, x: o.mul(o.div(x, o.root(x, 1e-6, -2, -1)), o.c(S.reshape(2, 8))),
    lambda x: axes_rms(x, S.reshape(2, 8), (-2, -1)),
    {"x": f32("B", 2, 8)},
)
norm(
    "norm-fp16",
    18,
    lambda o, x: o.cast(
        o.mul(o.div(o.cast(x, to=np.float32), o.root(o.cast(x, to=np.float32))), o.c(S)), to=np.float16
    ),
    shapes={"x": f16("B", "S", D)},
)
norm(
    "norm-fp16-scale",
    21,
    lambda o, x: o.mul(
        o.cast(o.div(o.cast(x, to=np.float32), o.root(o.cast(x, to=np.float32))), to=np.float16), o.c(S, np.float16)
    ),
    shapes={"x": f16("B", "S", D)},
)
norm(
    "norm-transposed",
    19,
    lambda o, x: o.transpose(
        o.mul(o.div(o.transpose(x, perm=(0, 2, 1)), o.root(o.transpose(x, perm=(0, 2, 1)), 1e-6, 1)), o.c(S[:, None])),
        perm=(0, 2, 1),
    ),
)
norm(
    "norm-rows",
    17,
    lambda o, x: o.reshape(
        (lambda r: o.mul(o.div(r, o.root(r, 1e-6, 1)), o.c(S)))(o.reshape(x, o.ints(-1, D))), o.shape(x)
    ),
)
norm(
    "near-norm-max-of-epsilon",
    18,
    lambda o, x: o.mul(o.div(x, o.sqrt(o.max([o.mean(o.mul(x, x)), o.c(1e-6)]))), o.c(S)),
    lambda x: x / np.sqrt(np.maximum((x**2).mean(-1, keepdims=True), 1e-6)) * S,
    rmsnorm=0,
)
norm(
    "near-norm-lp",
    22,
    lambda o, x: o.mul(o.lp_normalization(x, axis=-1, p=2), o.c(S)),
    lambda x: x / np.sqrt((x**2).sum(-1, keepdims=True)) * S,
    rmsnorm=0,
)
norm(
    "near-norm-of-other",
    21,
    lambda o, x, y: o.mul(o.div(x, o.root(y)), o.c(S)),
    lambda x, y: x / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6) * S,
    {"x": f32("B", "S", D), "y": f32("B", "S", D)},
    0,
)
norm(
    "norm-in-if",
    21,
    lambda o, x: o.if_(
        o.greater(o.reduce_sum(x, keepdims=0), o.c(0.0)),
        then_branch=lambda: [o.mul(o.div(x, o.root(x)), o.c(S))],
        else_branch=lambda: [o.neg(x)],
    )[0],
    lambda x: rms(x, S) if x.sum() > 0 else -x,
)
norm(
    "norm-in-scan",
    21,
    lambda o, x: o.scan([x], body=lambda r: [o.mul(o.div(r, o.root(r)), o.c(S))], num_scan_inputs=1)[0],
)
case(
    "norm-layernorm-17",
    17,
    lambda o, x: o.add(o.mul(o.div(o.sub(x, o.mean(x)), o.root(o.sub(x, o.mean(x)), 1e-5)), o.c(S)), o.c(B)),
    lambda x: layer(x) * S + B,
    layernorm=1,
)
case(
    "norm-layernorm-squares",
    18,
    lambda o, x: o.mul(
        o.div(o.sub(x, o.mean(x)), o.sqrt(o.add(o.sub(o.mean(o.mul(x, x)), o.pow(o.mean(x), o.c(2.0))), o.c(1e-5)))),
        o.c(S),
    ),
    lambda x: layer(x) * S,
    layernorm=1,
)


def gate(name, version, unit, activation=silu, glu=1, up=lambda u: u):
    @CASES(name, glu=glu)
    def _():
        w, o = Weights(name), Ops(version)
        wg, wu, wd = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
        return (
            lambda x: o.matmul(unit(o, o.matmul(x, o.c(wg)), o.matmul(x, o.c(wu))), o.c(wd)),
            lambda x: (activation(x @ wg) * up(x @ wu)) @ wd,
            x3,
        )


gate("gate-17", 17, lambda o, g, u: o.mul(u, o.silu(g)))
gate("gate-swish-24", 24, lambda o, g, u: o.mul(o.swish(g), u))
gate("gate-swish-alpha-24", 24, lambda o, g, u: o.mul(o.swish(g, alpha=1.702), u), lambda g: g * sigmoid(1.702 * g))
gate(
    "gate-gelu-17",
    17,
    lambda o, g, u: o.mul(o.mul(o.mul(o.add(o.erf(o.div(g, o.sqrt(o.c(2.0)))), o.c(1.0)), g), o.c(0.5)), u),
    gelu,
)
gate("gate-gelu-23", 23, lambda o, g, u: o.mul(o.gelu(g, approximate="tanh"), u), gelu_tanh)
gate(
    "gate-tanh-poly",
    19,
    lambda o, g, u: o.mul(
        o.mul(
            o.mul(o.c(0.5), g),
            o.add(
                o.tanh(o.mul(o.mul(g, o.c(0.7978845608)), o.add(o.mul(o.mul(g, g), o.c(0.044715)), o.c(1.0)))), o.c(1.0)
            ),
        ),
        u,
    ),
    gelu_tanh,
)
gate(
    "gate-clamped",
    21,
    lambda o, g, u: o.mul(o.silu(o.min([g, o.c(2.0)])), o.clip(u, o.c(-2.0), o.c(2.0))),
    lambda g: silu(np.minimum(g, 2)),
    up=lambda u: np.clip(u, -2, 2),
)
gate(
    "gate-quick-plus-one",
    22,
    lambda o, g, u: o.mul(o.mul(g, o.sigmoid(o.mul(g, o.c(1.702)))), o.add(u, o.c(1.0))),
    lambda g: g * sigmoid(1.702 * g),
    up=lambda u: u + 1,
)
gate("gate-negative-exp", 18, lambda o, g, u: o.div(o.mul(g, u), o.add(o.exp(o.mul(g, o.c(-1.0))), o.c(1.0))))
gate("near-gate-relu", 20, lambda o, g, u: o.mul(o.relu(g), u), lambda g: np.maximum(g, 0), 0)
gate("near-gate-mish", 22, lambda o, g, u: o.mul(o.mish(g), u), lambda g: g * np.tanh(np.log1p(np.exp(g))), 0)
gate("near-gate-hard-swish", 22, lambda o, g, u: o.mul(o.hard_swish(g), u), lambda g: g * np.clip(g / 6 + 0.5, 0, 1), 0)
gate("near-gate-sigmoid", 19, lambda o, g, u: o.mul(o.sigmoid(g), u), sigmoid, 0)


@CASES("gate-einsum-packed", glu=1)
def _():
    w, o = Weights("packed"), Ops(20)
    both, down = w.matrix(2, D, F), w.matrix(F, D)

    def form(x):
        h = o.einsum([x, o.c(both)], equation="bsd,gdf->gbsf")
        g, u = (o.squeeze(t, o.ints(0)) for t in o.split(h, num_outputs=2, axis=0))
        return o.einsum([o.mul(o.silu(g), u), o.c(down)], equation="bsf,fd->bsd")

    return form, (lambda x: (silu(x @ both[0]) * (x @ both[1])) @ down), x3


@CASES("gate-strided-gemm", glu=1)
def _():
    w, o = Weights("strided"), Ops(17)
    both, bias, down = w.matrix(D, 2 * F), w.bias(2 * F), w.matrix(F, D)

    def form(x):
        h = o.gemm(x, o.c(both), o.c(bias))
        g, u = (o.slice(h, o.ints(i), o.ints(2 * F), o.ints(1), o.ints(2)) for i in (0, 1))
        return o.gemm(o.mul(o.silu(g), u), o.c(down))

    return form, (lambda x: (silu((x @ both + bias)[:, ::2]) * (x @ both + bias)[:, 1::2]) @ down), {"x": f32("T", D)}


@CASES("gate-conv", glu=1)
def _():
    w, o = Weights("conv"), Ops(22)
    wg, wu = w.matrix(D, F), w.matrix(D, F)
    form = lambda x: o.mul(o.silu(o.conv(x, o.c(wg.T[..., None]))), o.conv(x, o.c(wu.T[..., None])))
    golden = lambda x: (silu(x.swapaxes(1, 2) @ wg) * (x.swapaxes(1, 2) @ wu)).swapaxes(1, 2)
    return form, golden, {"x": f32("B", D, "S")}


@to_function("Act", "acme", _version=2)
def act(g):
    o = Ops(21)
    return [o.silu(g)]


@to_function("FeedForward", "acme", _version=2)
def feed_forward(x, wg, wu, wd):
    o = Ops(21)
    return [o.matmul(o.mul(act(o.matmul(x, wg))[0], o.matmul(x, wu)), wd)]


@to_function("PreNorm", "acme", _version=2)
def pre_norm(x, s, wg, wu, wd):
    o = Ops(21)
    return [o.add(x, feed_forward(o.mul(o.div(x, o.root(x)), s), wg, wu, wd)[0])]


@CASES("gate-functions-of-functions", rmsnorm=1, glu=1)
def _():
    w, o = Weights("functions"), Ops(21)
    m = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
    golden = lambda x: x + (silu(rms(x, S) @ m[0]) * (rms(x, S) @ m[1])) @ m[2]
    return (lambda x: pre_norm(x, o.c(S), *map(o.c, m))[0]), golden, x3


@CASES("gate-inlined-17", glu=1)
def _():
    w, o, old = Weights("inlined"), Ops(23), Ops(17)
    wg, wu = w.matrix(D, F), w.matrix(D, F)
    a, b = (argument(Tensor(np.float32, ("B", "S", F))) for _ in range(2))
    inner = build({"g": a, "u": b}, {"y": old.mul(old.silu(a), b)})
    return (
        (lambda x: inline(inner)(g=o.matmul(x, o.c(wg)), u=o.matmul(x, o.c(wu)))["y"]),
        (lambda x: silu(x @ wg) * (x @ wu)),
        x3,
    )


def turn(name, version, form, golden=turned, rope=1):
    @CASES(name, rope=rope)
    def _():
        o = Ops(version)

        def whole(x, positions):
            angle = o.mul(o.unsqueeze(o.cast(positions, to=np.float32), o.ints(2, 3)), o.c(inverse))
            return form(o, x, o.sin(angle), o.cos(angle))

        return whole, golden, placed


def cat(o, *parts):
    return o.concat(list(parts), axis=-1)


def split(o, x, sizes=(W // 2, W // 2)):
    if o.version < 18:
        return o.split(x, o.ints(*sizes), outputs_count=len(sizes), axis=-1)
    return o.split(x, o.ints(*sizes), axis=-1)


def in_halves(o, x, s, c):
    a, b = split(o, x)
    return cat(o, o.sub(o.mul(a, c), o.mul(b, s)), o.add(o.mul(a, s), o.mul(b, c)))


def in_pairs(o, x, s, c):
    pairs = o.reshape(x, o.ints(0, 0, H, W // 2, 2))
    a, b = (o.gather(pairs, o.c(i, np.int64), axis=-1) for i in (0, 1))
    both = [o.unsqueeze(t, o.ints(-1)) for t in (o.sub(o.mul(a, c), o.mul(b, s)), o.add(o.mul(a, s), o.mul(b, c)))]
    return o.reshape(cat(o, *both), o.shape(x))


def to_halves(o, x, s, c):
    pairs = o.transpose(o.reshape(x, o.ints(0, 0, H, W // 2, 2)), perm=(0, 1, 2, 4, 3))
    return in_halves(o, o.reshape(pairs, o.ints(0, 0, H, W)), s, c)


def np_to_halves(x, positions):
    return turned(np.concatenate([x[..., ::2], x[..., 1::2]], -1), positions)


def last(o, x, s, c):
    keep, a, b = split(o, x, (4, 2, 2))
    s, c = (o.slice(t, o.ints(0), o.ints(2), o.ints(-1)) for t in (s, c))
    return cat(o, keep, o.sub(o.mul(a, c), o.mul(b, s)), o.add(o.mul(a, s), o.mul(b, c)))


def np_last(x, positions):
    return np.concatenate([x[..., :4], turned(x[..., 4:], positions, size=4)], -1)


turn("rotary-19", 19, in_halves)
turn("rotary-pairs-gathered", 20, in_pairs, lambda x, p: turned(x, p, pairs=True))
turn("rotary-pairs-to-halves", 22, to_halves, np_to_halves)
turn("rotary-last-channels", 21, last, np_last)
turn(
    "rotary-where",
    18,
    lambda o, x, s, c: o.add(
        o.mul(x, cat(o, c, c)),
        o.mul(
            o.where(o.const(np.arange(W) < W // 2), o.neg(cat(o, *split(o, x)[::-1])), cat(o, *split(o, x)[::-1])),
            cat(o, s, s),
        ),
    ),
)
turn("rotary-inverse", 21, lambda o, x, s, c: in_halves(o, x, o.neg(s), c), lambda x, p: turned(x, -p))
turn(
    "rotary-reverse-sequence-of-halves",
    20,
    lambda o, x, s, c: (
        lambda two: o.reshape(
            o.add(
                o.mul(two, o.unsqueeze(c, o.ints(3))),
                o.mul(
                    o.slice(two, o.ints(-1), o.ints(-9), o.ints(3), o.ints(-1)),
                    o.concat([o.unsqueeze(o.neg(s), o.ints(3)), o.unsqueeze(s, o.ints(3))], axis=3),
                ),
            ),
            o.shape(x),
        )
    )(o.reshape(x, o.ints(0, 0, H, 2, W // 2))),
)
turn(
    "near-rotary-sum",
    21,
    lambda o, x, s, c: o.add(o.mul(x, cat(o, c, c)), cat(o, s, s)),
    lambda x, p: (lambda a: x * np.cos(a) + np.sin(a))(np.concatenate([p[..., None] * inverse] * 2, -1)[:, :, None]),
    0,
)
turn(
    "near-rotary-same-sign",
    19,
    lambda o, x, s, c: (lambda a, b: cat(o, o.add(o.mul(a, c), o.mul(b, s)), o.add(o.mul(b, c), o.mul(a, s))))(
        *split(o, x)
    ),
    lambda x, p: (lambda a, b, t: np.concatenate([a * np.cos(t) + b * np.sin(t), b * np.cos(t) + a * np.sin(t)], -1))(
        x[..., :4], x[..., 4:], (p[..., None] * inverse)[:, :, None]
    ),
    0,
)


@CASES("rotary-op-23", rope=1)
def _():
    o = Ops(23)
    table = angles(np.arange(32), W)
    sin, cos = np.sin(table).astype(np.float32), np.cos(table).astype(np.float32)
    form = lambda x, positions: o.rotary_embedding(x, o.c(cos), o.c(sin), o.cast(positions, to=np.int64))
    return (
        form,
        (lambda x, p: turned(x.swapaxes(1, 2), p).swapaxes(1, 2)),
        {"x": f32("B", H, "S", W), "positions": i32("B", "S")},
    )


@CASES("rotary-range", rope=2)
def _():  # the table of positions is made of the length
    o = Ops(18)

    def form(q, k):
        n = o.squeeze(o.slice(o.shape(q), o.ints(1), o.ints(2)), o.ints(0))
        at = o.cast(o.range(o.c(0, np.int64), n, o.c(1, np.int64)), to=np.float32)
        angle = o.unsqueeze(o.einsum([at, o.c(inverse)], equation="i,j->ij"), o.ints(0, 2))
        return o.add(in_halves(o, q, o.sin(angle), o.cos(angle)), in_halves(o, k, o.sin(angle), o.cos(angle)))

    golden = lambda q, k: turned(q, np.arange(q.shape[1])[None]) + turned(k, np.arange(q.shape[1])[None])
    return form, golden, {"q": f32("B", "S", H, W), "k": f32("B", "S", 1, W)}
