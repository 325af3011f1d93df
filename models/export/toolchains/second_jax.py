"""The second set of JAX: norms, gated units and rotary embeddings, of packages where one has them (Haiku, Equinox,
Flax, PaLM-jax, Gemma, Tunix), else as their users write them."""

import functools

import einops
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from cases import Cases, Weights, angles, f16, f32, i32

CASES = Cases()
D, F, H, W = 16, 24, 4, 8
x3 = {"x": f32("B", "S", D)}
x4 = {"x": f32("B", "S", H, W)}


def away(params, name):
    """The parameters with those of norms away from ones and zeros."""
    w = Weights(name)
    return jax.tree.map(lambda p: p + w.bias(*p.shape).astype(p.dtype) if p.ndim == 1 else p, params)


def linen(name, module, shapes=x3, **blocks):
    """Adds a module of Flax linen."""

    @CASES(name, **blocks)
    def _():
        dtype, dims = shapes["x"]
        variables = module.init(jax.random.key(1), jnp.zeros([d if isinstance(d, int) else 2 for d in dims], dtype))
        variables = away(variables, name)
        return (lambda x: module.apply(variables, x)), shapes


def haiku(name, form, shapes=x3, **blocks):
    """Adds a function that makes modules of Haiku."""

    @CASES(name, **blocks)
    def _():
        transformed = hk.without_apply_rng(hk.transform(form))
        zeros = [jnp.zeros([d if isinstance(d, int) else 2 for d in dims], t) for t, dims in shapes.values()]
        params = away(transformed.init(jax.random.key(1), *zeros), name)
        return (lambda *args: transformed.apply(params, *args)), shapes


def rows(module):
    """An Equinox module, which is of one row, over a batch of sequences."""
    return jax.vmap(jax.vmap(module))


def scaled(name, form, shapes=x3, size=D, rmsnorm=1, **blocks):
    """Adds a norm given as a function of x and its scale."""

    @CASES(name, rmsnorm=rmsnorm, **blocks)
    def _():
        scale = Weights(name).scale(size)
        return (lambda x: form(x, scale)), shapes


linen("norm-linen-fp16", nn.RMSNorm(dtype=jnp.float16), {"x": f16("B", "S", D)}, rmsnorm=1)
linen("norm-linen-plain", nn.RMSNorm(use_scale=False), rmsnorm=1)
linen("norm-linen-last-but-one", nn.RMSNorm(reduction_axes=1, feature_axes=1), {"x": f32("B", D, "S")}, rmsnorm=1)
linen(
    "norm-linen-all-but-batch", nn.RMSNorm(reduction_axes=(1, 2), feature_axes=(1, 2)), {"x": f32("B", H, W)}, rmsnorm=1
)
linen("norm-linen-layernorm", nn.LayerNorm(), layernorm=1)
linen("norm-linen-layernorm-slow", nn.LayerNorm(use_fast_variance=False, use_bias=False), layernorm=1)
haiku("norm-haiku", lambda x: hk.RMSNorm(-1)(x), rmsnorm=1)
haiku("norm-haiku-channels-first", lambda x: hk.RMSNorm(1, param_axis=1)(x), {"x": f32("B", D, "S")}, rmsnorm=1)
haiku("norm-haiku-layernorm", lambda x: hk.LayerNorm(-1, True, True)(x), layernorm=1)


@CASES("norm-equinox", rmsnorm=1)
def _():
    norm = away(eqx.nn.RMSNorm(D), "equinox")
    return rows(norm), x3


@CASES("norm-equinox-plain", rmsnorm=1)
def _():
    return rows(eqx.nn.RMSNorm(D, use_weight=False, use_bias=False)), x3


@CASES("norm-equinox-layernorm", layernorm=1)
def _():
    return rows(away(eqx.nn.LayerNorm(D), "layernorm")), x3


@CASES("norm-palm-layernorm", layernorm=1)
def _():  # the mean of squares less the square of the mean
    from palm_jax.palm import LayerNorm

    norm = LayerNorm(D)
    norm = eqx.tree_at(lambda n: n.gamma, norm, jnp.asarray(Weights("palm").scale(D)))
    return norm, x3


def gemma_norm():
    from gemma.gm.nn._layers import RMSNorm

    return RMSNorm()


@CASES("norm-gemma-package", rmsnorm=1)
def _():
    module = gemma_norm()
    variables = away(module.init(jax.random.key(1), jnp.zeros((1, 1, D))), "gemma")
    return (lambda x: module.apply(variables, x)), x3


