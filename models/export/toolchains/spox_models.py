"""Models written with spox, by functions and by inlining; numpy gives their outputs. Axes are counted from either end,
constants are scalars or vectors: as people who write ONNX by hand have it."""

import numpy as np
import spox.opset.ai.onnx.v17 as op17
import spox.opset.ai.onnx.v21 as op
from spox import Tensor, argument, build, inline
from spox._function import to_function

from cases import Cases, Weights, angles, f32, i32

CASES = Cases()
D, F, H, W = 16, 24, 4, 8
E, K = 6, 2
x3 = {"x": f32("B", "S", D)}


def c(a, dtype=np.float32):
    return op.const(np.asarray(a, dtype))


def ints(*v):
    return op.const(np.array(v, np.int64))


def mean(x, axis=-1):
    return op.reduce_mean(x, ints(axis), keepdims=1)


def total(x, axis=-1, keepdims=1):
    return op.reduce_sum(x, ints(axis), keepdims=keepdims)


def rms(x, s, eps=1e-6):
    return x / np.sqrt(np.mean(x.astype(np.float64) ** 2, -1, keepdims=True) + eps) * s


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def norm(name, **blocks):
    return CASES(f"norm-{name}", **(blocks or {"rmsnorm": 1}))


def normalize(name, form, eps=1e-6, factor=1.0):
    """Adds a norm given as a function of x and its scale, in spox."""

    @norm(name)
    def _():
        s = Weights(name).scale(D)
        return (lambda x: form(x, s)), (lambda x: rms(x, s * factor, eps)), x3


def squares(x):
    return op.mul(x, x)


def root(v, eps=1e-6):
    return op.sqrt(op.add(v, c(eps)))


normalize("div", lambda x, s: op.mul(op.div(x, root(mean(squares(x)))), c(s)))
normalize("reciprocal", lambda x, s: op.mul(c(s), op.mul(op.reciprocal(root(mean(squares(x)))), x)))
normalize(
    "l2",
    lambda x, s: op.mul(
        c(s), op.div(op.mul(x, c(np.sqrt(D))), op.sqrt(op.add(squares(op.reduce_l2(x, ints(-1))), c(D * 1e-6))))
    ),
)
normalize("sum-square", lambda x, s: op.mul(op.div(x, root(op.div(op.reduce_sum_square(x, ints(-1)), c(D)))), c(s)))
normalize("pow-half", lambda x, s: op.mul(op.mul(x, op.pow(op.add(mean(op.pow(x, c(2.0))), c(1e-6)), c(-0.5))), c(s)))
normalize(
    "exp-log", lambda x, s: op.mul(op.mul(x, op.exp(op.mul(op.log(op.add(mean(squares(x)), c(1e-6))), c(-0.5)))), c(s))
)
normalize("matmul-ones", lambda x, s: op.mul(op.div(x, root(op.matmul(squares(x), c(np.full((D, 1), 1 / D))))), c(s)))
normalize(
    "einsum",
    lambda x, s: op.einsum(
        [x, op.reciprocal(root(op.div(op.einsum([x, x], equation="abc,abc->ab"), c(D)))), c(s)],
        equation="abc,ab,c->abc",
    ),
)
normalize(
    "row-times-column",
    lambda x, s: op.mul(
        op.div(
            x, root(op.div(op.squeeze(op.matmul(op.unsqueeze(x, ints(-2)), op.unsqueeze(x, ints(-1))), ints(-1)), c(D)))
        ),
        c(s),
    ),
)
normalize("scale-first", lambda x, s: op.div(op.mul(c(s), x), root(mean(squares(x)))))
normalize(
    "scaled-inside",
    lambda x, s: op.mul(op.mul(x, op.reciprocal(root(mean(squares(op.mul(x, c(0.5)))), 0.25e-6))), c(s / 2)),
)
normalize("sum-over-n", lambda x, s: op.mul(op.div(x, root(op.mul(total(squares(x)), c(1 / D)))), c(s)))  # fmt: skip
normalize(
    "n-computed",
    lambda x, s: op.mul(
        op.div(
            x, root(op.div(total(squares(x)), op.cast(op.gather(op.shape(x), op.const(-1, np.int64)), to=np.float32)))
        ),
        c(s),
    ),
)
normalize("scale-of-ones-plus", lambda x, s: op.mul(op.div(x, root(mean(squares(x)))), op.add(c(np.ones(1)), c(s - 1))))
normalize("diagonal", lambda x, s: op.matmul(op.div(x, root(mean(squares(x)))), c(np.diag(s))))
normalize(
    "lp",
    lambda x, s: op.mul(
        op.mul(op.reciprocal(root(op.pow(op.mul(op.reduce_l2(x, ints(-1)), c(D**-0.5)), c(2.0)))), x), c(s)
    ),
)


