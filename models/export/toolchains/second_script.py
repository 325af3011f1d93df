"""The second set of onnxscript: functions with attributes and defaults, one within another, of two domains, with
overloads; models traced by its builder and its modules; numpy gives their outputs."""

import numpy as np
import onnx
import onnx_ir as ir
from onnxscript import FLOAT, INT64, build_function, build_graph, nn, opset20, opset23, script
from onnxscript import opset18 as op
from onnxscript.values import Opset

from cases import Cases, Weights, f32, i32
from spox_layers import best, np_renormalized, numpy_layer, softmax
from spox_models import gelu, inverse, rms, sigmoid, silu, turned

CASES = Cases()
D, F, H, W, E, K = 16, 24, 4, 8, 6, 2
x3 = {"x": f32("B", "S", D)}
tokens = {"x": f32("T", D)}
placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}
norms, acts = Opset("zoo.norms", 1), Opset("zoo.acts", 3)
w = Weights("second")
S, S2, B, R = w.scale(D), w.scale(D), w.bias(D), w.scale(W)
WG, WU, WD = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
ROUTER, XG, XU, XD = w.matrix(D, E), w.matrix(E, D, 12), w.matrix(E, D, 12), w.matrix(E, 12, D)
XS, TS, HS, PS = FLOAT["B", "S", D], FLOAT["T", D], FLOAT["B", "S", H, W], INT64["B", "S"]


def t(a):
    return onnx.numpy_helper.from_array(np.asarray(a, np.float32))


s, s2, b, r, wg, wu, wd, router, xg, xu, xd, inv = map(
    t, (S, S2, B, R, WG, WU, WD, ROUTER, XG, XU, XD, inverse)
)  # fmt: skip


def scripted(name, model, golden, shapes=x3, **blocks):
    CASES(name, **blocks)(lambda: (model, golden, shapes))


class Traced:
    """A model that onnxscript's builder writes while a function of the operators and the inputs runs."""

    def __init__(self, form, types, out, version=21):
        self.parts = form, types, out, version

    def to_model_proto(self):
        form, types, out, version = self.parts
        values = [
            ir.Value(name=n, type=ir.TensorType(ir.DataType(t)), shape=ir.Shape(d)) for n, (t, d) in types.items()
        ]
        result = ir.Value(name="out", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(out))
        self.functions = {}

        def run(op, *args):
            outs = form(op, *args)
            self.functions = dict(op.builder.functions)
            return outs

        graph = build_graph(run, values, [result], opset_imports={"": version}, name="traced")
        model = ir.Model(graph, ir_version=10, functions=list(self.functions.values()))
        for f in model.functions.values():
            graph.opset_imports.setdefault(f.domain, 1)
        return ir.to_proto(model)


def traced(name, form, golden, shapes=x3, version=21, out=None, **blocks):
    @CASES(name, **blocks)
    def _():
        types = {
            k: (onnx.TensorProto.INT64 if np.issubdtype(t, np.integer) else onnx.TensorProto.FLOAT, d)
            for k, (t, d) in shapes.items()
        }
        return Traced(form, types, out or shapes["x"][1], version), golden, shapes


# Scripts.
@script(norms, default_opset=op)
def MeanOf(x, axis: int):
    return op.ReduceMean(x, op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1])), keepdims=1)


@script(norms, default_opset=op)
def Norm(x, scale, eps: float = 1e-6, axis: int = -1, power: float = 2.0):
    squares = op.Pow(x, op.Constant(value_float=power))
    return op.Div(x, op.Sqrt(op.Add(MeanOf(squares, axis=axis), op.Constant(value_float=eps)))) * scale


@script(norms, default_opset=op)
def PlainNorm(x, eps: float = 1e-6):
    return op.Mul(x, op.Reciprocal(op.Sqrt(op.ReduceMean(x * x, op.Constant(value_ints=[-1])) + eps)))


@script(norms, default_opset=op)
def OnePlusNorm(x, scale, eps: float = 1e-6):
    return PlainNorm(x, eps=eps) * (1.0 + scale)