scaled(
    "norm-variance-and-mean",
    lambda x, s: x / jnp.sqrt(x.var(-1, keepdims=True) + x.mean(-1, keepdims=True) ** 2 + 1e-6) * s,
)
scaled("norm-vecdot", lambda x, s: x * jax.lax.rsqrt(jnp.vecdot(x, x)[..., None] / D + 1e-6) * s)
scaled("norm-rms-of-abs", lambda x, s: x * s / jnp.sqrt(jnp.mean(jnp.abs(x) ** 2, axis=-1, keepdims=True) + 1e-5))
scaled("norm-one-plus", lambda x, s: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * (1.0 + s))
scaled(
    "norm-map-rows", lambda x, s: jax.lax.map(lambda r: r / jnp.sqrt(jnp.mean(r**2) + 1e-6) * s, x), {"x": f32(7, D)}
)
scaled("norm-heads-plain", lambda x, _: x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6), x4, W)
scaled(
    "norm-groups",
    lambda x, s: (lambda g: (g * jax.lax.rsqrt(jnp.mean(g**2, -1, keepdims=True) + 1e-5)).reshape(x.shape) * s)(
        x.reshape(*x.shape[:-1], 4, D // 4)
    ),
)
scaled(
    "norm-image",
    lambda x, s: x * jax.lax.rsqrt(jnp.mean(x**2, 1, keepdims=True) + 1e-6) * s[:, None, None],
    {"x": f32("B", D, 5, 6)},
)
scaled(
    "norm-fp16-inside",
    lambda x, s: ((x := x.astype(jnp.float32)) * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * s).astype(
        jnp.float16
    ),
    {"x": f16("B", "S", D)},
)
scaled(
    "norm-static-einops",
    lambda x, s: (
        x * einops.repeat(jax.lax.rsqrt(einops.reduce(x**2, "b s d -> b s", "mean") + 1e-6), "b s -> b s d", d=D) * s
    ),
    {"x": f32(2, 7, D)},
)
scaled(
    "near-norm-epsilon-outside", lambda x, s: x / (jnp.sqrt(jnp.mean(x**2, -1, keepdims=True)) + 1e-2) * s, rmsnorm=0
)
scaled("near-norm-mean-abs", lambda x, s: x / (jnp.mean(jnp.abs(x), -1, keepdims=True) + 1e-5) * s, rmsnorm=0)
scaled("near-norm-deviation", lambda x, s: x / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-6) * s, rmsnorm=0)
scaled(
    "near-norm-over-tokens", lambda x, s: x * jax.lax.rsqrt(jnp.mean(x**2, (1, 2), keepdims=True) + 1e-6) * s, rmsnorm=0
)


def mlp(name, unit, glu=1, dtype=np.float32):
    @CASES(name, glu=glu)
    def _():
        w = Weights(name)
        wg, wu, wd = w.matrix(D, F, dtype=dtype), w.matrix(D, F, dtype=dtype), w.matrix(F, D, dtype=dtype)
        return (lambda x: unit(x @ wg, x @ wu) @ wd), {"x": (dtype, ("B", "S", D))}


@jax.custom_jvp
def silu(x):
    return x * jax.nn.sigmoid(x)


silu.defjvps(lambda t, y, x: t * y)

mlp("gate-custom-gradient", lambda g, u: silu(g) * u)
mlp("gate-checkpoint", jax.checkpoint(lambda g, u: jax.nn.silu(g) * u))
mlp("gate-normal-cdf", lambda g, u: g * jax.scipy.stats.norm.cdf(g) * u)
mlp("gate-stable-sigmoid", lambda g, u: g * jnp.where(g >= 0, 1 / (1 + jnp.exp(-g)), jnp.exp(g) / (1 + jnp.exp(g))) * u)
mlp("gate-quick-plus-one", lambda g, u: (u + 1) * g * jax.nn.sigmoid(1.702 * g))
mlp("gate-clamped", lambda g, u: jax.nn.silu(jnp.minimum(g, 3.0)) * jnp.clip(u, -3.0, 3.0))
mlp("gate-fp16", lambda g, u: jax.nn.gelu(g.astype(jnp.float32)).astype(jnp.float16) * u, dtype=np.float16)
mlp("near-gate-relu", lambda g, u: jax.nn.relu(g) * u, 0)
mlp("near-gate-glu", lambda g, u: nn.glu(jnp.concatenate([u, g], -1)), 0)
mlp("near-gate-mish", lambda g, u: jax.nn.mish(g) * u, 0)
mlp("near-gate-of-itself", lambda g, u: jax.nn.silu(g + u), 0)
haiku("gate-haiku", lambda x: hk.Linear(D)(jax.nn.silu(hk.Linear(F)(x)) * hk.Linear(F)(x)), glu=1)