@to_function("RMSNorm", "my.lib", _version=1)
def rms_function(x, s):
    return [op.mul(op.div(x, root(mean(squares(x)))), s)]


@norm("function", rmsnorm=2)
def _():
    s, t = Weights("function").scale(D), Weights("function2").scale(D)
    return (
        lambda x: rms_function(op.sigmoid(rms_function(x, c(s))[0]), c(t))[0],
        lambda x: rms(sigmoid(rms(x, s)), t),
        x3,
    )


@to_function("MeanSquare", "my.lib", _version=1)
def mean_square(x):
    return [mean(squares(x))]


@norm("function-of-half")
def _():
    s = Weights("half").scale(D)
    return (lambda x: op.mul(op.div(x, root(mean_square(x)[0])), c(s))), (lambda x: rms(x, s)), x3


@to_function("RootMeanSquare", "my.lib", _version=1)
def root_mean_square(x):
    return [root(mean_square(x)[0])]


@norm("function-in-function")
def _():
    s = Weights("nested").scale(D)
    return (lambda x: op.mul(op.div(x, root_mean_square(x)[0]), c(s))), (lambda x: rms(x, s)), x3


@to_function("AddNorm", "my.lib", _version=1)
def add_norm(x, y, s):
    h = op.add(x, y)
    return [h, op.mul(op.div(h, root(mean(squares(h)))), s)]


@norm("function-of-two-outputs")
def _():
    s = Weights("two").scale(D)
    return (
        lambda x, y: op.add(*add_norm(x, y, c(s))),
        lambda x, y: x + y + rms(x + y, s),
        {"x": f32("B", "S", D), "y": f32("B", "S", D)},
    )


@norm("inlined-opset-17")
def _():  # a model of another opset, inlined
    s = Weights("inlined").scale(D)
    a = argument(Tensor(np.float32, ("B", "S", D)))
    square = op17.reduce_mean(op17.mul(a, a), axes=[-1], keepdims=1)
    y = op17.mul(op17.div(a, op17.sqrt(op17.add(square, c(1e-6)))), c(s))
    inner = build({"a": a}, {"y": y})
    return (lambda x: inline(inner)(a=x)["y"]), (lambda x: rms(x, s)), x3


@norm("layernorm", layernorm=1)
def _():
    s, b = Weights("ln").scale(D), Weights("ln").bias(D)

    def form(x):
        d = op.sub(x, mean(x))
        return op.add(op.mul(op.div(d, root(mean(squares(d)), 1e-5)), c(s)), c(b))

    def golden(x):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-5) * s + b

    return form, golden, x3


def gate(name, **blocks):
    return CASES(f"gate-{name}", **(blocks or {"glu": 1}))


def silu(g):
    return g * sigmoid(g)


def gelu(g):
    return 0.5 * g * (1 + np.vectorize(__import__("math").erf)(g.astype(np.float64) / np.sqrt(2)))


def gelu_tanh(g):
    g = g.astype(np.float64)
    return 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))


def mlp(name, unit, activation=silu):
    """Adds an MLP with the gated unit, in spox; the activation is numpy's."""

    @gate(name)
    def _():
        w = Weights(name)
        wg, wu, wd = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
        return (
            lambda x: op.matmul(unit(op.matmul(x, c(wg)), op.matmul(x, c(wu))), c(wd)),
            lambda x: (activation(x @ wg) * (x @ wu)) @ wd,
            x3,
        )


def logistic(g):
    return op.reciprocal(op.add(op.exp(op.neg(g)), c(1.0)))