@script(norms, default_opset=op)
def LayerNorm(x, scale, bias, eps: float = 1e-5):
    d = x - op.ReduceMean(x, op.Constant(value_ints=[-1]), keepdims=1)
    v = op.ReduceMean(d * d, op.Constant(value_ints=[-1]), keepdims=1)
    return d / op.Sqrt(v + eps) * scale + bias


@script(acts, default_opset=op)
def Swish(x, beta: float = 1.0):
    return x * op.Sigmoid(x * beta)


@script(acts, default_opset=op)
def Gelu(x):
    return x * 0.5 * (1.0 + op.Erf(x * 0.7071067811865476))


@script(acts, default_opset=op)
def Gate(x, w, beta: float = 1.0):
    g, u = op.Split(op.MatMul(x, w), num_outputs=2, axis=-1)
    return Swish(g, beta=beta) * u


@script(acts, default_opset=op)
def Rotate(x, cos, sin, half: int):
    cut = op.Reshape(op.Constant(value_int=half), op.Constant(value_ints=[1]))
    a = op.Slice(x, op.Constant(value_ints=[0]), cut, op.Constant(value_ints=[-1]))
    b = op.Slice(x, cut, op.Constant(value_ints=[1000]), op.Constant(value_ints=[-1]))
    return op.Concat(a * cos - b * sin, a * sin + b * cos, axis=-1)


@script(acts, default_opset=op)
def CosSin(positions, inverse):
    angle = op.Unsqueeze(op.Cast(positions, to=1), op.Constant(value_ints=[2, 3])) * inverse
    return op.Cos(angle), op.Sin(angle)


@script(default_opset=op)
def attribute_axis(x: XS) -> XS:
    return Norm(x, op.Constant(value=s), axis=-1, eps=1e-5)


@script(default_opset=op)
def channels_first(x: FLOAT["B", 16, "S"]) -> FLOAT["B", 16, "S"]:
    return Norm(x, op.Unsqueeze(op.Constant(value=s), op.Constant(value_ints=[1])), axis=1)


@script(default_opset=op)
def one_plus(x: XS) -> XS:
    return OnePlusNorm(x, op.Constant(value=b), eps=1e-5)


@script(default_opset=op)
def plain_norm(x: HS) -> HS:
    return PlainNorm(x)


@script(default_opset=op)
def layer_norm(x: XS) -> XS:
    return LayerNorm(x, op.Constant(value=s), op.Constant(value=b))


@script(default_opset=op)
def cube_norm(x: XS) -> XS:
    return Norm(op.Abs(x), op.Constant(value=s), power=3.0)


@script(default_opset=op)
def norm_in_while(x: XS) -> XS:
    y = op.Identity(x)
    i = op.Constant(value_int=0)
    more = i < 2
    while more:
        y = Norm(y, op.Constant(value=s))
        i = i + 1
        more = i < 2
    return y


@script(default_opset=opset23)
def norm_op(x: XS) -> XS:
    return opset23.RMSNormalization(x, opset23.Constant(value=s), epsilon=1e-6)


def layer(x):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-5)


scripted("norm-attribute-axis", attribute_axis, lambda x: rms(x, S, 1e-5), rmsnorm=1)
scripted(
    "norm-channels-first",
    channels_first,
    lambda x: rms(x.swapaxes(1, 2), S).swapaxes(1, 2),
    {"x": f32("B", D, "S")},
    rmsnorm=1,
)
scripted("norm-one-plus", one_plus, lambda x: rms(x, 1 + B, 1e-5), rmsnorm=1)
scripted("norm-plain", plain_norm, lambda x: rms(x, 1), {"x": f32("B", "S", H, W)}, rmsnorm=1)
scripted("norm-layernorm", layer_norm, lambda x: layer(x) * S + B, layernorm=1)
scripted("norm-in-while", norm_in_while, lambda x: rms(rms(x, S), S), rmsnorm=1)
scripted("norm-op-23", norm_op, lambda x: rms(x, S), rmsnorm=1)
scripted("near-norm-cube", cube_norm, lambda x: (a := np.abs(x)) / np.sqrt((a**3).mean(-1, keepdims=True) + 1e-6) * S)


@script(default_opset=op)
def gate_packed(x: XS) -> FLOAT["B", "S", 24]:
    return Gate(x, op.Concat(op.Constant(value=wg), op.Constant(value=wu), axis=1))