@CASES("gate-equinox", glu=1)
def _():
    a, b, c = jax.random.split(jax.random.key(3), 3)
    gate, up, down = eqx.nn.Linear(D, F, key=a), eqx.nn.Linear(D, F, key=b), eqx.nn.Linear(F, D, use_bias=False, key=c)
    return rows(lambda x: down(jax.nn.gelu(gate(x)) * up(x))), x3


@CASES("gate-griffin", glu=1)
def _():  # RecurrentGemma: one product for both, with a bias, whose first axis is the two
    w = Weights("griffin")
    both, bias, down = w.matrix(2, D, F), w.bias(2, 1, 1, F), w.matrix(F, D)

    def block(x):
        out = jnp.einsum("...td,cdD->c...tD", x, both) + bias
        return (nn.gelu(out[0]) * out[1]) @ down

    return block, x3


def packed(name, cut, width=2 * F, **form):
    @CASES(name, glu=1)
    def _():
        w = Weights(name)
        both, down = w.matrix(D, width), w.matrix(F, D)

        def block(x):
            g, u = cut(x @ both)
            return (jax.nn.silu(g) * u) @ down

        return block, x3


packed("gate-packed-pairs", lambda h: jnp.moveaxis(h.reshape(*h.shape[:-1], F, 2), -1, 0))
packed("gate-packed-einops", lambda h: einops.rearrange(h, "b s (two f) -> two b s f", two=2))
packed("gate-packed-of-five", lambda h: jnp.split(h, [8, 8 + F, 16 + F, 16 + 2 * F], -1)[1::2], 24 + 2 * F)


@CASES("gate-dense-general", glu=1)
def _():  # MaxText's fused weights
    w = Weights("general")
    wi, wo = w.matrix(D, 2, F), w.matrix(F, D)

    def block(x):
        h = jnp.tensordot(x, wi, 1)
        parts = [fn(p) for fn, p in zip([jax.nn.silu, lambda p: p], jnp.unstack(h, axis=2), strict=True)]
        return jnp.tensordot(functools.reduce(lambda a, b: a * b, parts), wo, 1)

    return block, x3


@CASES("gate-of-heads", glu=1)
def _():
    w = Weights("heads")
    wg, wu = w.matrix(H, W, F), w.matrix(H, W, F)
    return (lambda x: jax.nn.silu(jnp.einsum("bshw,hwf->bshf", x, wg)) * jnp.einsum("bshw,hwf->bshf", x, wu)), x4


placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}


def turn(name, form, shapes=placed, rope=1):
    @CASES(name, rope=rope)
    def _():
        return form, shapes


def sines(positions, size=W):
    inverse = 1.0 / 10000.0 ** (np.arange(0, size, 2, dtype=np.float32) / size)
    angle = jnp.einsum("bs,f->bsf", positions.astype(jnp.float32), inverse)[:, :, None]
    return jnp.sin(angle), jnp.cos(angle)


def of_sines(form, size=W):
    return lambda x, positions: form(x, *sines(positions, size))


def twice(t):
    return jnp.concatenate([t, t], -1)