mlp("silu", lambda g, u: op.mul(op.mul(g, op.sigmoid(g)), u))
mlp("reciprocal", lambda g, u: op.mul(u, op.mul(g, logistic(g))))
mlp("quotient", lambda g, u: op.div(op.mul(g, u), op.add(c(1.0), op.exp(op.neg(g)))))
mlp("tanh", lambda g, u: op.mul(op.mul(op.mul(g, op.add(op.tanh(op.mul(g, c(0.5))), c(1.0))), c(0.5)), u))
mlp(
    "softmax-of-two",
    lambda g, u: op.mul(
        op.mul(
            g,
            op.gather(
                op.softmax(
                    op.concat([op.unsqueeze(g, ints(-1)), op.unsqueeze(op.mul(g, c(0.0)), ints(-1))], axis=-1), axis=-1
                ),
                op.const(0, np.int64),
                axis=-1,
            ),
        ),
        u,
    ),
)
mlp("exp-softplus", lambda g, u: op.mul(op.mul(g, op.exp(op.neg(op.softplus(op.neg(g))))), u))
mlp("shared-logistic", lambda g, u: op.mul(op.mul(u, g), op.sub(c(1.0), op.sigmoid(op.neg(g)))))
mlp("gelu-op", lambda g, u: op.mul(op.gelu(g), u), gelu)
mlp("gelu-op-tanh", lambda g, u: op.mul(op.gelu(g, approximate="tanh"), u), gelu_tanh)
mlp("gelu-erf", lambda g, u: op.mul(op.mul(op.mul(g, c(0.5)), op.add(op.erf(op.mul(g, c(2**-0.5))), c(1.0))), u), gelu)
mlp(
    "gelu-cube",
    lambda g, u: op.mul(
        op.mul(
            g,
            op.mul(
                c(0.5),
                op.add(
                    c(1.0),
                    op.tanh(op.mul(c(np.sqrt(2 / np.pi)), op.add(g, op.mul(op.mul(op.mul(g, g), g), c(0.044715))))),
                ),
            ),
        ),
        u,
    ),
    gelu_tanh,
)
mlp(
    "gelu-sigmoid",
    lambda g, u: op.mul(
        op.mul(
            g,
            op.sigmoid(
                op.mul(g, op.add(c(2 * np.sqrt(2 / np.pi)), op.mul(squares(g), c(2 * np.sqrt(2 / np.pi) * 0.044715))))
            ),
        ),
        u,
    ),
    gelu_tanh,
)
mlp("quick", lambda g, u: op.mul(u, op.mul(op.sigmoid(op.mul(c(1.702), g)), g)), lambda g: g * sigmoid(1.702 * g))


@gate("gemm")
def _():
    w = Weights("gemm")
    wg, wu, wd, b = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D), w.bias(F)

    def form(x):
        g, u = op.gemm(x, c(wg.T), c(b), transB=1), op.gemm(x, c(wu))
        return op.gemm(op.mul(op.mul(g, op.sigmoid(g)), u), c(wd))

    return form, (lambda x: (silu(x @ wg + b) * (x @ wu)) @ wd), {"x": f32("T", D)}


@gate("split")
def _():
    w = Weights("split")
    wi, wd = w.matrix(D, 2 * F), w.matrix(F, D)

    def form(x):
        g, u = op.split(op.matmul(x, c(wi)), num_outputs=2, axis=-1)
        return op.matmul(op.mul(op.mul(g, op.sigmoid(g)), u), c(wd))

    return form, (lambda x: (silu(x @ wi[:, :F]) * (x @ wi[:, F:])) @ wd), x3


@to_function("SwiGLU", "my.lib", _version=1)
def swiglu(g, u):
    return [op.mul(op.mul(g, op.sigmoid(g)), u)]


mlp("function", lambda g, u: swiglu(g, u)[0])


@to_function("Silu", "my.lib", _version=1)
def silu_function(g):
    return [op.mul(g, op.sigmoid(g))]


mlp("function-of-half", lambda g, u: op.mul(silu_function(g)[0], u))


@to_function("Mlp", "my.lib", _version=1)
def whole_mlp(x, wg, wu, wd):
    return [op.matmul(swiglu(op.matmul(x, wg), op.matmul(x, wu))[0], wd)]


@gate("whole-function", glu=2)
def _():
    w = Weights("whole")
    a, b = ((w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)) for _ in range(2))
    numpy = lambda x, p: (silu(x @ p[0]) * (x @ p[1])) @ p[2]
    return (
        lambda x: whole_mlp(whole_mlp(x, *map(c, a))[0], *map(c, b))[0],
        lambda x: numpy(numpy(x, a), b),
        x3,
    )


def rotary(name, rope=1, **blocks):
    return CASES(f"rotary-{name}", rope=rope, **blocks)


placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}
inverse = (10000.0 ** (-np.arange(0, W, 2) / W)).astype(np.float32)