@script(default_opset=op)
def gate_beta(x: XS) -> FLOAT["B", "S", 24]:
    return Swish(op.MatMul(x, op.Constant(value=wg)), beta=1.702) * op.MatMul(x, op.Constant(value=wu))


@script(default_opset=op)
def gate_gelu(x: XS) -> FLOAT["B", "S", 24]:
    return op.MatMul(x, op.Constant(value=wu)) * Gelu(op.MatMul(x, op.Constant(value=wg)))


@script(default_opset=opset20)
def gate_gelu_op(x: XS) -> FLOAT["B", "S", 24]:
    g = opset20.Gelu(opset20.MatMul(x, opset20.Constant(value=wg)))
    return g * opset20.MatMul(x, opset20.Constant(value=wu))


@script(default_opset=op)
def gate_tanh(x: XS) -> FLOAT["B", "S", 24]:
    return op.Tanh(op.MatMul(x, op.Constant(value=wg))) * op.MatMul(x, op.Constant(value=wu))


for name, model, act, glu in [
    ("gate-packed-function", gate_packed, silu, 1),
    ("gate-beta", gate_beta, lambda g: g * sigmoid(1.702 * g), 1),
    ("gate-gelu-function", gate_gelu, gelu, 1),
    ("gate-gelu-20", gate_gelu_op, gelu, 1),
    ("near-gate-tanh", gate_tanh, np.tanh, 0),
]:
    scripted(name, model, lambda x, act=act: act(x @ WG) * (x @ WU), glu=glu)


@script(default_opset=op)
def rotate(x: HS, positions: PS) -> HS:
    cos, sin = CosSin(positions, op.Constant(value=inv))
    return Rotate(x, cos, sin, half=4)


@script(default_opset=op)
def rotate_two(x: HS, positions: PS) -> HS:
    cos, sin = CosSin(positions, op.Constant(value=inv))
    return Rotate(x, cos, sin, half=4) * Rotate(Norm(x, op.Constant(value=r)), cos, sin, half=4)


@script(default_opset=opset23)
def rotate_pairs(x: HS, positions: PS) -> HS:
    angle = opset23.Unsqueeze(opset23.Cast(positions, to=1), opset23.Constant(value_ints=[2, 3])) * opset23.Constant(
        value=inv
    )
    two = opset23.Reshape(x, opset23.Constant(value_ints=[0, 0, 4, 4, 2]))
    a, b = opset23.Split(two, num_outputs=2, axis=-1)
    c = opset23.Unsqueeze(opset23.Cos(angle), opset23.Constant(value_ints=[-1]))
    s = opset23.Unsqueeze(opset23.Sin(angle), opset23.Constant(value_ints=[-1]))
    return opset23.Reshape(opset23.Concat(a * c - b * s, a * s + b * c, axis=-1), opset23.Shape(x))


scripted("rotary-attribute", rotate, turned, placed, rope=1)
scripted("rotary-two-calls", rotate_two, lambda x, p: turned(x, p) * turned(rms(x, R), p), placed, rmsnorm=1, rope=2)
scripted("rotary-pairs-23", rotate_pairs, lambda x, p: turned(x, p, pairs=True), placed, rope=1)


@script(acts, default_opset=op)
def RouteOf(logits, k, scale: float = 1.0):
    weights, ids = op.TopK(op.Sigmoid(logits), k, axis=-1)
    return weights / op.ReduceSum(weights, op.Constant(value_ints=[-1])) * scale, ids


@script(acts, default_opset=op)
def Expert(x, g, u, d):
    return op.MatMul(Swish(op.MatMul(x, g)) * op.MatMul(x, u), d)


@script(default_opset=op)
def routed(x: TS) -> TS:
    logits = op.MatMul(x, op.Constant(value=router))
    weights, ids = RouteOf(logits, op.Constant(value_ints=[2]), scale=2.5)
    combine = op.ScatterElements(logits * 0.0, ids, weights, axis=1)
    y = Expert(x, op.Constant(value=xg), op.Constant(value=xu), op.Constant(value=xd))
    return op.Einsum(y, combine, equation="etd,te->td")


