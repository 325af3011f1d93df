"""Models written with onnxscript: the libraries of functions that people build of it, with attributes, in branches and
loops, one within another; and functions of its torchlib. numpy gives their outputs."""

import numpy as np
import onnx
from onnxscript import FLOAT, INT64, script
from onnxscript import opset18 as op
from onnxscript.values import Opset

from cases import Cases, Weights, f32, i32
from spox_layers import np_probabilities, np_renormalized, numpy_layer, softmax
from spox_models import gelu, gelu_tanh, inverse, rms, sigmoid, silu, turned

CASES = Cases()
D, F, H, W, E, K = 16, 24, 4, 8, 6, 2
x3 = {"x": f32("B", "S", D)}
tokens = {"x": f32("T", D)}
placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}
lib = Opset("blocks.lib", 1)
torchlib = Opset("pkg.onnxscript.torch_lib", 1)


def t(a):
    return onnx.numpy_helper.from_array(np.asarray(a, np.float32))


@script(lib, default_opset=op)
def RMSNorm(x, scale, eps: float = 1e-5, axis: int = -1):
    square = op.ReduceMean(x * x, op.Constant(value_ints=[-1]), keepdims=1)
    return x / op.Sqrt(square + eps) * scale


@script(lib, default_opset=op)
def MeanSquare(x):
    return op.ReduceMean(op.Pow(x, 2.0), op.Constant(value_ints=[-1]), keepdims=1)


@script(lib, default_opset=op)
def InverseRoot(x, eps: float):
    return op.Reciprocal(op.Sqrt(MeanSquare(x) + eps))


@script(lib, default_opset=op)
def NormOfParts(x, scale, eps: float):
    return scale * (x * InverseRoot(x, eps=eps))


@script(lib, default_opset=op)
def AddNorm(x, y, scale):
    h = x + y
    return h, RMSNorm(h, scale, eps=1e-6)


@script(lib, default_opset=op)
def Silu(x):
    return x * op.Sigmoid(x)


@script(lib, default_opset=op)
def SwiGLU(x, gate, up):
    return Silu(op.MatMul(x, gate)) * op.MatMul(x, up)


@script(lib, default_opset=op)
def QuickGLU(g, u, alpha: float):
    return g * op.Sigmoid(g * alpha) * u


@script(lib, default_opset=op)
def GeluTanh(x):
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + op.Tanh(inner))


@script(lib, default_opset=op)
def RotateHalf(x):
    a, b = op.Split(x, num_outputs=2, axis=-1)
    return op.Concat(-b, a, axis=-1)


@script(lib, default_opset=op)
def Rotary(x, cos, sin):
    return x * cos + RotateHalf(x) * sin


@script(lib, default_opset=op)
def Angles(positions, inverse):
    angle = op.Unsqueeze(op.Cast(positions, to=1), op.Constant(value_ints=[-1])) * inverse
    return op.Unsqueeze(op.Concat(angle, angle, axis=-1), op.Constant(value_ints=[2]))


@script(lib, default_opset=op)
def RotaryOfPositions(x, positions, inverse):
    angle = Angles(positions, inverse)
    return Rotary(x, op.Cos(angle), op.Sin(angle))


@script(lib, default_opset=op)
def Route(logits, k: int):
    weights, ids = op.TopK(op.Softmax(logits, axis=-1), op.Constant(value_ints=[2]), axis=-1)
    return weights / op.ReduceSum(weights, op.Constant(value_ints=[-1]), keepdims=1), ids


@script(torchlib, default_opset=op)
def aten_silu(self):
    return op.Mul(self, op.Sigmoid(self))


@script(torchlib, default_opset=op)
def aten_mean_dim(self, dim):
    return op.ReduceMean(self, op.Reshape(dim, op.Constant(value_ints=[-1])), keepdims=1)


@script(torchlib, default_opset=op)
def aten_pow(self, exponent):
    return op.Pow(self, op.CastLike(exponent, self))


@script(torchlib, default_opset=op)
def aten_rsqrt(self):
    return op.Reciprocal(op.Sqrt(self))


@script(torchlib, default_opset=op)
def aten_add(self, other, alpha: float = 1.0):
    return op.Add(self, op.Mul(op.CastLike(other, self), op.CastLike(alpha, self)))


