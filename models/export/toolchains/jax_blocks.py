"""Norms, gated units and rotary embeddings as JAX code has them (Flax linen and nnx, MaxText, Gemma, T5X, PaLM-jax)."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax2onnx import onnx_function

from cases import Cases, Weights, angles, f16, f32, i32

CASES = Cases()
D, F, H, W = 16, 24, 4, 8  # channels, hidden channels, heads, channels of a head
x3 = {"x": f32("B", "S", D)}


def norm(name, **blocks):
    return CASES(f"norm-{name}", **(blocks or {"rmsnorm": 1}))


@norm("linen")
def _():
    module = nn.RMSNorm(epsilon=1e-5)
    params = {"params": {"scale": Weights("linen").scale(D)}}
    return (lambda x: module.apply(params, x)), x3


@norm("nnx")
def _():
    module = nnx.RMSNorm(D, epsilon=1e-6, rngs=nnx.Rngs(0))
    module.scale.value = jnp.asarray(Weights("nnx").scale(D))
    return module, x3


@norm("t5")
def _():
    scale = Weights("t5").scale(D)

    def layer_norm(x):
        variance = jnp.power(x.astype("f4"), 2).mean(axis=-1, keepdims=True)
        return scale * (x / jnp.sqrt(variance + 1e-6))

    return layer_norm, {"x": f32(2, 7, D)}


@norm("gemma")
def _():
    scale = Weights("gemma").bias(D)

    def rms(x):
        var = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        normed = x * jax.lax.rsqrt(var + 1e-6)
        return normed * (1 + jnp.expand_dims(scale, axis=range(x.ndim - 1)))

    return rms, x3


@norm("maxtext-fp16")
def _():
    scale = Weights("maxtext").scale(D)

    def rms(x):
        x = jnp.asarray(x, jnp.float32)
        mean2 = jnp.mean(jax.lax.square(x), axis=-1, keepdims=True)
        y = jnp.asarray(x * jax.lax.rsqrt(mean2 + 1e-6), jnp.float16)
        return y * jnp.asarray(scale, jnp.float16)

    return rms, {"x": f16("B", "S", D)}


@norm("haiku")
def _():
    scale = Weights("haiku").scale(D)

    def rms(x):
        mean_squared = jnp.mean(jnp.square(x), axis=(-1,), keepdims=True)
        mean_squared = jnp.broadcast_to(mean_squared, x.shape)
        return x * jnp.broadcast_to(scale, x.shape) * jax.lax.rsqrt(mean_squared + 1e-5)

    return rms, x3


@norm("einsum")
def _():
    scale = Weights("einsum").scale(D)

    def rms(x):
        power = jnp.einsum("bsd,bsd->bs", x, x) / x.shape[-1]
        return jnp.einsum("bsd,bs,d->bsd", x, jax.lax.rsqrt(power + 1e-6), scale)

    return rms, x3


@norm("vmap")
def _():
    scale = Weights("vdot").scale(D)

    def row(x):
        return x / jnp.sqrt(jnp.sum(x * x) / D + 1e-6) * scale

    return jax.vmap(jax.vmap(row)), x3


@norm("linalg")
def _():
    scale = Weights("linalg").scale(D)

    def rms(x):
        length = jnp.linalg.norm(x, axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(length**2 * D**-1.0 + 1e-6) * scale

    return rms, x3


@norm("power-half")
def _():
    scale = Weights("power").scale(D)
    return (lambda x: x * (jnp.sum(x**2, -1, keepdims=True) / D + 1e-5) ** -0.5 * scale), x3


@norm("sum-then-sqrt-d")
def _():  # x sqrt(d) / sqrt(sum + d eps), as in lucidrains' code with an epsilon
    scale = Weights("sum").scale(D)
    return (lambda x: x * D**0.5 / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True) + D * 1e-6) * scale), x3


@norm("residual")
def _():
    scale = Weights("residual").scale(D)

    def block(x, y):
        h = x + y
        return h, h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6) * scale

    return block, {"x": f32("B", "S", D), "y": f32("B", "S", D)}


@norm("heads")
def _():
    module = nn.RMSNorm(epsilon=1e-6)
    params = {"params": {"scale": Weights("heads").scale(W)}}
    return (lambda x: module.apply(params, x.reshape(*x.shape[:-1], H, W))), {"x": f32("B", "S", H * W)}


@norm("channels-first")
def _():  # the channels of an image or of sound come before its places
    scale = Weights("first").scale(D)

    def rms(x):
        return x * jax.lax.rsqrt(jnp.mean(x**2, axis=1, keepdims=True) + 1e-6) * scale[:, None]

    return rms, {"x": f32("B", D, "S")}


@norm("two-axes")
def _():
    module = nn.RMSNorm(epsilon=1e-6, reduction_axes=(-2, -1), feature_axes=(-2, -1))
    params = {"params": {"scale": Weights("two").scale(H, W)}}
    return (lambda x: module.apply(params, x)), {"x": f32("B", "S", H, W)}


@norm("gated", rmsnorm=1, glu=1)
def _():
    scale = Weights("gated").scale(D)

    def mixer(x, z):
        y = x * jax.nn.silu(z)
        return y * jax.lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-5) * scale

    return mixer, {"x": f32("B", "S", D), "z": f32("B", "S", D)}


@onnx_function
class Norm(nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.asarray(Weights("function").scale(D)))

    def __call__(self, x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * self.scale


@norm("function")
def _():
    return Norm(), x3


@norm("layernorm", layernorm=1)
def _():
    scale = Weights("layer").scale(D)

    def layer_norm(x):
        mean = jnp.mean(x, -1, keepdims=True)
        var = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * scale

    return layer_norm, x3


def gate(name, **blocks):
    return CASES(f"gate-{name}", **(blocks or {"glu": 1}))


def mlp(name, unit):
    """Adds an MLP with the gated unit."""

    @gate(name)
    def _():
        w = Weights(name)
        wg, wu, wd = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
        return (lambda x: unit(x @ wg, x @ wu) @ wd), x3


mlp("swiglu", lambda g, u: nn.silu(g) * u)
mlp("swiglu-sigmoid", lambda g, u: u * (g * jax.nn.sigmoid(g)))
mlp("swiglu-exp", lambda g, u: g / (1 + jnp.exp(-g)) * u)
mlp("swiglu-tanh", lambda g, u: g * 0.5 * (1 + jnp.tanh(0.5 * g)) * u)
mlp("swiglu-logistic", lambda g, u: jax.lax.logistic(g) * g * u)
mlp("geglu", lambda g, u: jax.nn.gelu(g) * u)
mlp("geglu-exact", lambda g, u: jax.nn.gelu(g, approximate=False) * u)
mlp("geglu-erfc", lambda g, u: 0.5 * g * jax.lax.erfc(-g * np.float32(2**-0.5)) * u)
mlp("geglu-erf", lambda g, u: g * (jax.lax.erf(g / np.float32(2**0.5)) + 1) / 2 * u)
mlp("quick", lambda g, u: g * jax.nn.sigmoid(1.702 * g) * u)
mlp(
    "gptoss",
    lambda g, u: jnp.minimum(g, 2.0) * jax.nn.sigmoid(1.702 * jnp.minimum(g, 2.0)) * (jnp.clip(u, -2.0, 2.0) + 1),
)


@gate("nnx-linear")
def _():
    class Mlp(nnx.Module):
        def __init__(self, rngs):
            self.gate, self.up = nnx.Linear(D, F, rngs=rngs), nnx.Linear(D, F, rngs=rngs)
            self.down = nnx.Linear(F, D, use_bias=False, rngs=rngs)

        def __call__(self, x):
            return self.down(nnx.silu(self.gate(x)) * self.up(x))

    return Mlp(nnx.Rngs(1)), x3


@gate("linen-dense")
def _():
    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x):
            g = nn.Dense(F, use_bias=False)(x)
            return nn.Dense(D, use_bias=False)(nn.gelu(g) * nn.Dense(F, use_bias=False)(x))

    module = Mlp()
    params = module.init(jax.random.key(1), jnp.zeros((1, 1, D)))
    return (lambda x: module.apply(params, x)), x3


@gate("gemma-einsum")
def _():  # gate and up are one tensor with an axis of two
    w = Weights("gemma")
    gating, down = w.matrix(2, D, F), w.matrix(F, D)

    def feed_forward(x):
        g = jnp.dot(x, gating[0])
        return jnp.dot(nn.gelu(g) * jnp.dot(x, gating[1]), down)

    return feed_forward, x3


@gate("gemma3-einsum")
def _():
    w = Weights("gemma3")
    gating, down = w.matrix(2, F, D), w.matrix(F, D)

    def feed_forward(x):
        g = jnp.einsum("...F,NHF->...NH", x, gating)
        return jnp.einsum("...H,HF->...F", nn.gelu(g[..., 0, :]) * g[..., 1, :], down)

    return feed_forward, x3


@gate("split")
def _():
    w = Weights("split")
    wi, wo = w.matrix(D, 2 * F), w.matrix(F, D)

    def feed_forward(x):
        u, g = jnp.split(x @ wi, 2, axis=-1)
        return (u * jax.nn.swish(g)) @ wo

    return feed_forward, x3


@gate("interleaved")
def _():
    w = Weights("interleaved")
    wi, wo = w.matrix(D, 2 * F), w.matrix(F, D)

    def feed_forward(x):
        h = x @ wi
        return (nn.silu(h[..., ::2]) * h[..., 1::2]) @ wo

    return feed_forward, x3


@gate("maxtext-activations")
def _():  # MaxText multiplies the list of activations with reduce
    w = Weights("maxtext")
    wi, wo = w.matrix(D, 2, F), w.matrix(F, D)

    def feed_forward(x):
        h = jax.lax.dot_general(x, wi, (((2,), (0,)), ((), ())))
        parts = [nn.silu(h[:, :, 0, ...]), h[:, :, 1, ...]]
        return functools.reduce(jnp.multiply, parts) @ wo

    return feed_forward, x3


@gate("fp16")
def _():
    w = Weights("fp16")
    wg, wu, wd = (w.matrix(*s, dtype=np.float16) for s in [(D, F), (D, F), (F, D)])
    return (lambda x: (nn.silu(x @ wg) * (x @ wu)) @ wd), {"x": f16("B", "S", D)}


@onnx_function  # jax2onnx finds it only in its module
def activate(g, u):
    return nn.silu(g) * u


@gate("function")
def _():
    w = Weights("function")
    wg, wu, wd = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)
    return (lambda x: activate(x @ wg, x @ wu) @ wd), x3


def rotary(name, rope=1, **blocks):
    return CASES(f"rotary-{name}", rope=rope, **blocks)


heads = {"x": f32("B", "S", H, W)}
placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}


def sines(positions, theta=10000.0):
    timescale = theta ** (2 * jnp.arange(0, W // 2) / W)
    angle = positions[..., None] / timescale[None, None, :]
    return jnp.sin(angle), jnp.cos(angle)


@rotary("gemma")
def _():
    def rope(x, positions):
        sin, cos = sines(positions)
        sin, cos = sin[..., None, :], cos[..., None, :]
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)

    return rope, placed


@rotary("maxtext")
def _():
    def rope(x, positions):
        fraction = 2 * jnp.arange(0, W // 2) / W
        timescale = 1.0 * (10000.0 / 1.0) ** fraction
        positions = positions[:, :, jnp.newaxis, jnp.newaxis]
        sinusoid = positions / timescale
        sin, cos = jnp.sin(sinusoid).astype(x.dtype), jnp.cos(sinusoid).astype(x.dtype)
        first_half, second_half = jnp.split(x, 2, axis=-1)
        first_part = first_half * cos - second_half * sin
        second_part = second_half * cos + first_half * sin
        return jnp.concatenate((first_part, second_part), axis=-1)

    return rope, placed


@rotary("palm-every-two")
def _():  # PaLM-jax, GPT-J: rotate_every_two
    table = jnp.asarray(np.repeat(angles(np.arange(32), W), 2, -1), jnp.float32)

    def every_two(x):
        return jnp.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)

    def rope(x):
        t = table[: x.shape[1]][None, :, None, :]
        return x * jnp.cos(t) + every_two(x) * jnp.sin(t)

    return rope, {"x": f32("B", 7, H, W)}


@rotary("gptj-part")
def _():  # transformers' FlaxGPTJ: the first channels of each head, tables taken by position
    table = np.repeat(angles(np.arange(32), W // 2), 2, -1)
    sin, cos = jnp.asarray(np.sin(table), jnp.float32), jnp.asarray(np.cos(table), jnp.float32)

    def every_two(x):
        return jnp.stack((-x[:, :, :, 1::2], x[:, :, :, ::2]), axis=-1).reshape(x.shape)

    def rope(x, positions):
        s, c = jnp.take(sin, positions, axis=0)[:, :, None, :], jnp.take(cos, positions, axis=0)[:, :, None, :]
        rot, rest = x[:, :, :, : W // 2], x[:, :, :, W // 2 :]
        return jnp.concatenate([rot * c + every_two(rot) * s, rest], axis=-1)

    return rope, placed


@rotary("llama-flax")
def _():  # transformers' FlaxLlama
    table = np.concatenate([angles(np.arange(32), W)] * 2, -1)[None, :, None]
    sin, cos = jnp.asarray(np.sin(table), jnp.float32), jnp.asarray(np.cos(table), jnp.float32)

    def half(x):
        return jnp.concatenate((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), axis=-1)

    def rope(x, positions):
        c, s = cos[0, :, 0][positions][:, :, None], sin[0, :, 0][positions][:, :, None]
        return x * c + half(x) * s

    return rope, placed


@rotary("roll")
def _():
    sign = jnp.asarray([-1.0] * (W // 2) + [1.0] * (W // 2))

    def rope(x, positions):
        sin, cos = (jnp.concatenate([t, t], -1)[:, :, None] for t in sines(positions))
        return x * cos + jnp.roll(x, W // 2, axis=-1) * sign * sin

    return rope, placed


@rotary("matrix")
def _():  # a constant matrix turns the channels of each head
    turn = np.zeros((W, W), np.float32)
    for i in range(W // 2):
        turn[i + W // 2, i], turn[i, i + W // 2] = -1, 1

    def rope(x, positions):
        sin, cos = (jnp.concatenate([t, t], -1)[:, :, None] for t in sines(positions))
        return x * cos + jnp.einsum("bshd,de->bshe", x, turn) * sin

    return rope, placed


@rotary("axis-of-two")
def _():
    def rope(x, positions):
        sin, cos = (t[:, :, None, None] for t in sines(positions))
        two = x.reshape(*x.shape[:-1], 2, W // 2)
        turned = jnp.concatenate([-two[..., 1:, :], two[..., :1, :]], axis=-2)
        return (two * cos + turned * sin).reshape(x.shape)

    return rope, placed


@rotary("einsum-of-pairs")
def _():
    def rope(x, positions):
        sin, cos = sines(positions)
        turn = jnp.stack([jnp.stack([cos, -sin], -1), jnp.stack([sin, cos], -1)], -2)
        pairs = x.reshape(*x.shape[:-1], W // 2, 2)
        return jnp.einsum("bspij,bshpj->bshpi", turn, pairs).reshape(x.shape)

    return rope, placed


@rotary("heads-first", rope=2)
def _():
    def turn(x, sin, cos):
        a, b = x[..., : W // 2], x[..., W // 2 :]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def rope(q, k):
        sin, cos = sines(jnp.arange(q.shape[2])[None])
        return turn(q, sin[:, None], cos[:, None]), turn(k, sin[:, None], cos[:, None])

    return rope, {"q": f32("B", H, 7, W), "k": f32("B", 2, 7, W)}


@rotary("update-slices")
def _():
    def rope(x, positions):
        sin, cos = (t[:, :, None] for t in sines(positions))
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.zeros_like(x).at[..., ::2].set(a * cos - b * sin).at[..., 1::2].set(a * sin + b * cos)

    return rope, placed


@rotary("vmap")
def _():
    def one(x, position):  # a head at a position
        angle = position * 10000.0 ** (-jnp.arange(0, W, 2) / W)
        a, b = x[: W // 2], x[W // 2 :]
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)])

    return jax.vmap(jax.vmap(jax.vmap(one, (0, None)))), placed


@rotary("normed", rmsnorm=1)
def _():
    scale = Weights("normed").scale(W)

    def rope(x, positions):
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale
        sin, cos = (t[:, :, None] for t in sines(positions))
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    return rope, placed


@rotary("fp16")
def _():
    def rope(x, positions):
        sin, cos = (t[:, :, None] for t in sines(positions))
        a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)

    return rope, {"x": f16("B", "S", H, W), "positions": i32("B", "S")}


@onnx_function
def apply(x, sin, cos):
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@rotary("function", rope=2)
def _():
    def rope(x, y, positions):
        sin, cos = (t[:, :, None] for t in sines(positions))
        return apply(x, sin, cos), apply(y, sin, cos)

    return rope, {"x": f32("B", "S", H, W), "y": f32("B", "S", H, W), "positions": i32("B", "S")}
