"""The second set of TensorFlow: routers, experts and decoders, most of these of keras-hub and the model garden."""

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from cases import Cases, Weights, f32, i32
from second_tf import OPSETS, drawn, garden
from tf_blocks import const, halves

CASES = Cases(OPSETS)
D, F, E, K = 16, 12, 6, 2
tokens = {"x": f32("T", D)}


def experts(name):
    w = Weights(name)
    return tuple(map(const, (w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, D, F), w.matrix(E, F, D))))


def total(t):
    return tf.reduce_sum(t, -1, keepdims=True)


# Routers: weights and numbers of the chosen, of logits.
def deepseek3(z):
    scores = tf.sigmoid(z)
    choice = scores + Weights("correction").bias(E)
    groups = tf.reshape(choice, (-1, 3, 2))
    best = tf.math.top_k(tf.reduce_sum(tf.math.top_k(groups, 2).values, -1), 2).indices
    mask = tf.repeat(tf.reduce_sum(tf.one_hot(best, 3), 1), 2, axis=1)
    ids = tf.math.top_k(tf.where(mask > 0, choice, -np.inf), K).indices
    weights = tf.gather(scores, ids, axis=1, batch_dims=1)
    return weights / (total(weights) + 1e-20) * 2.5, ids


def log_softmax(z):
    weights, ids = tf.math.top_k(tf.nn.log_softmax(z), K)
    return tf.exp(weights), ids


def sigmoid_of_one(z):
    best, ids = tf.math.top_k(z, 1)
    return tf.sigmoid(best), ids


def softplus_root(z):
    weights, ids = tf.math.top_k(tf.sqrt(tf.math.softplus(z)), K)
    return weights / total(weights), ids


def sorted_pairs(z):
    p = tf.nn.softmax(z)
    ids = tf.argsort(p, direction="DESCENDING")[:, :K]
    weights = tf.gather(p, ids, batch_dims=1)
    return weights / total(weights), ids


def best_twice(z):
    p = tf.nn.softmax(z)
    first = tf.argmax(p, -1, output_type=tf.int32)
    second = tf.argmax(p * (1.0 - tf.one_hot(first, E)), -1, output_type=tf.int32)
    ids = tf.stack([first, second], -1)
    weights = tf.gather(p, ids, batch_dims=1)
    return weights / total(weights), ids


def keras_ops(z):
    p = keras.ops.softmax(z)
    weights, ids = keras.ops.top_k(p, K)
    return keras.ops.divide(weights, keras.ops.add(keras.ops.sum(weights, -1, keepdims=True), 1e-9)), ids


def mixtral(z):
    weights, ids = tf.math.top_k(tf.nn.softmax(z), K)
    return weights / total(weights), ids


def moe(name, form, choose=mixtral, shapes=tokens, **blocks):
    @CASES(name if name.startswith("router") else f"moe-{name}", **(blocks or {"router": 1, "moe": 1}))
    def _():
        router, wg, wu, wd = experts(name)
        return (lambda x: form(x, *choose(x @ router), wg, wu, wd)), shapes


def combine(weights, ids):
    return tf.einsum("tke,tk->te", tf.one_hot(ids, E), weights)


def every(x, wg, wu, wd, act=tf.nn.silu):
    """Of each expert, as products with a batch of experts."""
    x = tf.broadcast_to(x, (E, tf.shape(x)[0], D))
    return tf.matmul(act(tf.matmul(x, wg)) * tf.matmul(x, wu), wd)


def broadcast(x, weights, ids, *m):
    return tf.einsum("etd,te->td", every(x, *m), combine(weights, ids))


def summed(x, weights, ids, *m):
    return tf.reduce_sum(every(x, *m) * tf.transpose(combine(weights, ids))[..., None], axis=0)


def gelu(x, weights, ids, *m):
    return tf.reduce_sum(
        every(x, *m, act=lambda g: tf.nn.gelu(g, approximate=True)) * tf.transpose(combine(weights, ids))[..., None],
        axis=0,
    )


def add_n(x, weights, ids, wg, wu, wd):
    full = combine(weights, ids)
    return tf.add_n([full[:, e : e + 1] * ((tf.nn.silu(x @ wg[e]) * (x @ wu[e])) @ wd[e]) for e in range(E)])


def map_fn(x, weights, ids, wg, wu, wd):
    each = tf.map_fn(lambda m: (tf.nn.silu(x @ m[0]) * (x @ m[1])) @ m[2], (wg, wu, wd), fn_output_signature=tf.float32)
    return tf.einsum("etd,te->td", each, combine(weights, ids))