def case(name, golden, shapes, **blocks):
    """Adds a model, which the function below returns as a script; golden is numpy's."""

    def add(build):
        CASES(name, **blocks)(lambda: (build(), golden, shapes))
        return build

    return add


S, S2, R = Weights("s").scale(D), Weights("s2").scale(D), Weights("r").scale(W)
w = Weights("m")
WG, WU, WD = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
ROUTER, XG, XU, XD = w.matrix(D, E), w.matrix(E, D, 12), w.matrix(E, D, 12), w.matrix(E, 12, D)
s, s2, r, wg, wu, wd, router, xg, xu, xd, inv = map(
    t, (S, S2, R, WG, WU, WD, ROUTER, XG, XU, XD, inverse)
)  # fmt: skip
XS = FLOAT["B", "S", D]
TS = FLOAT["T", D]
HS = FLOAT["B", "S", H, W]
PS = INT64["B", "S"]


def norm(name, golden=lambda x: rms(x, S), shapes=x3, **blocks):
    return case(f"norm-{name}", golden, shapes, **(blocks or {"rmsnorm": 1}))


@norm("plain")
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        square = op.ReduceMean(x * x, op.Constant(value_ints=[-1]))
        return x / op.Sqrt(square + 1e-6) * op.Constant(value=s)

    return model


@norm("function", lambda x: rms(rms(x, S, 1e-3), S2, 1e-5), rmsnorm=2)
def _():  # an attribute and its default
    @script(default_opset=op)
    def model(x: XS) -> XS:
        return RMSNorm(RMSNorm(x, op.Constant(value=s), eps=1e-3), op.Constant(value=s2))

    return model


@norm("functions-in-functions", lambda x: rms(x, S, 1e-4))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        return NormOfParts(x, op.Constant(value=s), eps=1e-4)

    return model


@norm("across")
def _():  # half in a function, half beside it
    @script(default_opset=op)
    def model(x: XS) -> XS:
        return x * op.Reciprocal(op.Sqrt(MeanSquare(x) + 1e-6)) * op.Constant(value=s)

    return model


@norm("two-outputs", lambda x, y: x + y + rms(x + y, S), {"x": f32("B", "S", D), "y": f32("B", "S", D)})
def _():
    @script(default_opset=op)
    def model(x: XS, y: XS) -> XS:
        h, n = AddNorm(x, y, op.Constant(value=s))
        return h + n

    return model


@norm("in-branch", lambda x: rms(x, S, 1e-5) if x.sum() > 0 else -x)
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        if op.ReduceSum(x, keepdims=0) > 0.0:
            y = RMSNorm(x, op.Constant(value=s))
        else:
            y = op.Neg(x)
        return y

    return model


@norm("in-loop", lambda x: rms(rms(rms(x, S, 1e-5), S, 1e-5), S, 1e-5))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        y = op.Identity(x)
        for _i in range(3):
            y = RMSNorm(y, op.Constant(value=s))
        return y

    return model


@norm("torchlib")
def _():  # as torch's dynamo wrote it while functions were not inlined
    @script(default_opset=op)
    def model(x: XS) -> XS:
        mean = aten_mean_dim(aten_pow(x, op.Constant(value_float=2.0)), op.Constant(value_ints=[-1]))
        root = aten_rsqrt(aten_add(mean, op.Constant(value_float=1e-6)))
        return op.Constant(value=s) * (x * root)

    return model


def gate(name, golden, **blocks):
    return case(f"gate-{name}", golden, x3, **(blocks or {"glu": 1}))


def mlp(activation):
    return lambda x: (activation(x @ WG) * (x @ WU)) @ WD


@gate("plain", mlp(silu))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        g = op.MatMul(x, op.Constant(value=wg))
        h = g * op.Sigmoid(g) * op.MatMul(x, op.Constant(value=wu))
        return op.MatMul(h, op.Constant(value=wd))

    return model


@gate("function", mlp(silu))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        return op.MatMul(SwiGLU(x, op.Constant(value=wg), op.Constant(value=wu)), op.Constant(value=wd))

    return model


