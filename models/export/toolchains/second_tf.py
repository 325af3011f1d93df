"""The second set of TensorFlow: norms, gated units and rotary embeddings, of Keras, keras-hub, TensorFlow's model
garden and rotary-embedding-tensorflow where they have one, else as their users write them."""

import importlib

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras import ops

from cases import Cases, Weights, angles, f16, f32, i32
from tf_blocks import const, halves, placed, sines, twice, x3

# Old opsets, which tf2onnx's users still ask for, and one of today.
OPSETS = 11, 12, 14, 17
CASES = Cases(OPSETS)
D, F, H, W = 16, 24, 4, 8
v1 = tf.compat.v1


def drawn(layer, name):
    """The layer with its vectors away from ones and zeros."""
    w = Weights(name)
    for v in layer.variables if hasattr(layer, "variables") else layer.weights:
        if len(v.shape) == 1 and v.dtype != "int32":
            v.assign(v + w.bias(*v.shape))
    return layer


def module(name, form, shapes=x3, **blocks):
    """Adds a layer that form makes, built for x."""

    @CASES(name, **blocks)
    def _():
        layer = form()
        if hasattr(layer, "build"):
            layer.build([d if isinstance(d, int) else None for d in shapes["x"][1]])
        return drawn(layer, name), shapes


def hub(path, cls, **arguments):
    return lambda: getattr(importlib.import_module(f"keras_hub.src.models.{path}"), cls)(**arguments)


def garden():
    """TensorFlow's model garden has T5 without Keras."""
    return importlib.import_module("official.nlp.modeling.models.t5")


def scaled(name, form, shapes=x3, size=D, rmsnorm=1, **blocks):
    @CASES(name, rmsnorm=rmsnorm, **blocks)
    def _():
        scale = const(Weights(name).scale(size))
        return (lambda x: form(x, scale)), shapes


