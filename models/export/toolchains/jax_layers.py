"""Mixtures of experts and decoder layers as JAX code has them (Flax, MaxText, Mixtral and Switch in JAX)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax2onnx import onnx_function

from cases import Cases, Weights, f32, i32

CASES = Cases()
D, F, E, K = 16, 12, 6, 2  # channels, hidden channels, experts, experts of a token
tokens = {"x": f32("T", D)}
rows = {"x": f32("B", "S", D)}


def experts(name):
    w = Weights(name)
    return w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, D, F), w.matrix(E, F, D)


def moe(name, **blocks):
    return CASES(f"moe-{name}", **(blocks or {"router": 1, "moe": 1}))


def one_hot_weights(weights, ids):
    """The weight of each expert: zero for those that were not chosen."""
    return jnp.sum(jax.nn.one_hot(ids, E) * weights[..., None], axis=-2)


def mixtral(x, router):
    weights, ids = jax.lax.top_k(jax.nn.softmax(x @ router), K)
    return weights / jnp.sum(weights, -1, keepdims=True), ids


def qwen(x, router):
    return jax.lax.top_k(jax.nn.softmax(x @ router, axis=-1), K)


def chosen_first(x, router):
    weights, ids = jax.lax.top_k(x @ router, K)
    return jax.nn.softmax(weights, axis=-1), ids


def sigmoid(x, router):
    weights, ids = jax.lax.top_k(jax.nn.sigmoid(x @ router), K)
    return weights / (weights.sum(-1, keepdims=True) + 1e-20) * 2.5, ids


def switch(x, router):
    probabilities = jax.nn.softmax(x @ router)
    return jnp.max(probabilities, -1, keepdims=True), jnp.argmax(probabilities, -1, keepdims=True)


def corrected(x, router):
    bias = Weights("correction").bias(E)
    scores = jax.nn.sigmoid(x @ router)
    _, ids = jax.lax.top_k(scores + bias, K)
    weights = jnp.take_along_axis(scores, ids, axis=-1)
    return weights / weights.sum(-1, keepdims=True), ids


def grouped(x, router):
    """The experts of the better two of three groups."""
    scores = jax.nn.softmax(x @ router)
    groups = scores.reshape(*scores.shape[:-1], 3, 2)
    _, best = jax.lax.top_k(groups.max(-1), 2)
    mask = jax.nn.one_hot(best, 3).sum(-2)
    masked = jnp.where(jnp.repeat(mask, 2, axis=-1) > 0, scores, 0.0)
    return jax.lax.top_k(masked, K)


def exponentials(x, router):
    logits = x @ router
    e = jnp.exp(logits - logits.max(-1, keepdims=True))
    weights, ids = jax.lax.top_k(e / e.sum(-1, keepdims=True), K)
    return weights / weights.sum(-1, keepdims=True), ids


def sorted_choice(x, router):
    probabilities = jax.nn.softmax(x @ router)
    ids = jnp.argsort(-probabilities, axis=-1)[..., :K]
    return jnp.take_along_axis(probabilities, ids, axis=-1), ids


ROUTERS = [mixtral, qwen, chosen_first, sigmoid, switch, corrected, grouped, exponentials, sorted_choice]


def dense(x, weights, ids, wg, wu, wd):
    """Every expert on every token."""
    h = nn.silu(jnp.einsum("td,edf->tef", x, wg)) * jnp.einsum("td,edf->tef", x, wu)
    return jnp.einsum("tef,efd,te->td", h, wd, one_hot_weights(weights, ids))


for choose in ROUTERS:

    def add(choose=choose):
        @moe(f"router-{choose.__name__.replace('_', '-')}")
        def _():
            router, wg, wu, wd = experts(choose.__name__)
            return (lambda x: dense(x, *choose(x, router), wg, wu, wd)), tokens

    add()


@moe("gathered")
def _():
    router, wg, wu, wd = map(jnp.asarray, experts("gathered"))

    def layer(x):
        weights, ids = mixtral(x, router)
        h = nn.silu(jnp.einsum("td,tkdf->tkf", x, wg[ids])) * jnp.einsum("td,tkdf->tkf", x, wu[ids])
        return jnp.einsum("tkf,tkfd,tk->td", h, wd[ids], weights)

    return layer, tokens


@moe("gathered-rows")
def _():
    router, wg, wu, wd = experts("gathered-rows")

    def layer(x):
        flat = x.reshape(-1, D)
        weights, ids = chosen_first(flat, router)
        h = nn.gelu(jnp.einsum("td,tkdf->tkf", flat, jnp.take(wg, ids, axis=0)))
        h = h * jnp.einsum("td,tkdf->tkf", flat, jnp.take(wu, ids, axis=0))
        y = jnp.einsum("tkf,tkfd->tkd", h, jnp.take(wd, ids, axis=0))
        return jnp.sum(y * weights[..., None], axis=1).reshape(x.shape)

    return layer, rows


@moe("dispatch-mask")
def _():  # Mesh TensorFlow's style: a mask for dispatch, an array to combine with, no capacity
    router, wg, wu, wd = experts("dispatch")

    def layer(x):
        weights, ids = mixtral(x, router)
        mask = jax.nn.one_hot(ids, E).sum(axis=-2)
        inside = jnp.einsum("td,te->etd", x, mask)
        h = nn.silu(jnp.einsum("etd,edf->etf", inside, wg)) * jnp.einsum("etd,edf->etf", inside, wu)
        return jnp.einsum("etd,te->td", jnp.einsum("etf,efd->etd", h, wd), one_hot_weights(weights, ids))

    return layer, tokens


@moe("unrolled-where")
def _():
    router, wg, wu, wd = experts("unrolled")

    def layer(x):
        weights, ids = qwen(x, router)
        y = jnp.zeros_like(x)
        for e in range(E):
            factor = jnp.sum(jnp.where(ids == e, weights, 0.0), axis=-1, keepdims=True)
            y = y + factor * ((nn.silu(x @ wg[e]) * (x @ wu[e])) @ wd[e])
        return y

    return layer, tokens


@moe("vmap-experts")
def _():
    router, wg, wu, wd = experts("vmap")

    def layer(x):
        weights, ids = mixtral(x, router)
        each = jax.vmap(lambda g, u, d: (nn.silu(x @ g) * (x @ u)) @ d)(
            jnp.asarray(wg), jnp.asarray(wu), jnp.asarray(wd)
        )
        return jnp.einsum("etd,te->td", each, one_hot_weights(weights, ids))

    return layer, tokens


@moe("scan-experts")
def _():
    router, wg, wu, wd = experts("scan")

    def layer(x):
        weights, ids = mixtral(x, router)
        combine = one_hot_weights(weights, ids)

        def step(y, one):
            g, u, d, c = one
            return y + c[:, None] * ((nn.silu(x @ g) * (x @ u)) @ d), None

        return jax.lax.scan(step, jnp.zeros_like(x), (wg, wu, wd, combine.T))[0]

    return layer, tokens


@moe("all-then-take")
def _():
    router, wg, wu, wd = experts("take")

    def layer(x):
        weights, ids = sigmoid(x, router)
        h = nn.silu(jnp.einsum("td,edf->tef", x, wg)) * jnp.einsum("td,edf->tef", x, wu)
        every = jnp.einsum("tef,efd->ted", h, wd)
        return jnp.sum(jnp.take_along_axis(every, ids[..., None], axis=1) * weights[..., None], axis=1)

    return layer, tokens


@moe("plain-relu")
def _():  # Switch: no gate
    w = Weights("plain")
    router, wi, wo = w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, F, D)

    def layer(x):
        weights, ids = switch(x, router)
        h = jax.nn.relu(jnp.einsum("td,edf->tef", x, wi))
        return jnp.einsum("tef,efd,te->td", h, wo, one_hot_weights(weights, ids))

    return layer, tokens


@moe("scatter-combine")
def _():
    router, wg, wu, wd = experts("scatter")

    def layer(x):
        weights, ids = mixtral(x, router)
        combine = jnp.zeros((x.shape[0], E)).at[jnp.arange(x.shape[0])[:, None], ids].set(weights)
        h = nn.silu(jnp.einsum("td,edf->tef", x, wg)) * jnp.einsum("td,edf->tef", x, wu)
        return jnp.einsum("tef,efd,te->td", h, wd, combine)

    return layer, {"x": f32(9, D)}


MIXTURE = experts("function")


@onnx_function
def mixture(x):
    return dense(x, *mixtral(x, MIXTURE[0]), *MIXTURE[1:])


@moe("function")
def _():
    return (lambda x: mixture(x)), tokens


@moe("capacity-in-weights")
def _():  # at most two tokens for an expert: the weights of others become zero before the experts
    router, wg, wu, wd = experts("capacity")

    def layer(x):
        weights, ids = switch(x, router)
        mask = jax.nn.one_hot(ids[..., 0], E)
        place = jnp.cumsum(mask, axis=0) * mask
        return dense(x, weights * jnp.sum(mask * (place <= 2), -1, keepdims=True), ids, wg, wu, wd)

    return layer, {"x": f32(9, D)}


def decoder(name, **blocks):
    return CASES(f"decoder-{name}", **blocks)


H, W = 2, 8


def rms(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * scale


def rope(x, positions):
    angle = positions[..., None] / 10000.0 ** (2 * jnp.arange(0, W // 2) / W)
    sin, cos = jnp.sin(angle)[:, :, None], jnp.cos(angle)[:, :, None]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(q, k, v):
    scores = jnp.einsum("bthd,bshd->bhts", q * W**-0.5, k)
    mask = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)


def parameters(name):
    w = Weights(name)
    return {
        "ln1": w.scale(D), "ln2": w.scale(D), "qn": w.scale(W), "kn": w.scale(W),
        "q": w.matrix(D, H, W), "k": w.matrix(D, H, W), "v": w.matrix(D, H, W), "o": w.matrix(H, W, D),
        "g": w.matrix(D, F), "u": w.matrix(D, F), "d": w.matrix(F, D),
    }  # fmt: skip


def layer(x, positions, p, heads_normed=False, activation=nn.silu):
    h = rms(x, p["ln1"])
    q, k, v = (jnp.einsum("btd,dhw->bthw", h, p[n]) for n in "qkv")
    if heads_normed:
        q, k = rms(q, p["qn"]), rms(k, p["kn"])
    x = x + jnp.einsum("bthw,hwd->btd", attend(rope(q, positions), rope(k, positions), v), p["o"])
    h = rms(x, p["ln2"])
    return x + (activation(h @ p["g"]) * (h @ p["u"])) @ p["d"]


static = {"x": f32("B", 7, D), "positions": i32("B", 7)}


@decoder("llama", rmsnorm=2, rope=2, glu=1)
def _():
    p = parameters("llama")
    return (lambda x, positions: layer(x, positions, p)), static


@decoder("qwen3", rmsnorm=4, rope=2, glu=1)
def _():
    p = parameters("qwen3")
    return (lambda x, positions: layer(x, positions, p, heads_normed=True)), static


@decoder("gemma", rmsnorm=2, rope=2, glu=1)
def _():
    p = parameters("gemma")
    p["ln1"], p["ln2"] = p["ln1"] + 1, p["ln2"] + 1
    return (lambda x, positions: layer(x, positions, p, activation=nn.gelu)), static


@decoder("scan", rmsnorm=2, rope=2, glu=1)
def _():  # two layers as one body, its weights stacked (MaxText, T5X)
    both = [parameters("scan1"), parameters("scan2")]
    stacked = {k: np.stack([p[k] for p in both]) for k in both[0]}

    def run(x, positions):
        return jax.lax.scan(lambda x, p: (layer(x, positions, p), None), x, stacked)[0]

    return run, {"x": f32(2, 7, D), "positions": i32(2, 7)}


@decoder("t5-encoder", rmsnorm=2, glu=1)
def _():
    p = parameters("t5")
    bias = Weights("bias").bias(1, H, 7, 7)

    def run(x):
        h = rms(x, p["ln1"])
        q, k, v = (jnp.einsum("btd,dhw->bthw", h, p[n]) for n in "qkv")
        a = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) + bias, -1)
        x = x + jnp.einsum("bhts,bshw,hwd->btd", a, v, p["o"])
        h = rms(x, p["ln2"])
        return x + (nn.gelu(h @ p["g"]) * (h @ p["u"])) @ p["d"]

    return run, {"x": f32("B", 7, D)}


@decoder("mixtral", rmsnorm=2, rope=2, router=1, moe=1)
def _():
    p = parameters("mixtral")
    router, wg, wu, wd = experts("mixtral-decoder")

    def run(x, positions):
        h = rms(x, p["ln1"])
        q, k, v = (jnp.einsum("btd,dhw->bthw", h, p[n]) for n in "qkv")
        x = x + jnp.einsum("bthw,hwd->btd", attend(rope(q, positions), rope(k, positions), v), p["o"])
        h = rms(x, p["ln2"]).reshape(-1, D)
        return x + dense(h, *mixtral(h, router), wg, wu, wd).reshape(x.shape)

    return run, static


BLOCK = parameters("functions")


@onnx_function
def block(x, positions):
    return layer(x, positions, BLOCK)


@decoder("functions", rmsnorm=2, rope=2, glu=1)
def _():  # of one function, called twice, whose blocks the file has once
    return (lambda x, positions: block(block(x, positions), positions)), static