@gate("activation", mlp(silu))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        h = Silu(op.MatMul(x, op.Constant(value=wg))) * op.MatMul(x, op.Constant(value=wu))
        return op.MatMul(h, op.Constant(value=wd))

    return model


@gate("attribute", mlp(lambda g: g * sigmoid(1.702 * g)))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        h = QuickGLU(op.MatMul(x, op.Constant(value=wg)), op.MatMul(x, op.Constant(value=wu)), alpha=1.702)
        return op.MatMul(h, op.Constant(value=wd))

    return model


@gate("gelu-tanh", mlp(gelu_tanh))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        h = GeluTanh(op.MatMul(x, op.Constant(value=wg))) * op.MatMul(x, op.Constant(value=wu))
        return op.MatMul(h, op.Constant(value=wd))

    return model


@gate("gelu", mlp(gelu))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        g = op.MatMul(x, op.Constant(value=wg))
        h = 0.5 * g * (1.0 + op.Erf(g / op.Sqrt(2.0))) * op.MatMul(x, op.Constant(value=wu))
        return op.MatMul(h, op.Constant(value=wd))

    return model


@gate("torchlib", mlp(silu))
def _():
    @script(default_opset=op)
    def model(x: XS) -> XS:
        h = aten_silu(op.MatMul(x, op.Constant(value=wg))) * op.MatMul(x, op.Constant(value=wu))
        return op.MatMul(h, op.Constant(value=wd))

    return model


def rotary(name, golden=turned, **blocks):
    return case(f"rotary-{name}", golden, placed, **(blocks or {"rope": 1}))


@rotary("functions")
def _():
    @script(default_opset=op)
    def model(x: HS, positions: PS) -> HS:
        return RotaryOfPositions(x, positions, op.Constant(value=inv))

    return model


@rotary("across")
def _():
    @script(default_opset=op)
    def model(x: HS, positions: PS) -> HS:
        angle = Angles(positions, op.Constant(value=inv))
        return x * op.Cos(angle) + RotateHalf(x) * op.Sin(angle)

    return model


@rotary("whole")
def _():
    @script(default_opset=op)
    def model(x: HS, positions: PS) -> HS:
        angle = Angles(positions, op.Constant(value=inv))
        return Rotary(x, op.Cos(angle), op.Sin(angle))

    return model


@rotary("plain")
def _():
    @script(default_opset=op)
    def model(x: HS, positions: PS) -> HS:
        p = op.Unsqueeze(op.Cast(positions, to=1), op.Constant(value_ints=[2, 3]))
        angle = p * op.Constant(value=inv)
        a, b = op.Split(x, num_outputs=2, axis=3)
        first = a * op.Cos(angle) - b * op.Sin(angle)
        second = b * op.Cos(angle) + a * op.Sin(angle)
        return op.Concat(first, second, axis=3)

    return model


@rotary("normed", lambda x, positions: turned(rms(x, R), positions), rmsnorm=1, rope=1)
def _():
    @script(default_opset=op)
    def model(x: HS, positions: PS) -> HS:
        return RotaryOfPositions(RMSNorm(x, op.Constant(value=r), eps=1e-6), positions, op.Constant(value=inv))

    return model


def moe(name, choose=np_renormalized):
    return case(f"moe-{name}", lambda x: numpy_layer(x, choose, ROUTER, XG, XU, XD), tokens, router=1, moe=1)


@script(lib, default_opset=op)
def Experts(x, weights, ids, xg, xu, xd):
    row = op.Unsqueeze(x, op.Constant(value_ints=[1, 2]))
    h = Silu(op.MatMul(row, op.Gather(xg, ids))) * op.MatMul(row, op.Gather(xu, ids))
    y = op.Squeeze(op.MatMul(h, op.Gather(xd, ids)), op.Constant(value_ints=[2]))
    return op.ReduceSum(y * op.Unsqueeze(weights, op.Constant(value_ints=[2])), op.Constant(value_ints=[1]), keepdims=0)


@script(lib, default_opset=op)
def Mixture(x, router, xg, xu, xd):
    weights, ids = Route(op.MatMul(x, router), k=2)
    return Experts(x, weights, ids, xg, xu, xd)