module("norm-garden-t5", lambda: garden().RMSNorm(D), rmsnorm=1)
module("norm-hub-gemma3", hub("gemma3.gemma3_layers", "RMSNormalization", epsilon=1e-6), rmsnorm=1)
module("norm-hub-qwen3", hub("qwen3.qwen3_layernorm", "Qwen3LayerNorm", epsilon=1e-6), rmsnorm=1)
module("norm-hub-roformer", hub("roformer_v2.roformer_v2_attention", "RoformerNorm"), rmsnorm=1)
module("norm-hub-gemma4-heads", hub("gemma4.gemma4_layers", "Gemma4VNorm"), {"x": f32("B", "S", H, W)}, rmsnorm=1)
module("norm-hub-flux", lambda: keras_hub.layers.RMSNormalization(D), rmsnorm=1)
module("norm-keras-fp16", lambda: keras.layers.RMSNormalization(dtype="float16"), {"x": f16("B", "S", D)}, rmsnorm=1)
module("norm-keras-two-axes", lambda: keras.layers.RMSNormalization(axis=(-2, -1)), {"x": f32("B", 6, D)}, rmsnorm=1)
module("norm-keras-layernorm", lambda: keras.layers.LayerNormalization(epsilon=1e-5), layernorm=1)
module("norm-keras-layernorm-scale", lambda: keras.layers.LayerNormalization(center=False), layernorm=1)
module(
    "norm-keras2-layernorm",
    lambda: importlib.import_module("tf_keras").layers.LayerNormalization(epsilon=1e-5),
    {"x": f32(2, 7, D)},
    layernorm=1,
)
module("near-norm-keras-unit", lambda: keras.layers.UnitNormalization())
scaled(
    "norm-variance-and-mean",
    lambda x, s: (
        x
        * s
        * tf.math.rsqrt(
            tf.math.reduce_variance(x, -1, keepdims=True) + tf.reduce_mean(x, -1, keepdims=True) ** 2 + 1e-6
        )
    ),
)
scaled(
    "norm-keras-ops",
    lambda x, s: ops.multiply(
        ops.multiply(x, ops.rsqrt(ops.add(ops.mean(ops.square(x), axis=-1, keepdims=True), 1e-6))), s
    ),
)
scaled(
    "norm-multiply-no-nan",
    lambda x, s: tf.math.multiply(
        tf.math.divide(
            x, tf.math.sqrt(tf.math.add(tf.math.reduce_mean(tf.math.pow(x, 2), axis=[-1], keepdims=True), 1e-8))
        ),
        s,
    ),
)
scaled(
    "norm-reciprocal-root",
    lambda x, s: (
        x
        * tf.math.reciprocal(
            tf.sqrt(tf.reduce_sum(x * x, -1, keepdims=True) / tf.cast(tf.shape(x)[-1], tf.float32) + 1e-6)
        )
        * s
    ),
)
scaled(
    "norm-one-plus",
    lambda x, s: (1.0 + s) * (x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6)),
)
scaled("norm-plain", lambda x, _: x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + 1e-6))
scaled(
    "norm-heads-first",
    lambda x, s: (
        (h := tf.transpose(tf.reshape(x, (-1, tf.shape(x)[1], 2, W)), (0, 2, 1, 3)))
        * tf.math.rsqrt(tf.reduce_mean(h * h, -1, keepdims=True) + 1e-6)
        * s
    ),
    size=W,
)
scaled(
    "norm-image",
    lambda x, s: x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), 1, keepdims=True) + 1e-6) * s[:, None, None],
    {"x": f32("B", D, 5, 6)},
)
scaled(
    "norm-map-rows",
    lambda x, s: tf.map_fn(lambda r: r * tf.math.rsqrt(tf.reduce_mean(r * r) + 1e-6) * s, x),
    {"x": f32("T", D)},
)
scaled(
    "norm-matvec",
    lambda x, s: x * tf.math.rsqrt(tf.linalg.matvec(x * x, tf.fill((D,), 1.0 / D)) + 1e-6)[..., None] * s,
    {"x": f32("T", D)},
)
scaled(
    "norm-of-groups",
    lambda x, s: (
        tf.reshape(
            (g := tf.reshape(x, (-1, tf.shape(x)[1], 4, D // 4)))
            * tf.math.rsqrt(tf.reduce_mean(g * g, -1, keepdims=True) + 1e-5),
            tf.shape(x),
        )
        * s
    ),
)
scaled(
    "near-norm-epsilon-outside",
    lambda x, s: x / (tf.sqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True)) + 0.01) * s,
    rmsnorm=0,
)
scaled("near-norm-deviation", lambda x, s: x / tf.math.reduce_std(x, -1, keepdims=True) * s, rmsnorm=0)


@CASES("norm-tensor2tensor", layernorm=1)
def _():
    scale, bias = const(Weights("t2t").scale(D)), const(Weights("t2t").bias(D))

    def layer_norm_compute(x, epsilon=1e-6):
        mean = tf.reduce_mean(x, axis=[-1], keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(x, mean), axis=[-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + epsilon) * scale + bias

    return layer_norm_compute, x3


def mlp(name, unit, glu=1):
    @CASES(name, glu=glu)
    def _():
        w = Weights(name)
        wg, wu, wd = const(w.matrix(D, F)), const(w.matrix(D, F)), const(w.matrix(F, D))
        return (lambda x: tf.tensordot(unit(tf.tensordot(x, wg, 1), tf.tensordot(x, wu, 1)), wd, 1)), x3


@tf.custom_gradient
def swish(x):
    y = x * tf.sigmoid(x)
    return y, lambda dy: dy * (tf.sigmoid(x) + y * (1 - tf.sigmoid(x)))


mlp("gate-custom-gradient", lambda g, u: swish(g) * u)
mlp("gate-sigmoid-of-negative", lambda g, u: g * (1.0 - tf.sigmoid(-g)) * u)
mlp("gate-tanh-half", lambda g, u: 0.5 * g * (tf.tanh(0.5 * g) + 1.0) * u)
mlp(
    "gate-gelu-bert",
    lambda g, u: g * (0.5 * (1.0 + tf.tanh(np.sqrt(2 / np.pi).astype(np.float32) * (g + 0.044715 * tf.pow(g, 3))))) * u,
)
mlp("gate-clamped", lambda g, u: tf.nn.silu(tf.minimum(g, 3.0)) * tf.clip_by_value(u, -3.0, 3.0))
mlp("gate-keras-multiply", lambda g, u: keras.layers.Multiply()([keras.layers.Activation("silu")(g), u]))
mlp("near-gate-relu", lambda g, u: tf.nn.relu(g) * u, 0)
mlp("near-gate-keras-glu", lambda g, u: keras.activations.glu(tf.concat([u, g], -1)), 0)
mlp("near-gate-relu6", lambda g, u: tf.nn.relu6(g + 3.0) * g / 6.0 * u, 0)


@CASES("gate-garden-t5", glu=1)
def _():
    return garden().FFN(D, F, ["gelu", "linear"], weight_initializer=tf.keras.initializers.GlorotNormal(3)), x3


@CASES("gate-garden-gated", glu=1, layernorm=1)
def _():  # a residual, and a norm of Keras 2, after the gated feed-forward
    from official.nlp.modeling.layers.gated_feedforward import GatedFeedforward

    layer = GatedFeedforward(F, "swish", 0.0, num_blocks=1, use_gate=True)
    layer.build(tf.TensorShape((None, 7, D)))
    return drawn(layer, "gated"), {"x": f32(2, 7, D)}


@CASES("gate-keras-functional", glu=1)
def _():
    x = keras.Input((None, D))
    h = keras.layers.Dense(F, activation="silu", use_bias=False)(x) * keras.layers.Dense(F, use_bias=False)(x)
    return keras.Model(x, keras.layers.Dense(D, use_bias=False)(h)), x3


@CASES("gate-keras-packed", glu=1)
def _():
    layer = keras.layers.EinsumDense("abc,cde->abde", (None, 2, F), bias_axes="de")
    down = keras.layers.Dense(D)
    layer.build((None, None, D))
    down.build((None, None, F))
    drawn(layer, "packed")

    def block(x):
        h = layer(x)
        return down(ops.gelu(h[:, :, 0]) * h[:, :, 1])

    return block, x3


@CASES("gate-strided", glu=1)
def _():
    w = Weights("strided")
    both, down = const(w.matrix(D, 2 * F)), const(w.matrix(F, D))

    def block(x):
        h = tf.matmul(x, both)
        return tf.matmul(tf.nn.silu(h[..., ::2]) * h[..., 1::2], down)

    return block, x3


@CASES("gate-rows", glu=1)
def _():  # TF 1: the rows of all sequences, one product with a bias
    w = Weights("rows")
    both, bias, down = const(w.matrix(D, 2 * F)), const(w.bias(2 * F)), const(w.matrix(F, D))

    def block(x):
        h = tf.nn.bias_add(tf.matmul(tf.reshape(x, (-1, D)), both), bias)
        u, g = tf.split(h, 2, axis=1)
        y = tf.matmul(tf.multiply(u, v1.nn.swish(g)), down)
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [D]], 0))

    return block, x3


