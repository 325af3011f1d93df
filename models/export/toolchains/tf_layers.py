"""Mixtures of experts and decoders as TensorFlow and Keras code has them; keras-hub's decoders at small sizes."""

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from cases import Cases, Weights, f32, i32
from tf_blocks import OPSETS, const, halves

CASES = Cases(OPSETS)
D, F, E, K = 16, 12, 6, 2  # channels, hidden channels, experts, experts of a token
tokens = {"x": f32("T", D)}


def experts(name):
    w = Weights(name)
    return tuple(map(const, (w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, D, F), w.matrix(E, F, D))))


def moe(name, **blocks):
    return CASES(f"moe-{name}", **(blocks or {"router": 1, "moe": 1}))


def mixtral(x, router):
    weights, ids = tf.math.top_k(tf.nn.softmax(x @ router), K)
    return weights / tf.reduce_sum(weights, -1, keepdims=True), ids


def qwen(x, router):
    top = tf.math.top_k(tf.nn.softmax(x @ router, axis=-1), k=K, sorted=True)
    return top.values, top.indices


def chosen_first(x, router):
    weights, ids = tf.nn.top_k(tf.matmul(x, router), K)
    return tf.nn.softmax(weights), ids


def sigmoid(x, router):
    weights, ids = tf.math.top_k(tf.sigmoid(x @ router), K)
    return 2.5 * weights / (tf.reduce_sum(weights, -1, keepdims=True) + 1e-20), ids


def switch(x, router):
    probabilities = tf.nn.softmax(x @ router)
    return tf.reduce_max(probabilities, -1, keepdims=True), tf.argmax(probabilities, -1, output_type=tf.int32)[:, None]


def corrected(x, router):
    scores = tf.sigmoid(x @ router)
    ids = tf.math.top_k(scores + Weights("correction").bias(E), K).indices
    weights = tf.gather(scores, ids, batch_dims=1)
    return weights / tf.reduce_sum(weights, -1, keepdims=True), ids


def normalized(x, router):
    weights, ids = tf.math.top_k(tf.nn.softmax(x @ router), K)
    return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, -1, keepdims=True)), ids


def keras_router(x, router):
    logits = keras.ops.matmul(x, router)
    weights, ids = keras.ops.top_k(keras.ops.softmax(logits, axis=-1), k=K)
    return weights / keras.ops.sum(weights, axis=-1, keepdims=True), ids


def exponentials(x, router):
    logits = x @ router
    e = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
    weights, ids = tf.math.top_k(e, K)
    return weights / tf.reduce_sum(e, -1, keepdims=True), ids


def combine(weights, ids):
    return tf.reduce_sum(tf.one_hot(ids, E) * weights[..., None], -2)


def hidden(x, wg, wu):
    return tf.nn.silu(tf.einsum("td,edf->tef", x, wg)) * tf.einsum("td,edf->tef", x, wu)


def dense(x, weights, ids, wg, wu, wd):
    return tf.einsum("tef,efd,te->td", hidden(x, wg, wu), wd, combine(weights, ids))


for choose in [mixtral, qwen, chosen_first, sigmoid, switch, corrected, normalized, keras_router, exponentials]:

    def add(choose=choose):
        @moe(f"router-{choose.__name__.replace('_', '-')}")
        def _():
            router, wg, wu, wd = experts(choose.__name__)
            return (lambda x: dense(x, *choose(x, router), wg, wu, wd)), tokens

    add()


def layer(name, form, shapes=tokens):
    """Adds a mixture given as a function of x, the choice and the experts' matrices."""

    @moe(name)
    def _():
        router, wg, wu, wd = experts(name)
        return (lambda x: form(x, *mixtral(x, router), wg, wu, wd)), shapes


def gathered(x, weights, ids, wg, wu, wd):
    h = tf.nn.silu(tf.einsum("td,tkdf->tkf", x, tf.gather(wg, ids)))
    h *= tf.einsum("td,tkdf->tkf", x, tf.gather(wu, ids))
    return tf.einsum("tkf,tkfd,tk->td", h, tf.gather(wd, ids), weights)


