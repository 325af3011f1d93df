"""Norms, gated units and rotary embeddings as TensorFlow and Keras code has them."""

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras import ops

from cases import Cases, Weights, angles, f16, f32, i32

# The opsets that tf2onnx's users have: its default is 15; a third of the models each.
OPSETS = 13, 15, 18
CASES = Cases(OPSETS)
D, F, H, W = 16, 24, 4, 8  # channels, hidden channels, heads, channels of a head
x3 = {"x": f32("B", "S", D)}


def const(a):
    """A weight: eager tensors would become inputs of the exported graph."""
    return tf.Variable(a, trainable=False)


def norm(name, **blocks):
    return CASES(f"norm-{name}", **(blocks or {"rmsnorm": 1}))


def normalize(name, form, shapes=x3, size=D):
    """Adds a norm given as a function of x and its scale."""

    @norm(name)
    def _():
        scale = const(Weights(name).scale(size))
        return (lambda x: form(x, scale)), shapes


@norm("keras")
def _():
    layer = keras.layers.RMSNormalization(epsilon=1e-6)
    layer.build((None, None, D))
    layer.scale.assign(Weights("keras").scale(D))
    return layer, x3


@norm("keras-fixed")
def _():
    layer = keras.layers.RMSNormalization(epsilon=1e-6)
    layer.build((None, None, D))
    layer.scale.assign(Weights("keras").scale(D))
    return layer, {"x": f32(2, 7, D)}


@norm("keras-hub-t5")
def _():
    from keras_hub.src.models.t5.t5_layer_norm import T5LayerNorm

    layer = T5LayerNorm(epsilon=1e-6)
    layer.build((None, None, D))
    layer.weight.assign(Weights("t5").scale(D))
    return layer, x3


@norm("keras-hub-llama")
def _():
    from keras_hub.src.models.llama.llama_layernorm import LlamaLayerNorm

    layer = LlamaLayerNorm(epsilon=1e-5)
    layer.build((None, None, D))
    layer.scale.assign(Weights("llama").scale(D))
    return layer, x3


@norm("keras-hub-gemma")
def _():
    from keras_hub.src.models.gemma.rms_normalization import RMSNormalization

    layer = RMSNormalization(epsilon=1e-6)
    layer.build((None, None, D))
    layer.scale.assign(Weights("gemma").bias(D))
    return layer, x3


normalize("rsqrt", lambda x, s: x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * s)
normalize(
    "t5-transformers",
    lambda x, s: s * (x * tf.math.rsqrt(tf.math.reduce_mean(tf.math.square(x), axis=-1, keepdims=True) + 1e-5)),
)
normalize("sqrt", lambda x, s: s * x / tf.sqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + 1e-6))
normalize("pow", lambda x, s: x * tf.pow(tf.reduce_mean(tf.pow(x, 2.0), -1, keepdims=True) + 1e-5, -0.5) * s)
normalize("norm", lambda x, s: x / tf.sqrt(tf.norm(x, axis=-1, keepdims=True) ** 2 / D + 1e-6) * s)
normalize(
    "moments",
    lambda x, s: (
        x
        * tf.math.rsqrt(
            tf.nn.moments(x, -1, shift=None, keepdims=True)[1] + tf.nn.moments(x, -1, keepdims=True)[0] ** 2 + 1e-6
        )
        * s
    ),
)
normalize("einsum", lambda x, s: x * (tf.einsum("bsd,bsd->bs", x, x) / D + 1e-6)[..., None] ** -0.5 * s)
normalize(
    "squared-difference",
    lambda x, s: x * tf.math.rsqrt(tf.reduce_mean(tf.math.squared_difference(x, 0.0), -1, keepdims=True) + 1e-6) * s,
)
normalize(
    "mesh",
    lambda x, s: (
        x * s * tf.broadcast_to(tf.math.rsqrt(tf.reduce_sum(x * x, -1, keepdims=True) * (1.0 / D) + 1e-6), tf.shape(x))
    ),
)
normalize(
    "rows",
    lambda x, s: x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * s,
    {"x": f32("T", D)},
)
normalize(
    "channels-first",
    lambda x, s: x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), 1, keepdims=True) + 1e-6) * s[:, None],
    {"x": f32("B", D, "S")},
)
normalize(
    "fp16",
    lambda x, s: (
        tf.cast(
            tf.cast(x, tf.float32)
            * tf.math.rsqrt(tf.reduce_mean(tf.square(tf.cast(x, tf.float32)), -1, keepdims=True) + 1e-5),
            tf.float16,
        )
        * tf.cast(s, tf.float16)
    ),
    {"x": f16("B", "S", D)},
)