def turn(name, form, rope=1):
    @CASES(name, rope=rope)
    def _():
        return (lambda x, positions: form(x, *sines(positions))), placed


def unstacked(x, s, c):
    a, b = tf.unstack(tf.reshape(x, (-1, tf.shape(x)[1], H, W // 2, 2)), axis=-1)
    return tf.reshape(tf.stack([a * c - b * s, a * s + b * c], axis=-1), tf.shape(x))


def to_halves(x, s, c):
    x = tf.reshape(tf.transpose(tf.reshape(x, (-1, tf.shape(x)[1], H, W // 2, 2)), (0, 1, 2, 4, 3)), tf.shape(x))
    return halves(x, s, c)


def last(x, s, c):
    return tf.concat([x[..., : W // 2], halves(x[..., W // 2 :], s[..., : W // 4], c[..., : W // 4])], -1)


turn("rotary-unstacked", unstacked)
turn("rotary-pairs-to-halves", to_halves)
turn("rotary-last-channels", last)
turn(
    "rotary-keras-ops",
    lambda x, s, c: ops.add(
        ops.multiply(x, ops.concatenate([c, c], -1)),
        ops.multiply(
            ops.concatenate([ops.negative(x[..., W // 2 :]), x[..., : W // 2]], axis=-1), ops.concatenate([s, s], -1)
        ),
    ),
)
turn("rotary-inverse", lambda x, s, c: halves(x, -s, c))
turn(
    "rotary-tiled",
    lambda x, s, c: (
        x * tf.tile(c, [1, 1, 1, 2])
        + tf.concat([-tf.split(x, 2, -1)[1], tf.split(x, 2, -1)[0]], -1) * tf.tile(s, [1, 1, 1, 2])
    ),
)
turn(
    "rotary-negative-slices",
    lambda x, s, c: tf.concat(
        [x[..., : -W // 2] * c - x[..., -W // 2 :] * s, x[..., : -W // 2] * s + x[..., -W // 2 :] * c], axis=-1
    ),
)
turn(
    "near-rotary-reflected",
    lambda x, s, c: tf.concat(
        [x[..., : W // 2] * c + x[..., W // 2 :] * s, x[..., : W // 2] * s - x[..., W // 2 :] * c], -1
    ),
    0,
)
turn("near-rotary-sines-added", lambda x, s, c: x + tf.concat([s, c], -1), 0)


def table():
    t = np.repeat(angles(np.arange(64), W), 2, -1).astype(np.float32)
    return const(np.sin(t)), const(np.cos(t))


@CASES("rotary-embedding-tensorflow", rope=1)
def _():
    from rotary_embedding_tensorflow import RotaryEmbedding, apply_rotary_emb

    freqs = RotaryEmbedding(W).call(tf.range(7)).numpy()
    return (lambda x: apply_rotary_emb(freqs, x)), {"x": f32("B", H, 7, W)}


@CASES("rotary-embedding-tensorflow-part", rope=1)
def _():
    from rotary_embedding_tensorflow import RotaryEmbedding, apply_rotary_emb

    freqs = RotaryEmbedding(W // 2).call(tf.range(7)).numpy()
    return (lambda x: apply_rotary_emb(freqs, x)), {"x": f32(2, H, 7, W)}


@CASES("rotary-gathered-pairs", rope=1)
def _():
    sin, cos = table()

    def rope(x, positions):
        s, c = (tf.expand_dims(tf.gather(t, positions), 2) for t in (sin, cos))
        rotated = tf.reshape(tf.stack([-x[..., 1::2], x[..., ::2]], -1), tf.shape(x))
        return x * c + rotated * s

    return rope, placed


@CASES("rotary-decode", rope=2)
def _():
    sin, cos = table()

    def step(q, k, start):
        at = start[0] + tf.range(3)
        angle = tf.einsum(
            "i,j->ij", tf.cast(at, tf.float32), tf.constant(10000.0 ** (-np.arange(0, W, 2) / W), tf.float32)
        )
        s, c = (f(angle)[None, :, None] for f in (tf.sin, tf.cos))
        return halves(q, s, c), halves(k, s, c)

    return step, {"q": f32("B", 3, H, W), "k": f32("B", 3, 1, W), "start": i32(1)}


@CASES("rotary-static", rope=2)
def _():
    def rope(q, k):
        inverse = 1.0 / tf.pow(10000.0, tf.range(0, W, 2, dtype=tf.float32) / W)
        angle = tf.range(q.shape[1], dtype=tf.float32)[:, None] * inverse[None]
        s, c = (f(angle)[None, :, None] for f in (tf.sin, tf.cos))
        return halves(q, s, c), k * twice(c) + tf.concat([-k[..., W // 2 :], k[..., : W // 2]], -1) * twice(s)

    return rope, {"q": f32(2, 7, H, W), "k": f32(2, 7, 1, W)}


@CASES("rotary-keras-hub-heads-first", rope=1)
def _():
    layer = keras_hub.layers.RotaryEmbedding(sequence_axis=2, feature_axis=-1)
    return layer, {"x": f32("B", H, 7, W)}


@CASES("rotary-keras-hub-positions", rope=1)
def _():
    layer = keras_hub.layers.RotaryEmbedding(scaling_factor=2.0)
    return (lambda x, positions: layer(x, positions=positions[0])), {"x": f32(2, 7, H, W), "positions": i32(2, 7)}