def turned(x, positions, pairs=False, size=W):
    angle = (positions[..., None] * inverse[: size // 2])[:, :, None]
    a, b = (x[..., :size:2], x[..., 1:size:2]) if pairs else (x[..., : size // 2], x[..., size // 2 : size])
    out = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    out = np.stack(out, -1).reshape(*x.shape[:-1], size) if pairs else np.concatenate(out, -1)
    return np.concatenate([out, x[..., size:]], -1)


def turn(name, form, rope=1, **golden):
    """Adds a rotation given as a function of x and of sines and cosines of each pair."""

    @rotary(name, rope)
    def _():
        def whole(x, positions):
            angle = op.unsqueeze(op.mul(op.unsqueeze(op.cast(positions, to=np.float32), ints(-1)), c(inverse)), ints(2))
            return form(x, op.sin(angle), op.cos(angle))

        return whole, (lambda x, positions: turned(x, positions, **golden)), placed


def cat(*parts, axis=-1):
    return op.concat(list(parts), axis=axis)


def cut(x, a, b, step=1):
    return op.slice(x, ints(a), ints(b), ints(3), ints(step))


def halves(x, s, co):
    a, b = op.split(x, ints(W // 2, W // 2), axis=3)
    return cat(op.sub(op.mul(a, co), op.mul(b, s)), op.add(op.mul(b, co), op.mul(a, s)))


TURN = np.zeros((W, W), np.float32)
for i in range(W // 2):
    TURN[i + W // 2, i], TURN[i, i + W // 2] = -1, 1
SWAP = np.abs(TURN)
SIGN = [-1.0] * (W // 2) + [1.0] * (W // 2)
turn("halves", halves)
turn(
    "rotate-half",
    lambda x, s, co: op.add(op.mul(x, cat(co, co)), op.mul(cat(op.neg(cut(x, 4, 8)), cut(x, 0, 4)), cat(s, s))),
)
turn("matrix", lambda x, s, co: op.add(op.mul(x, cat(co, co)), op.mul(op.matmul(x, c(TURN)), cat(s, s))))
turn(
    "permutation-then-sign",
    lambda x, s, co: op.add(op.mul(x, cat(co, co)), op.mul(op.mul(op.matmul(x, c(SWAP)), c(SIGN)), cat(s, s))),
)
turn(
    "gather",
    lambda x, s, co: op.add(
        op.mul(x, cat(co, co)), op.mul(op.gather(x, ints(4, 5, 6, 7, 0, 1, 2, 3), axis=-1), cat(op.neg(s), s))
    ),
)
turn(
    "negated-sine",
    lambda x, s, co: op.sub(op.mul(x, cat(co, co)), op.mul(cat(cut(x, 4, 8), cut(x, 0, 4)), cat(s, op.neg(s)))),
)
turn(
    "einsum-matrix",
    lambda x, s, co: op.add(
        op.mul(x, cat(co, co)), op.mul(op.einsum([x, c(TURN)], equation="bshd,de->bshe"), cat(s, s))
    ),
)
turn(
    "padded",
    lambda x, s, co: op.add(
        op.mul(x, cat(co, co)),
        op.mul(
            op.sub(
                op.pad(cut(x, 0, 4), ints(0, 0, 0, 4, 0, 0, 0, 0)), op.pad(cut(x, 4, 8), ints(0, 0, 0, 0, 0, 0, 0, 4))
            ),
            cat(s, s),
        ),
    ),
)
turn(
    "pairs",
    lambda x, s, co: op.reshape(
        cat(
            *(
                op.unsqueeze(t, ints(4))
                for t in (
                    op.sub(op.mul(cut(x, 0, 8, 2), co), op.mul(cut(x, 1, 8, 2), s)),
                    op.add(op.mul(cut(x, 0, 8, 2), s), op.mul(cut(x, 1, 8, 2), co)),
                )
            )
        ),
        op.shape(x),
    ),
    pairs=True,
)
turn(
    "part",
    lambda x, s, co: cat(
        op.sub(op.mul(cut(x, 0, 2), cut(co, 0, 2)), op.mul(cut(x, 2, 4), cut(s, 0, 2))),
        op.add(op.mul(cut(x, 2, 4), cut(co, 0, 2)), op.mul(cut(x, 0, 2), cut(s, 0, 2))),
        cut(x, 4, 8),
    ),
    size=4,
)
turn(
    "common-factor",
    lambda x, s, co: op.mul(cat(co, co), op.add(x, op.mul(op.matmul(x, c(TURN)), op.div(cat(s, s), cat(co, co))))),
)


@to_function("RotateHalf", "my.lib", _version=1)
def rotate_half(x):
    a, b = op.split(x, ints(W // 2, W // 2), axis=3)
    return [cat(op.neg(b), a)]


@to_function("Rotary", "my.lib", _version=1)
def rotary_function(x, s, co):
    return [halves(x, s, co)]


turn("function", lambda x, s, co: rotary_function(x, s, co)[0])
turn("function-of-half", lambda x, s, co: op.add(op.mul(x, cat(co, co)), op.mul(rotate_half(x)[0], cat(s, s))))


@rotary("table")
def _():
    table = angles(np.arange(32), W)
    sin, cos = np.sin(table).astype(np.float32), np.cos(table).astype(np.float32)

    def form(x, positions):
        s, co = (op.unsqueeze(op.gather(c(t), positions), ints(2)) for t in (sin, cos))
        return halves(x, s, co)

    return form, turned, placed


@rotary("normed", rmsnorm=1)
def _():
    scale = Weights("normed").scale(W)

    def form(x, positions):
        angle = op.unsqueeze(op.mul(op.unsqueeze(op.cast(positions, to=np.float32), ints(-1)), c(inverse)), ints(2))
        return halves(op.mul(op.div(x, root(mean(squares(x)))), c(scale)), op.sin(angle), op.cos(angle))

    return form, (lambda x, positions: turned(rms(x, scale), positions)), placed