@norm("residual")
def _():
    scale = const(Weights("residual").scale(D))

    def block(x, y):
        h = x + y
        return h, h * tf.math.rsqrt(tf.reduce_mean(tf.square(h), -1, keepdims=True) + 1e-6) * scale

    return block, {"x": f32("B", "S", D), "y": f32("B", "S", D)}


@norm("gated", rmsnorm=1, glu=1)
def _():
    scale = const(Weights("gated").scale(D))

    def mixer(x, z):
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-5) * scale * tf.nn.silu(z)

    return mixer, {"x": f32("B", "S", D), "z": f32("B", "S", D)}


@norm("near-l2")  # a maximum instead of an epsilon
def _():
    scale = const(Weights("l2").scale(D))
    return (lambda x: tf.linalg.l2_normalize(x, axis=-1, epsilon=1e-6) * D**0.5 * scale), x3


CASES[-1].blocks["rmsnorm"] = 0


@norm("layernorm", layernorm=1)
def _():
    s, b = const(Weights("ln").scale(D)), const(Weights("ln").bias(D))

    def layer_norm(x):
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, b, s, 1e-5)

    return layer_norm, x3


def gate(name, **blocks):
    return CASES(f"gate-{name}", **(blocks or {"glu": 1}))


def mlp(name, unit):
    @gate(name)
    def _():
        w = Weights(name)
        wg, wu, wd = const(w.matrix(D, F)), const(w.matrix(D, F)), const(w.matrix(F, D))
        return (lambda x: unit(x @ wg, x @ wu) @ wd), x3


mlp("silu", lambda g, u: tf.nn.silu(g) * u)
mlp("sigmoid", lambda g, u: u * g * tf.sigmoid(g))
mlp("keras-silu", lambda g, u: keras.activations.silu(g) * u)
mlp("swish-exp", lambda g, u: u * g / (1.0 + tf.exp(-g)))
mlp("quick", lambda g, u: tf.nn.swish(g, beta=1.702) * u)
mlp("gelu-tanh", lambda g, u: tf.nn.gelu(g, approximate=True) * u)
mlp("keras-gelu", lambda g, u: keras.activations.gelu(g, approximate=True) * u)
mlp("gelu-erf", lambda g, u: g * 0.5 * (1.0 + tf.math.erf(g / tf.sqrt(2.0))) * u)
mlp(
    "gelu-new",
    lambda g, u: 0.5 * g * (1.0 + tf.tanh(np.float32(np.sqrt(2 / np.pi)) * (g + 0.044715 * tf.pow(g, 3)))) * u,
)
mlp(
    "clipped",
    lambda g, u: tf.minimum(g, 2.0) * tf.sigmoid(1.702 * tf.minimum(g, 2.0)) * (tf.clip_by_value(u, -2.0, 2.0) + 1.0),
)


@gate("dense-layers")
def _():
    g, u, d = (keras.layers.Dense(n, use_bias=b) for n, b in [(F, True), (F, True), (D, False)])
    for layer, n in [(g, D), (u, D), (d, F)]:
        layer.build((None, None, n))
    return (lambda x: d(ops.silu(g(x)) * u(x))), x3


@gate("einsum-dense")
def _():
    g, u = (keras.layers.EinsumDense("abc,cd->abd", (None, F)) for _ in range(2))
    d = keras.layers.EinsumDense("abc,cd->abd", (None, D))
    for layer, n in [(g, D), (u, D), (d, F)]:
        layer.build((None, None, n))
    return (lambda x: d(ops.gelu(g(x), approximate=True) * u(x))), x3


@gate("split")
def _():
    w = Weights("split")
    wi, wo = const(w.matrix(D, 2 * F)), const(w.matrix(F, D))

    def feed_forward(x):
        g, u = tf.split(x @ wi, 2, axis=-1)
        return (tf.nn.silu(g) * u) @ wo

    return feed_forward, x3


@gate("einsum-axis-of-two")
def _():
    w = Weights("two")
    wi, wo = const(w.matrix(D, 2 * F).reshape(D, 2, F)), const(w.matrix(F, D))

    def feed_forward(x):
        h = tf.einsum("bsd,dtf->bstf", x, wi)
        return tf.einsum("bsf,fd->bsd", tf.nn.silu(h[:, :, 0]) * h[:, :, 1], wo)

    return feed_forward, x3


@gate("unstacked")
def _():
    w = Weights("unstacked")
    wi, wo = const(w.matrix(2, D, F)), const(w.matrix(F, D))

    def feed_forward(x):
        g, u = tf.unstack(tf.einsum("bsd,tdf->tbsf", x, wi))
        return (tf.nn.silu(g) * u) @ wo

    return feed_forward, x3