def slots(x, weights, ids, wg, wu, wd):
    y = tf.zeros_like(x)
    for k in range(K):
        g, u, d = (tf.gather(m, ids[:, k]) for m in (wg, wu, wd))
        h = tf.nn.silu(tf.linalg.matvec(g, x, transpose_a=True)) * tf.linalg.matvec(u, x, transpose_a=True)
        y += weights[:, k : k + 1] * tf.linalg.matvec(d, h, transpose_a=True)
    return y


def masked(x, weights, ids, wg, wu, wd):
    """boolean_mask and a scatter, expert by expert."""
    y = tf.zeros_like(x)
    for e in range(E):
        factor = tf.reduce_sum(weights * tf.cast(tf.equal(ids, e), tf.float32), -1)
        at = tf.where(factor > 0)
        rows = tf.gather_nd(x, at)
        out = (tf.nn.silu(rows @ wg[e]) * (rows @ wu[e])) @ wd[e]
        y += tf.scatter_nd(at, out * tf.gather_nd(factor, at)[:, None], tf.shape(x, out_type=tf.int64))
    return y


ROUTERS = deepseek3, log_softmax, sigmoid_of_one, softplus_root, sorted_pairs, best_twice, keras_ops
for choose in ROUTERS:
    moe(f"router-{choose.__name__.replace('_', '-')}", broadcast, choose)
moe("broadcast", broadcast)
moe("summed", summed)
moe("gelu", gelu)
moe("add-n", add_n)
moe("map-fn", map_fn)
moe("slots", slots)
moe("masked", masked)
moe("sigmoid-of-one", summed, sigmoid_of_one)


@CASES("moe-of-sequences", opset=12, router=1, moe=1)
def _():  # the tokens keep their two axes
    router, wg, wu, wd = experts("sequences")

    def layer(x):
        weights, ids = mixtral(tf.einsum("bsd,de->bse", x, router))
        full = tf.reduce_sum(tf.one_hot(ids, E) * weights[..., None], -2)
        h = tf.nn.silu(tf.einsum("bsd,edf->bsef", x, wg)) * tf.einsum("bsd,edf->bsef", x, wu)
        return tf.einsum("bsef,efd,bse->bsd", h, wd, full)

    return layer, {"x": f32("B", "S", D)}


@CASES("moe-threshold", router=1, moe=1)
def _():
    router, *matrices = experts("threshold")

    def layer(x):
        p = tf.nn.softmax(x @ router)
        kept = p * tf.cast(p >= tf.math.top_k(p, K).values[:, -1:], tf.float32)
        return tf.einsum("etd,te->td", every(x, *matrices), kept / total(kept))

    return layer, tokens


@CASES("moe-shared-expert", router=1, moe=1, glu=1)
def _():
    router, *matrices = experts("shared")
    w = Weights("shared2")
    g, u, d, s = const(w.matrix(D, F)), const(w.matrix(D, F)), const(w.matrix(F, D)), const(w.matrix(D, 1))

    def layer(x):
        y = broadcast(x, *mixtral(x @ router), *matrices)
        return y + tf.sigmoid(x @ s) * ((tf.nn.silu(x @ g) * (x @ u)) @ d)

    return layer, tokens


@CASES("moe-static-relu", router=1, moe=1)
def _():
    w = Weights("static")
    router, wi, bi, wo, bo = map(
        const, (w.matrix(D, E), w.matrix(E, D, F), w.bias(E, 1, F), w.matrix(E, F, D), w.bias(E, 1, D))
    )

    def layer(x):
        h = tf.nn.relu(tf.einsum("td,edf->etf", x, wi) + bi)
        return tf.einsum("etd,te->td", tf.einsum("etf,efd->etd", h, wo) + bo, combine(*mixtral(x @ router)))

    return layer, {"x": f32(9, D)}


def near(name, form, **blocks):
    """A mixture that no op of ours is; the gated unit of its experts is one."""

    @CASES(f"near-moe-{name}", glu=1, **blocks)
    def _():
        router, *matrices = experts(name)
        return (lambda x: form(x, x @ router, *matrices)), {"x": f32(9, D)}