@script(default_opset=op)
def mixture_of_all(x: TS) -> TS:
    p = op.Softmax(op.MatMul(x, op.Constant(value=router)), axis=-1)
    values, ids = op.TopK(p, op.Constant(value_ints=[2]), axis=-1)
    weights = values / op.ReduceSum(values, op.Constant(value_ints=[-1]))
    combine = op.ScatterElements(p * 0.0, ids, weights, axis=1)
    y = Expert(x, op.Constant(value=xg), op.Constant(value=xu), op.Constant(value=xd))
    return op.Einsum(y, combine, equation="etd,te->td")


def np_routed(z):
    weights, ids = best(sigmoid(z))
    return weights / weights.sum(-1, keepdims=True) * 2.5, ids


for name, model, choose in ("router-function", routed, np_routed), ("moe-of-all", mixture_of_all, np_renormalized):
    golden = lambda x, choose=choose: numpy_layer(x, choose, ROUTER, XG, XU, XD)
    scripted(name, model, golden, tokens, router=1, moe=1)


# Traced by the builder.
def mean_square(op, x):
    return op.ReduceMean(op.Mul(x, x), [-1], keepdims=1)


def built_norm(op, x, scale, eps=1e-6):
    return op.Mul(op.Mul(x, op.Reciprocal(op.Sqrt(op.Add(mean_square(op, x), eps)))), scale)


def function(name, form, inputs, overload=""):
    """A function of a graph; those of one name are overloads of each other."""
    values = [ir.Value(name=n) for n in inputs]
    made = build_function(form, values, domain="zoo.built", name=name, opset_imports={"": 21})
    made.overload = overload
    return made


FLOAT_NORM = function("Norm", lambda op, x, s: built_norm(op, x, s, 1e-6), ["x", "s"], "small")
LARGE_NORM = function("Norm", lambda op, x, s: built_norm(op, x, s, 1e-2), ["x", "s"], "large")
GATED = function("Gated", lambda op, g, u: op.Mul(op.Mul(g, op.Sigmoid(g)), u), ["g", "u"])


def overloads(op, x):
    y = op.call(FLOAT_NORM, x, op.initializer(ir.tensor(S), "s"))
    return op.call(LARGE_NORM, y, op.initializer(ir.tensor(S2), "s2"))


traced(
    "norm-traced", lambda op, x: built_norm(op, x, op.initializer(ir.tensor(S), "s")), lambda x: rms(x, S), rmsnorm=1
)
traced(
    "norm-traced-23",
    lambda op, x: op.Div(op.Mul(op.initializer(ir.tensor(S), "s"), x), op.Sqrt(op.Add(mean_square(op, x), 1e-6))),
    lambda x: rms(x, S),
    version=23,
    rmsnorm=1,
)
traced("norm-overloads", overloads, lambda x: rms(rms(x, S), S2, 1e-2), rmsnorm=2)
traced(
    "gate-traced-function",
    lambda op, x: op.call(GATED, *(op.MatMul(x, op.initializer(ir.tensor(m), n)) for n, m in (("g", WG), ("u", WU)))),
    lambda x: silu(x @ WG) * (x @ WU), out=("B", "S", F), glu=1,
)  # fmt: skip