@gate("conv1d")
def _():
    w = Weights("conv")
    wg, wu, wd = (const(a[None]) for a in (w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)))
    return (
        lambda x: tf.nn.conv1d(
            tf.nn.silu(tf.nn.conv1d(x, wg, 1, "SAME")) * tf.nn.conv1d(x, wu, 1, "SAME"), wd, 1, "SAME"
        )
    ), x3


def rotary(name, rope=1, **blocks):
    return CASES(f"rotary-{name}", rope=rope, **blocks)


placed = {"x": f32("B", "S", H, W), "positions": i32("B", "S")}
inverse = (10000.0 ** (-np.arange(0, W, 2) / W)).astype(np.float32)


def sines(positions):
    angle = tf.cast(positions, tf.float32)[..., None] * inverse
    return tf.sin(angle)[:, :, None], tf.cos(angle)[:, :, None]


def turn(name, form):
    """Adds a rotation given as a function of x and of sines and cosines of each pair."""

    @rotary(name)
    def _():
        return (lambda x, positions: form(x, *sines(positions))), placed


def halves(x, sin, cos):
    a, b = tf.split(x, 2, axis=-1)
    return tf.concat([a * cos - b * sin, b * cos + a * sin], -1)


def twice(t):
    return tf.concat([t, t], -1)


def every_two(x):
    return tf.reshape(tf.stack([-x[..., 1::2], x[..., ::2]], axis=-1), tf.shape(x))


turn("halves", halves)
turn("rotate-half", lambda x, s, c: x * twice(c) + tf.concat([-x[..., W // 2 :], x[..., : W // 2]], -1) * twice(s))
turn("roformer", lambda x, s, c: x * tf.repeat(c, 2, -1) + every_two(x) * tf.repeat(s, 2, -1))
turn(
    "pairs",
    lambda x, s, c: tf.reshape(
        tf.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., ::2] * s + x[..., 1::2] * c], -1), tf.shape(x)
    ),
)
turn(
    "roll",
    lambda x, s, c: (
        x * twice(c) + tf.roll(x, W // 2, -1) * twice(s) * tf.constant([-1.0] * (W // 2) + [1.0] * (W // 2))
    ),
)
turn(
    "reverse",
    lambda x, s, c: tf.reshape(
        tf.reshape(x, (-1, tf.shape(x)[1], H, 2, W // 2)) * c[..., None, :]
        + tf.reverse(tf.reshape(x, (-1, tf.shape(x)[1], H, 2, W // 2)), [3])
        * s[..., None, :]
        * tf.constant([[-1.0], [1.0]]),
        tf.shape(x),
    ),
)
turn(
    "part",
    lambda x, s, c: tf.concat([halves(x[..., : W // 2], s[..., : W // 4], c[..., : W // 4]), x[..., W // 2 :]], -1),
)
turn("gather", lambda x, s, c: x * twice(c) + tf.gather(x, [4, 5, 6, 7, 0, 1, 2, 3], axis=-1) * tf.concat([-s, s], -1))
turn(
    "negated-sine",
    lambda x, s, c: x * twice(c) + tf.concat([x[..., W // 2 :], x[..., : W // 2]], -1) * tf.concat([-s, s], -1),
)
TURN = np.zeros((W, W), np.float32)
for i in range(W // 2):
    TURN[i + W // 2, i], TURN[i, i + W // 2] = -1, 1
turn("matrix", lambda x, s, c: x * twice(c) + tf.linalg.matmul(x, TURN) * twice(s))
turn("einsum", lambda x, s, c: x * twice(c) + tf.einsum("bshd,de->bshe", x, TURN) * twice(s))


@rotary("keras-hub")
def _():
    layer = keras_hub.layers.RotaryEmbedding(max_wavelength=10000)
    layer.build((None, 7, H, W))
    return layer, {"x": f32("B", 7, H, W)}


@rotary("keras-hub-dynamic")
def _():
    layer = keras_hub.layers.RotaryEmbedding(max_wavelength=10000)
    return layer, {"x": f32("B", "S", H, W)}


@rotary("table", rope=2)
def _():  # a table of positions, and heads before them
    table = np.concatenate([angles(np.arange(32), W)] * 2, -1).astype(np.float32)
    sin, cos = const(np.sin(table)), const(np.cos(table))

    def rope(q, k):
        n = tf.shape(q)[2]
        half = lambda x: tf.concat([-x[..., W // 2 :], x[..., : W // 2]], -1)
        return q * cos[:n] + half(q) * sin[:n], k * cos[:n] + half(k) * sin[:n]

    return rope, {"q": f32("B", H, "S", W), "k": f32("B", 2, "S", W)}


@rotary("normed", rmsnorm=1)
def _():
    scale = const(Weights("normed").scale(W))

    def rope(x, positions):
        x = x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * scale
        return halves(x, *sines(positions))

    return rope, placed