def in_row(x, sin, cos):
    return jnp.concatenate(
        [x[..., : W // 2] * cos - x[..., W // 2 :] * sin, x[..., W // 2 :] * cos + x[..., : W // 2] * sin], -1
    )


def deepseek(x, sin, cos):  # pairs in, halves out
    x = jnp.swapaxes(x.reshape(*x.shape[:-1], W // 2, 2), -1, -2).reshape(x.shape)
    return in_row(x, sin, cos)


def griffin(x, sin, cos):  # the first half of the channels
    r, rest = jnp.split(x, 2, axis=-1)
    a, b = jnp.split(r, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def glm(x, sin, cos):  # pairs of the first half
    r = x[..., : W // 2].reshape(*x.shape[:-1], W // 4, 2)
    out = jnp.stack([r[..., 0] * cos - r[..., 1] * sin, r[..., 1] * cos + r[..., 0] * sin], -1)
    return jnp.concatenate([out.reshape(*x.shape[:-1], W // 2), x[..., W // 2 :]], -1)


def flipped(x, sin, cos):
    two = x.reshape(*x.shape[:-1], 2, W // 2)
    return (two * cos[..., None, :] + jnp.flip(two, -2) * jnp.stack([-sin, sin], -2)).reshape(x.shape)


turn("rotary-pairs-to-halves", of_sines(deepseek))
turn("rotary-griffin", of_sines(griffin, W // 2))
turn("rotary-glm", of_sines(glm, W // 2))
turn("rotary-flip", of_sines(flipped))
turn(
    "rotary-take",
    of_sines(
        lambda x, s, c: (
            x * twice(c) + jnp.take(x, np.roll(np.arange(W), W // 2), axis=-1) * jnp.concatenate([-s, s], -1)
        )
    ),
)
turn("rotary-inverse", of_sines(lambda x, s, c: in_row(x, -s, c)))
turn("rotary-factor", of_sines(lambda x, s, c: in_row(x, s * 1.2, c * 1.2)))
turn(
    "rotary-last-channels",
    of_sines(
        lambda x, s, c: jnp.concatenate(
            [x[..., : W // 2], (r := x[..., W // 2 :])[..., :2] * c - r[..., 2:] * s, r[..., 2:] * c + r[..., :2] * s],
            -1,
        ),
        W // 2,
    ),
)
turn(
    "near-rotary-reflected",
    of_sines(
        lambda x, s, c: jnp.concatenate(
            [x[..., : W // 2] * c + x[..., W // 2 :] * s, x[..., : W // 2] * s - x[..., W // 2 :] * c], -1
        )
    ),
    rope=0,
)
turn(
    "near-rotary-other-axis",
    lambda x, positions: (lambda s, c: x * c + jnp.roll(x, 1, axis=2) * s)(*(twice(t) for t in sines(positions))),
    rope=0,
)


@CASES("rotary-equinox", rope=1)
def _():
    rope = eqx.nn.RotaryPositionalEmbedding(W)
    return jax.vmap(jax.vmap(rope, 1, 1)), {"x": f32("B", 7, H, W)}


@CASES("rotary-palm-package", rope=1)
def _():
    from palm_jax.palm import apply_rotary_pos_emb, fixed_pos_embedding

    table = fixed_pos_embedding(1.0 / (10000 ** (jnp.arange(0, W, 2) / W)), 7)
    return (lambda x: apply_rotary_pos_emb(x, table)), {"x": f32("B", H, 7, W)}


@CASES("rotary-decode", rope=2)
def _():  # one token: the tables from a position on
    sin, cos = (jnp.asarray(f(angles(np.arange(64), W)), jnp.float32) for f in (np.sin, np.cos))

    def step(q, k, start):
        s, c = (jax.lax.dynamic_slice_in_dim(t, start[0], q.shape[1])[None, :, None] for t in (sin, cos))
        return in_row(q, s, c), in_row(k, s, c)

    return step, {"q": f32("B", 3, H, W), "k": f32("B", 3, 1, W), "start": i32(1)}


@CASES("rotary-fused-qkv", rope=2)
def _():
    wqkv = Weights("qkv").matrix(D, 3 * H * W)

    def project(x, positions):
        qkv = (x @ wqkv).reshape(*x.shape[:-1], 3, H, W)
        sin, cos = sines(positions)
        return in_row(qkv[:, :, 0], sin, cos), in_row(qkv[:, :, 1], sin, cos), qkv[:, :, 2]

    return project, {"x": f32("B", "S", D), "positions": i32("B", "S")}


@CASES("rotary-sections", rope=1)
def _():  # Qwen2-VL: pairs of channels by time, height and width
    def rope(x, t, h, w):
        angle = jnp.concatenate(
            [
                p[..., None] * jnp.float32(10000.0) ** (-np.arange(0, W, 2)[at] / W)
                for p, at in [(t, slice(0, 2)), (h, slice(2, 3)), (w, slice(3, 4))]
            ],
            -1,
        )[:, :, None]
        return in_row(x, jnp.sin(angle), jnp.cos(angle))

    return rope, {"x": f32("B", "S", H, W)} | {k: i32("B", "S") for k in "thw"}


@CASES("rotary-axial", rope=2)
def _():  # an image: half of the channels by row, half by column
    rows_, columns = (jnp.asarray(a.reshape(-1)) for a in np.mgrid[:3, :4].astype(np.float32))
    inverse = 100.0 ** (-np.arange(0, W // 2, 2) / (W // 2))

    def half(x, places):
        angle = (places[:, None] * inverse)[None, :, None]
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack(
            [a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], -1
        ).reshape(x.shape)

    return (lambda x: jnp.concatenate([half(x[..., : W // 2], rows_), half(x[..., W // 2 :], columns)], -1)), {
        "x": f32("B", 12, H, W)
    }


@CASES("rotary-nnx", rope=1)
def _():
    class Rotary(nnx.Module):
        def __init__(self):
            table = angles(np.arange(64), W)
            self.table = nnx.Variable(jnp.asarray(np.stack([np.cos(table), np.sin(table)], -1), jnp.float32))

        def __call__(self, x, positions):
            t = self.table[...][positions][:, :, None]
            pairs = x.reshape(*x.shape[:-1], -1, 2)
            out = jnp.stack(
                [
                    pairs[..., 0] * t[..., 0] - pairs[..., 1] * t[..., 1],
                    pairs[..., 1] * t[..., 0] + pairs[..., 0] * t[..., 1],
                ],
                -1,
            )
            return out.reshape(x.shape)

    return Rotary(), placed