@moe("functions")
def _():
    @script(default_opset=op)
    def model(x: TS) -> TS:
        weights, ids = Route(op.MatMul(x, op.Constant(value=router)), k=2)
        return Experts(x, weights, ids, op.Constant(value=xg), op.Constant(value=xu), op.Constant(value=xd))

    return model


@moe("whole-function")
def _():
    @script(default_opset=op)
    def model(x: TS) -> TS:
        return Mixture(
            x, op.Constant(value=router), op.Constant(value=xg), op.Constant(value=xu), op.Constant(value=xd)
        )

    return model


@moe("plain", np_probabilities)
def _():
    @script(default_opset=op)
    def model(x: TS) -> TS:
        p = op.Softmax(op.MatMul(x, op.Constant(value=router)), axis=-1)
        weights, ids = op.TopK(p, op.Constant(value_ints=[2]), axis=-1)
        row = op.Unsqueeze(x, op.Constant(value_ints=[1, 2]))
        g = op.MatMul(row, op.Gather(op.Constant(value=xg), ids))
        h = g * op.Sigmoid(g) * op.MatMul(row, op.Gather(op.Constant(value=xu), ids))
        y = op.MatMul(h, op.Gather(op.Constant(value=xd), ids)) * op.Unsqueeze(weights, op.Constant(value_ints=[2, 3]))
        return op.ReduceSum(y, op.Constant(value_ints=[1, 2]), keepdims=0)

    return model


@moe("loop")
def _():
    @script(default_opset=op)
    def model(x: TS) -> TS:
        weights, ids = Route(op.MatMul(x, op.Constant(value=router)), k=2)
        y = x * 0.0
        for e in range(6):
            hit = op.Cast(ids == e, to=1)
            factor = op.ReduceSum(hit * weights, op.Constant(value_ints=[-1]))
            g = op.MatMul(x, op.Gather(op.Constant(value=xg), e))
            h = Silu(g) * op.MatMul(x, op.Gather(op.Constant(value=xu), e))
            y = y + factor * op.MatMul(h, op.Gather(op.Constant(value=xd), e))
        return y

    return model


@script(lib, default_opset=op)
def Attention(q, k, v, scale: float):
    scores = op.MatMul(op.Transpose(q, perm=[0, 2, 1, 3]), op.Transpose(k, perm=[0, 2, 3, 1])) * scale
    return op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), op.Transpose(v, perm=[0, 2, 1, 3])), perm=[0, 2, 1, 3])


Q, KEY, V, O = (w.matrix(D, D) for _ in range(4))  # noqa: E741
wq, wk, wv, wo = map(t, (Q, KEY, V, O))


def encoder(x, positions):
    y = rms(x, S, 1e-5)
    heads = lambda m: (y @ m).reshape(*x.shape[:2], 2, W)
    scores = np.einsum("bthw,bshw->bhts", turned(heads(Q), positions), turned(heads(KEY), positions)) * W**-0.5
    x = x + np.einsum("bhts,bshw->bthw", softmax(scores), heads(V)).reshape(x.shape) @ O
    y = rms(x, S2, 1e-5)
    return x + (silu(y @ WG) * (y @ WU)) @ WD


@case("decoder-functions", encoder, {"x": f32("B", "S", D), "positions": i32("B", "S")}, rmsnorm=2, rope=2, glu=1)
def _():
    @script(default_opset=op)
    def model(x: XS, positions: PS) -> XS:
        heads = op.Constant(value_ints=[0, 0, 2, 8])
        inverse = op.Constant(value=inv)
        y = RMSNorm(x, op.Constant(value=s))
        q = RotaryOfPositions(op.Reshape(op.MatMul(y, op.Constant(value=wq)), heads), positions, inverse)
        k = RotaryOfPositions(op.Reshape(op.MatMul(y, op.Constant(value=wk)), heads), positions, inverse)
        v = op.Reshape(op.MatMul(y, op.Constant(value=wv)), heads)
        a = op.Reshape(Attention(q, k, v, scale=0.3535533905932738), op.Constant(value_ints=[0, 0, -1]))
        h = x + op.MatMul(a, op.Constant(value=wo))
        y = RMSNorm(h, op.Constant(value=s2))
        return h + op.MatMul(SwiGLU(y, op.Constant(value=wg), op.Constant(value=wu)), op.Constant(value=wd))

    return model