def gathered_products(x, weights, ids, wg, wu, wd):
    row = x[:, None, None, :]
    h = tf.nn.silu(row @ tf.gather(wg, ids)) * (row @ tf.gather(wu, ids))
    return tf.reduce_sum(tf.squeeze(h @ tf.gather(wd, ids), 2) * weights[..., None], axis=1)


def dispatched(x, weights, ids, wg, wu, wd):
    inside = tf.einsum("td,te->etd", x, tf.reduce_sum(tf.one_hot(ids, E), -2))
    y = (tf.nn.silu(inside @ wg) * (inside @ wu)) @ wd
    return tf.einsum("etd,te->td", y, combine(weights, ids))


def unrolled(x, weights, ids, wg, wu, wd):
    y = tf.zeros_like(x)
    for e in range(E):
        factor = tf.reduce_sum(tf.where(ids == e, weights, 0.0), -1, keepdims=True)
        y += factor * ((tf.nn.silu(x @ wg[e]) * (x @ wu[e])) @ wd[e])
    return y


def hits(x, weights, ids, wg, wu, wd):
    y = tf.zeros_like(x)
    for e in range(E):
        at = tf.where(ids == e)
        rows = tf.gather(x, at[:, 0])
        out = (tf.nn.silu(rows @ wg[e]) * (rows @ wu[e])) @ wd[e]
        y = tf.tensor_scatter_nd_add(y, at[:, :1], out * tf.gather_nd(weights, at)[:, None])
    return y


def stacked_then_taken(x, weights, ids, wg, wu, wd):
    every = tf.stack([(tf.nn.silu(x @ wg[e]) * (x @ wu[e])) @ wd[e] for e in range(E)], axis=1)
    return tf.reduce_sum(tf.gather(every, ids, batch_dims=1) * weights[..., None], axis=1)


def scattered(x, weights, ids, wg, wu, wd):
    rows = tf.tile(tf.range(tf.shape(x)[0])[:, None], (1, K))
    places = tf.stack([rows, ids], -1)
    full = tf.scatter_nd(tf.reshape(places, (-1, 2)), tf.reshape(weights, (-1,)), (tf.shape(x)[0], E))
    return tf.einsum("tef,efd,te->td", hidden(x, wg, wu), wd, full)


def looped(x, weights, ids, wg, wu, wd):
    full = combine(weights, ids)
    y = tf.zeros_like(x)
    y.set_shape((None, D))
    for e in tf.range(E):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(y, tf.TensorShape((None, D)))])
        y += full[:, e, None] * ((tf.nn.silu(x @ wg[e]) * (x @ wu[e])) @ wd[e])
    return y


for name, form in [
    ("gathered", gathered), ("gathered-products", gathered_products), ("dispatched", dispatched),
    ("unrolled", unrolled), ("hits", hits), ("stacked-then-taken", stacked_then_taken), ("scattered", scattered),
    ("looped", looped),
]:  # fmt: skip
    layer(name, form)


@moe("batch-flattened")
def _():
    router, wg, wu, wd = experts("flattened")

    def run(x):
        flat = tf.reshape(x, (-1, D))
        return tf.reshape(dense(flat, *mixtral(flat, router), wg, wu, wd), tf.shape(x))

    return run, {"x": f32("B", "S", D)}


@moe("plain-relu")
def _():
    w = Weights("plain")
    router, wi, wo = const(w.matrix(D, E)), const(w.matrix(E, D, F)), const(w.matrix(E, F, D))

    def run(x):
        h = tf.nn.relu(tf.einsum("td,edf->tef", x, wi))
        return tf.einsum("tef,efd,te->td", h, wo, combine(*switch(x, router)))

    return run, tokens


def decoder(name, **blocks):
    return CASES(f"decoder-{name}", **blocks)


H, W = 2, 8