class RMSNorm(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight = nn.Parameter(scale.shape, name="weight", data=ir.tensor(scale))

    def forward(self, op, x):
        return built_norm(op, x, self.weight)


class Linear(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        matrix = np.ascontiguousarray(matrix.T)
        self.weight = nn.Parameter(matrix.shape, name="weight", data=ir.tensor(matrix))

    def forward(self, op, x):
        return op.MatMul(x, op.Transpose(self.weight, perm=[1, 0]))


class Mlp(nn.Module):
    def __init__(self, g, u, d):
        super().__init__()
        self.gate, self.up, self.down = Linear(g), Linear(u), Linear(d)

    def forward(self, op, x):
        g = self.gate(op, x)
        return self.down(op, op.Mul(op.Mul(g, op.Sigmoid(g)), self.up(op, x)))


Q, KEY, V, O = (w.matrix(D, D) for _ in range(4))  # noqa: E741


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = map(Linear, (Q, KEY, V, O))

    def forward(self, op, x, cos, sin):
        def heads(m):
            return op.Transpose(op.Reshape(m(op, x), [0, 0, 2, W]), perm=[0, 2, 1, 3])

        def turn(t):
            a, b = op.Split(t, num_outputs=2, axis=-1, _outputs=2)
            return op.Add(op.Mul(t, cos), op.Mul(op.Concat(op.Neg(b), a, axis=-1), sin))

        scores = op.Mul(op.MatMul(turn(heads(self.q)), op.Transpose(turn(heads(self.k)), perm=[0, 1, 3, 2])), W**-0.5)
        a = op.MatMul(op.Softmax(scores, axis=-1), heads(self.v))
        return self.o(op, op.Reshape(op.Transpose(a, perm=[0, 2, 1, 3]), [0, 0, D]))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.attention, self.mlp = RMSNorm(S), RMSNorm(S2), Attention(), Mlp(WG, WU, WD)

    def forward(self, op, x, positions):
        angle = op.Mul(op.Unsqueeze(op.Cast(positions, to=1), [1, 3]), op.initializer(ir.tensor(inverse), "inverse"))
        angle = op.Concat(angle, angle, axis=-1)
        x = op.Add(x, self.attention(op, self.n1(op, x), op.Cos(angle), op.Sin(angle)))
        return op.Add(x, self.mlp(op, self.n2(op, x)))


def np_layer(x, positions):
    heads = lambda h, m: (h @ m).reshape(*x.shape[:2], 2, W)
    h = rms(x, S)
    scores = np.einsum("bthw,bshw->bhts", turned(heads(h, Q), positions), turned(heads(h, KEY), positions)) * W**-0.5
    x = x + np.einsum("bhts,bshw->bthw", softmax(scores), heads(h, V)).reshape(x.shape) @ O
    h = rms(x, S2)
    return x + (silu(h @ WG) * (h @ WU)) @ WD


traced("gate-module", lambda op, x: Mlp(WG, WU, WD)(op, x), lambda x: (silu(x @ WG) * (x @ WU)) @ WD, glu=1)
traced(
    "decoder-module",
    lambda op, *args: Layer()(op, *args),
    np_layer,
    x3 | {"positions": i32("B", "S")},
    rmsnorm=2,
    rope=2,
    glu=1,
)
traced(
    "decoder-module-static",
    lambda op, *args: Layer()(op, *args),
    np_layer,
    {"x": f32(2, 7, D), "positions": i32(2, 7)},
    version=23,
    rmsnorm=2,
    rope=2,
    glu=1,
)


@script(norms, default_opset=op)
def Heads(x, m):
    return op.Reshape(op.MatMul(x, m), op.Constant(value_ints=[0, 0, 2, 8]))


@script(norms, default_opset=op)
def Mix(x, positions, q, k, v, o, inverse):
    cos, sin = CosSin(positions, inverse)
    a = op.Transpose(Rotate(Heads(x, q), cos, sin, half=4), perm=[0, 2, 1, 3])
    b = op.Transpose(Rotate(Heads(x, k), cos, sin, half=4), perm=[0, 2, 3, 1])
    y = op.MatMul(
        op.Softmax(op.MatMul(a, b) * 0.3535533905932738, axis=-1), op.Transpose(Heads(x, v), perm=[0, 2, 1, 3])
    )
    return op.MatMul(op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, 16])), o)


@script(norms, default_opset=op)
def Block(x, positions, s1, s2, q, k, v, o, inverse, g, u, d):
    h = x + Mix(Norm(x, s1), positions, q, k, v, o, inverse)
    return h + Expert(Norm(h, s2), g, u, d)


wq, wk, wv, wo = map(t, (Q, KEY, V, O))


@script(default_opset=op)
def block_function(x: XS, positions: PS) -> XS:
    norm1, norm2, inverse = op.Constant(value=s), op.Constant(value=s2), op.Constant(value=inv)
    q, k, v, o = op.Constant(value=wq), op.Constant(value=wk), op.Constant(value=wv), op.Constant(value=wo)
    g, u, d = op.Constant(value=wg), op.Constant(value=wu), op.Constant(value=wd)
    return Block(x, positions, norm1, norm2, q, k, v, o, inverse, g, u, d)


scripted(
    "decoder-block-function", block_function, np_layer, x3 | {"positions": i32("B", "S")}, rmsnorm=2, rope=2, glu=1
)