def with_capacity(x, z, wg, wu, wd):
    p = tf.nn.softmax(z)
    mask = tf.one_hot(tf.argmax(p, -1), E)
    place = tf.reduce_sum(tf.cumsum(mask, axis=0, exclusive=True) * mask, -1)
    dispatch = mask[:, :, None] * tf.one_hot(tf.cast(place, tf.int32), 2)[:, None]
    inside = tf.einsum("td,tec->ecd", x, dispatch)
    y = tf.matmul(tf.nn.silu(tf.matmul(inside, wg)) * tf.matmul(inside, wu), wd)
    return tf.einsum("ecd,tec->td", y, dispatch * tf.reduce_max(p, -1)[:, None, None])


def experts_choose(x, z, wg, wu, wd):
    weights, ids = tf.math.top_k(tf.transpose(tf.nn.softmax(z)), 3)
    inside = tf.gather(x, ids)
    y = tf.matmul(tf.nn.silu(tf.matmul(inside, wg)) * tf.matmul(inside, wu), wd) * weights[..., None]
    return tf.einsum("ecd,ect->td", y, tf.one_hot(ids, 9))


near("capacity", with_capacity, router=1)
near("experts-choose", experts_choose)


@CASES("near-moe-garden")
def _():  # the model garden's experts, which choose their tokens
    from official.nlp.modeling.layers import moe as official

    layer = official.MoeLayer(
        official.FeedForwardExperts(4, F, activation=tf.nn.relu),
        official.ExpertsChooseMaskedRouter(4, export_metrics=False),
        train_capacity_factor=1.0, eval_capacity_factor=1.0, examples_per_group=1.0,
    )  # fmt: skip
    layer(tf.zeros((2, 8, D)))
    return (lambda x: layer(x, training=False)), {"x": f32(2, 8, D)}


def decoder(name, **blocks):
    opset = (13, 14, 17)[sum(name.encode()) % 3]  # keras-hub's products of Einsum need 13
    return CASES(f"decoder-{name}", opset, **blocks)


@decoder("garden-t5", rmsnorm=2, glu=1)
def _():
    t5 = garden()
    block = t5.EncoderBlock(D, 8, 2, 24, ("gelu", "linear"), weight_initializer=tf.keras.initializers.GlorotNormal(3))
    return drawn(block, "garden-t5"), {"x": f32(2, 7, D)}


@decoder("keras-functional", rmsnorm=2, rope=2, glu=1)
def _():
    layers, H, W = keras.layers, 2, 8
    x = keras.Input((7, D))
    h = layers.RMSNormalization(epsilon=1e-6)(x)
    q, k, v = (layers.Reshape((7, H, W))(layers.Dense(H * W, use_bias=False)(h)) for _ in range(3))
    turn = keras_hub.layers.RotaryEmbedding()
    scores = layers.Dot(axes=3)([layers.Permute((2, 1, 3))(turn(q)), layers.Permute((2, 1, 3))(turn(k))])
    scores = keras.ops.einsum("bqhd,bkhd->bhqk", turn(q), turn(k)) / W**0.5
    a = keras.ops.einsum("bhqk,bkhd->bqhd", layers.Softmax()(scores, mask=np.tril(np.ones((7, 7), bool))), v)
    x1 = layers.Add()([x, layers.Dense(D, use_bias=False)(layers.Reshape((7, D))(a))])
    h = layers.RMSNormalization(epsilon=1e-6)(x1)
    h = layers.Multiply()([layers.Dense(24, activation="silu")(h), layers.Dense(24)(h)])
    return drawn(keras.Model(x, layers.Add()([x1, layers.Dense(D)(h)])), "functional"), {"x": f32("B", 7, D)}


@decoder("tf1", layernorm=2, rope=2, glu=1)
def _():  # Tensor2Tensor's layer, with rotations and a gate
    w = Weights("tf1")
    H, W = 2, 8
    qkv, o, wi, wo = (const(w.matrix(*s)) for s in [(D, 3 * D), (D, D), (D, 48), (24, D)])
    s1, b1, s2, b2 = const(w.scale(D)), const(w.bias(D)), const(w.scale(D)), const(w.bias(D))
    inverse = (10000.0 ** (-np.arange(0, W, 2) / W)).astype(np.float32)

    def norm(x, s, b):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6) * s + b

    def layer(x):
        n = tf.shape(x)[1]
        angle = tf.cast(tf.range(n), tf.float32)[:, None] * inverse
        sin, cos = tf.sin(angle)[:, None], tf.cos(angle)[:, None]
        q, k, v = (tf.reshape(t, (-1, n, H, W)) for t in tf.split(tf.tensordot(norm(x, s1, b1), qkv, 1), 3, axis=-1))
        scores = tf.einsum("bqhd,bkhd->bhqk", halves(q, sin, cos), halves(k, sin, cos)) * W**-0.5
        bias = (1.0 - tf.linalg.band_part(tf.ones((n, n)), -1, 0)) * -1e9
        a = tf.reshape(tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(scores + bias), v), (-1, n, D))
        x += tf.tensordot(a, o, 1)
        u, g = tf.split(tf.tensordot(norm(x, s2, b2), wi, 1), 2, axis=-1)
        return x + tf.tensordot(u * tf.nn.gelu(g, approximate=True), wo, 1)

    return layer, {"x": f32("B", "S", D)}