def hand_written(name, shapes, **blocks):
    @decoder(name, **blocks)
    def _():
        w = Weights(name)
        ln1, ln2 = w.scale(D), w.scale(D)
        q, k, v, o = (const(w.matrix(D, D)) for _ in range(4))
        wg, wu, wd = const(w.matrix(D, F)), const(w.matrix(D, F)), const(w.matrix(F, D))
        inverse = (10000.0 ** (-np.arange(0, W, 2) / W)).astype(np.float32)

        def rms(x, s):
            return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * s

        def run(x, positions):
            angle = tf.cast(positions, tf.float32)[..., None] * inverse
            sin, cos = tf.sin(angle)[:, :, None], tf.cos(angle)[:, :, None]
            n = tf.shape(x)[1]
            h = rms(x, ln1)
            split = lambda m: tf.reshape(h @ m, (-1, n, H, W))
            scores = tf.einsum("bthw,bshw->bhts", halves(split(q), sin, cos), halves(split(k), sin, cos)) * W**-0.5
            mask = tf.linalg.band_part(tf.ones((n, n)), -1, 0)
            a = tf.einsum("bhts,bshw->bthw", tf.nn.softmax(scores - 1e9 * (1 - mask)), split(v))
            x = x + tf.reshape(a, (-1, n, D)) @ o
            h = rms(x, ln2)
            return x + (tf.nn.silu(h @ wg) * (h @ wu)) @ wd

        return run, shapes


hand_written("dynamic", {"x": f32("B", "S", D), "positions": i32("B", "S")}, rmsnorm=2, rope=2, glu=1)
hand_written("static", {"x": f32(2, 7, D), "positions": i32(2, 7)}, rmsnorm=2, rope=2, glu=1)
hand_written("batch", {"x": f32("B", 7, D), "positions": i32("B", 7)}, rmsnorm=2, rope=2, glu=1)

SMALL = {"vocabulary_size": 32, "num_layers": 1, "num_query_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
SHARED = SMALL | {"num_key_value_heads": 1}


def hub(name, backbone, arguments, shape=("B", 7), **blocks):
    """Adds a decoder of keras-hub, as a function of token ids without padding."""

    @decoder(f"hub-{name}", **blocks)
    def _():
        keras.utils.set_random_seed(7)
        model = getattr(keras_hub.models, backbone)(**arguments)
        r = np.random.default_rng(7)
        for v in model.weights:
            if "norm" in v.path:
                v.assign(v.numpy() + r.uniform(-0.4, 0.4, v.shape))
        return (lambda ids: model({"token_ids": ids, "padding_mask": tf.ones_like(ids)})), {"ids": i32(*shape)}


hub("llama", "LlamaBackbone", SHARED, rmsnorm=3, rope=2, glu=1)
hub("llama-dynamic", "LlamaBackbone", SHARED, ("B", "S"), rmsnorm=3, rope=2, glu=1)
hub("mistral", "MistralBackbone", SHARED, rmsnorm=3, rope=2, glu=1)
hub("qwen", "QwenBackbone", SHARED, rmsnorm=3, rope=2, glu=1)
hub("qwen3", "Qwen3Backbone", SHARED | {"head_dim": 8}, rmsnorm=5, rope=2, glu=1)
hub("phi3", "Phi3Backbone", SHARED, rmsnorm=3, rope=2, glu=1)
MOE = {"num_experts": 4, "top_k": 2}
hub("mixtral", "MixtralBackbone", SHARED | MOE, rmsnorm=3, rope=2, router=1, moe=1)
hub(
    "qwen-moe",
    "QwenMoeBackbone",
    SHARED | MOE | {"moe_intermediate_dim": 12, "shared_expert_intermediate_dim": 12},
    rmsnorm=3,
    rope=2,
    glu=1,
    router=1,
    moe=1,
)
hub(
    "qwen3-moe",
    "Qwen3MoeBackbone",
    SHARED | MOE | {"moe_intermediate_dim": 12, "head_dim": 8},
    rmsnorm=5,
    rope=2,
    router=1,
    moe=1,
)
hub("gpt-oss", "GptOssBackbone", SHARED | MOE | {"head_dim": 8}, rmsnorm=3, rope=2, router=1, moe=1)