def hub(name, backbone, arguments, shape=("B", 7), **blocks):
    """Adds a decoder of one layer of keras-hub, as a function of token ids without padding."""

    @decoder(f"hub-{name}", **blocks)
    def _():
        keras.utils.set_random_seed(7)
        model = getattr(keras_hub.models, backbone)(**arguments)
        r = np.random.default_rng(7)
        for v in model.weights:
            if "norm" in v.path or v.path.endswith("bias"):
                v.assign(v.numpy() + r.uniform(-0.4, 0.4, v.shape))
        run = lambda ids: model({k: ids if k.endswith("token_ids") else tf.ones_like(ids) for k in model.input})
        return run, {"ids": i32(*shape)}


SMALL = {"vocabulary_size": 32, "num_layers": 1, "hidden_dim": 16, "intermediate_dim": 24}
GROUPED = SMALL | {"num_query_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
hub("gemma", "GemmaBackbone", GROUPED, rmsnorm=3, rope=2, glu=1)
hub("gemma-dynamic", "GemmaBackbone", GROUPED, ("B", "S"), rmsnorm=3, rope=2, glu=1)
POST = {"use_post_ffw_norm": True, "use_post_attention_norm": True, "attention_logit_soft_cap": 50}
hub("gemma2", "GemmaBackbone", GROUPED | POST, rmsnorm=5, rope=2, glu=1)
hub(
    "gemma3",
    "Gemma3Backbone",
    GROUPED | POST | {"image_size": 16, "attention_logit_soft_cap": None},
    rmsnorm=7,
    rope=2,
    glu=1,
)
hub(
    "llama3",
    "Llama3Backbone",
    SMALL
    | {
        "num_query_heads": 2,
        "num_key_value_heads": 1,
        "rope_frequency_adjustment_factor": 8.0,
        "rope_low_freq_factor": 1.0,
        "rope_high_freq_factor": 4.0,
        "rope_pretraining_sequence_length": 64,
    },
    (2, 7),
    rmsnorm=3,
    rope=2,
    glu=1,
)
hub("gpt-neox", "GPTNeoXBackbone", SMALL | {"num_heads": 2, "rotary_percentage": 0.5}, layernorm=3, rope=2)
hub("esm", "ESMBackbone", SMALL | {"num_heads": 2, "dropout": 0.0, "activation": "relu"}, layernorm=3, rope=2)
# Its queries and keys start with the same weights, so that tf2onnx makes them one.
hub(
    "roformer",
    "RoformerV2Backbone",
    SMALL | {"num_heads": 2, "head_size": 8},
    rmsnorm=3,
    rope=1,
)
hub(
    "smollm3",
    "SmolLM3Backbone",
    SMALL
    | {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_layer_enabled_list": [True],
        "layer_types": ["full_attention"],
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-6,
        "max_position_embeddings": 64,
        "rope_theta": 1e4,
        "partial_rotary_factor": 1.0,
    },
    rmsnorm=3,
    rope=2,
    glu=1,
)
QWEN35 = GROUPED | {"layer_types": ["full_attention"], "partial_rotary_factor": 0.5}
hub("qwen35", "Qwen3_5Backbone", QWEN35, rmsnorm=5, rope=2, glu=1)
MOE = {"moe_intermediate_dim": 12, "shared_expert_intermediate_size": 12, "num_experts": 4, "top_k": 2}
hub(
    "qwen35-moe",
    "Qwen3_5MoeBackbone",
    {k: v for k, v in QWEN35.items() if k != "intermediate_dim"} | MOE,
    rmsnorm=5,
    rope=2,
    glu=1,
    router=1,
    moe=1,
)
hub(
    "t5-gated",
    "T5Backbone",
    SMALL | {"num_heads": 2, "activation": "silu", "dropout": 0.0},
    (2, 7),
    rmsnorm=7,
    glu=2,
)
