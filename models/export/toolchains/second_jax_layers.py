"""The second set of JAX: routers, experts and decoders; Tunix has the latter for Llama 3, Qwen 3, Gemma 2 and 3."""

import importlib
import importlib.util
import sys
import types

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from cases import Cases, Weights, f32, i32
from second_jax import away

CASES = Cases()
D, F, E, K = 16, 12, 6, 2  # channels, hidden channels, experts, experts of a token
tokens = {"x": f32("T", D)}


def tunix(name):
    """Tunix's module of a model; its package would import what training needs."""
    if "tunix" not in sys.modules:
        bare = types.ModuleType("tunix")
        bare.__path__ = importlib.util.find_spec("tunix").submodule_search_locations
        sys.modules["tunix"] = bare
    return importlib.import_module(f"tunix.models.{name}.model")


def experts(name):
    w = Weights(name)
    return w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, D, F), w.matrix(E, F, D)


# Routers: weights and numbers of the chosen, of logits.
def deepseek3(z):
    """Sigmoids, a correction for the choice, the two best of three groups by their two best, weights of sum 2.5."""
    scores = jax.nn.sigmoid(z)
    choice = scores + Weights("correction").bias(E)
    groups = choice.reshape(-1, 3, 2)
    best = jax.lax.top_k(jax.lax.top_k(groups, 2)[0].sum(-1), 2)[1]
    mask = jax.nn.one_hot(best, 3).sum(1)
    masked = jnp.where(jnp.repeat(mask, 2, axis=1) == 0, -jnp.inf, choice)
    ids = jax.lax.top_k(masked, K)[1]
    weights = jnp.take_along_axis(scores, ids, axis=1)
    return 2.5 * weights / (weights.sum(-1, keepdims=True) + 1e-20), ids


def softmax_corrected(z):
    scores = jax.nn.softmax(z)
    ids = jax.lax.top_k(scores + Weights("correction").bias(E), K)[1]
    return jnp.take_along_axis(scores, ids, axis=-1), ids


def sigmoid_of_one(z):
    """Llama 4: the sigmoid of the best."""
    best, ids = jax.lax.top_k(z, 1)
    return jax.nn.sigmoid(best), ids


def clipped_sum(z):
    weights, ids = jax.lax.top_k(jax.nn.softmax(z), K)
    return weights / jnp.clip(weights.sum(-1, keepdims=True), 1e-9), ids


def exp_of_log_softmax(z):
    weights, ids = jax.lax.top_k(jax.nn.log_softmax(z), K)
    return jnp.exp(weights), ids


def softplus_root(z):
    weights, ids = jax.lax.top_k(jnp.sqrt(jax.nn.softplus(z)), K)
    return weights / weights.sum(-1, keepdims=True), ids


def sorted_pairs(z):
    p = jax.nn.softmax(z)
    order = jnp.flip(jnp.argsort(p, axis=-1), -1)[:, :K]
    return jnp.take_along_axis(p, order, -1), order


def best_twice(z):
    """The best, and the best of the others: the first of GShard, without capacity."""
    p = jax.nn.softmax(z)
    first = jnp.argmax(p, -1)
    second = jnp.argmax(p * (1 - jax.nn.one_hot(first, E)), -1)
    ids = jnp.stack([first, second], -1)
    weights = jnp.take_along_axis(p, ids, -1)
    return weights / weights.sum(-1, keepdims=True), ids


def random_scores(z):
    weights, ids = jax.lax.top_k(jnp.cos(z), K)
    return weights, ids


def mixtral(z):
    weights, ids = jax.lax.top_k(jax.nn.softmax(z, axis=-1), K)
    return weights / weights.sum(-1, keepdims=True), ids


def moe(name, form, choose=mixtral, shapes=tokens, **blocks):
    """Adds a mixture given as a function of x, the choice and the experts' matrices."""

    @CASES(name, **(blocks or {"router": 1, "moe": 1}))
    def _():
        router, wg, wu, wd = map(jnp.asarray, experts(name))
        return (lambda x: form(x, *choose(x @ router), wg, wu, wd)), shapes


def combine(weights, ids):
    return jnp.einsum("tke,tk->te", jax.nn.one_hot(ids, E), weights)


def every(x, wg, wu, wd, act=jax.nn.silu):
    return jnp.einsum("etf,efd->etd", act(jnp.einsum("td,edf->etf", x, wg)) * jnp.einsum("td,edf->etf", x, wu), wd)


def weighed(x, weights, ids, *matrices):
    return jnp.einsum("etd,te->td", every(x, *matrices), combine(weights, ids))


def mapped(x, weights, ids, wg, wu, wd):
    each = jax.lax.map(lambda w: (jax.nn.silu(x @ w[0]) * (x @ w[1])) @ w[2], (wg, wu, wd))
    return jnp.einsum("etd,te->td", each, combine(weights, ids))


def factor_of_hidden(x, weights, ids, wg, wu, wd):
    h = jax.nn.silu(jnp.einsum("td,edf->etf", x, wg)) * jnp.einsum("td,edf->etf", x, wu)
    return jnp.einsum("etf,efd->td", h * combine(weights, ids).T[..., None], wd)


def slots(x, weights, ids, wg, wu, wd):
    """A sum over the slots of a token of gathered experts, one slot after another."""
    y = 0.0
    for k in range(K):
        g, u, d = wg[ids[:, k]], wu[ids[:, k]], wd[ids[:, k]]
        h = jax.nn.silu(jnp.einsum("td,tdf->tf", x, g)) * jnp.einsum("td,tdf->tf", x, u)
        y += jnp.einsum("tf,tfd->td", h, d) * weights[:, k : k + 1]
    return y


ROUTERS = [
    deepseek3, softmax_corrected, sigmoid_of_one, exp_of_log_softmax, softplus_root, sorted_pairs, best_twice
]  # fmt: skip
for choose in ROUTERS:
    moe(f"router-{choose.__name__.replace('_', '-')}", weighed, choose)
moe("near-router-random", weighed, random_scores, moe=1)
moe("moe-map-experts", mapped)
moe("moe-factor-of-hidden", factor_of_hidden)
moe("moe-slots", slots)
moe("moe-gelu", lambda x, w, i, *m: jnp.einsum("etd,te->td", every(x, *m, act=jax.nn.gelu), combine(w, i)))
moe("moe-relu-gate", lambda x, w, i, *m: jnp.einsum("etd,te->td", every(x, *m, act=jax.nn.relu), combine(w, i)))
moe(
    "moe-one",
    lambda x, w, i, g, u, d: (
        w
        * jnp.einsum(
            "tf,tfd->td",
            jax.nn.silu(jnp.einsum("td,tdf->tf", x, g[i[:, 0]])) * jnp.einsum("td,tdf->tf", x, u[i[:, 0]]),
            d[i[:, 0]],
        )
    ),
    sigmoid_of_one,
)
moe("moe-clipped-sum", weighed, clipped_sum)


@CASES("moe-threshold", router=1, moe=1)
def _():  # who is at least the second best keeps a weight
    router, *matrices = experts("threshold")

    def layer(x):
        p = jax.nn.softmax(x @ router)
        least = jax.lax.top_k(p, K)[0][:, -1:]
        kept = jnp.where(p >= least, p, 0)
        return jnp.einsum("etd,te->td", every(x, *matrices), kept / kept.sum(-1, keepdims=True))

    return layer, tokens


@CASES("moe-masked-logits", router=1, moe=1)
def _():
    router, *matrices = experts("masked")

    def layer(x):
        z = x @ router
        ids = jax.lax.top_k(z, K)[1]
        masked = jnp.where(jax.nn.one_hot(ids, E).sum(1) > 0, z, -jnp.inf)
        return jnp.einsum("etd,te->td", every(x, *matrices), jax.nn.softmax(masked))

    return layer, tokens


@CASES("moe-shared-expert", router=1, moe=1, glu=1)
def _():
    router, *matrices = experts("shared")
    w = Weights("shared2")
    g, u, d, s = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D), w.matrix(D, 1)

    def layer(x):
        weights, ids = mixtral(x @ router)
        shared = (jax.nn.silu(x @ g) * (x @ u)) @ d
        return jnp.einsum("etd,te->td", every(x, *matrices), combine(weights, ids)) + jax.nn.sigmoid(x @ s) * shared

    return layer, tokens


@CASES("moe-biased-relu-squared", router=1, moe=1)
def _():
    w = Weights("biased")
    router, wi, bi, wo, bo = w.matrix(D, E), w.matrix(E, D, F), w.bias(E, F), w.matrix(E, F, D), w.bias(E, D)

    def layer(x):
        weights, ids = mixtral(x @ router)
        h = jnp.square(jax.nn.relu(jnp.einsum("td,edf->tef", x, wi) + bi))
        return jnp.einsum("ted,te->td", jnp.einsum("tef,efd->ted", h, wo) + bo, combine(weights, ids))

    return layer, tokens


@CASES("moe-gptoss", router=1, moe=1)
def _():
    w = Weights("gptoss")
    router, rb, wi, bi, wo, bo = (
        w.matrix(D, E),
        w.bias(E),
        w.matrix(E, D, 2 * F),
        w.bias(E, 2 * F),
        w.matrix(E, F, D),
        w.bias(E, D),
    )

    def layer(x):
        values, ids = jax.lax.top_k(x @ router + rb, K)
        weights = jax.nn.softmax(values, axis=1)
        t = jnp.einsum("td,tkdf->tkf", x, jnp.asarray(wi)[ids]) + jnp.asarray(bi)[ids]
        g, u = jnp.clip(t[..., ::2], max=2.0), jnp.clip(t[..., 1::2], -2.0, 2.0)
        t = g * jax.nn.sigmoid(1.702 * g) * (u + 1)
        t = jnp.einsum("tkf,tkfd->tkd", t, jnp.asarray(wo)[ids]) + jnp.asarray(bo)[ids]
        return jnp.einsum("tkd,tk->td", t, weights)

    return layer, tokens


def open_moe(name, form, **blocks):
    """A mixture that no op of ours is; the gated unit of its experts is one."""

    @CASES(f"near-moe-{name}", glu=1, **blocks)
    def _():
        router, *matrices = experts(name)
        return (lambda x: form(x, x @ router, *matrices)), {"x": f32(9, D)}


def with_capacity(x, z, wg, wu, wd, capacity=2):  # Switch and GShard
    p = jax.nn.softmax(z)
    mask = jax.nn.one_hot(jnp.argmax(p, -1), E)
    place = jnp.cumsum(mask, axis=0) * mask - 1
    slot = jax.nn.one_hot(place.max(-1).astype(jnp.int32), capacity)
    dispatch = mask[:, :, None] * slot[:, None, :]
    inside = jnp.einsum("td,tec->ecd", x, dispatch)
    h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", inside, wg)) * jnp.einsum("ecd,edf->ecf", inside, wu)
    return jnp.einsum("ecd,tec->td", jnp.einsum("ecf,efd->ecd", h, wd), dispatch * p.max(-1)[:, None, None])


def experts_choose(x, z, wg, wu, wd):
    weights, ids = jax.lax.top_k(jax.nn.softmax(z).T, 3)
    inside = jnp.asarray(x)[ids]
    h = jax.nn.silu(jnp.einsum("ecd,edf->ecf", inside, wg)) * jnp.einsum("ecd,edf->ecf", inside, wu)
    return jnp.einsum("ecd,ec,ect->td", jnp.einsum("ecf,efd->ecd", h, wd), weights, jax.nn.one_hot(ids, x.shape[0]))


def soft(x, z, wg, wu, wd):
    dispatch, share = jax.nn.softmax(z, axis=0), jax.nn.softmax(z, axis=1)
    inside = jnp.einsum("td,te->ed", x, dispatch)
    h = jax.nn.silu(jnp.einsum("ed,edf->ef", inside, wg)) * jnp.einsum("ed,edf->ef", inside, wu)
    return jnp.einsum("ef,efd,te->td", h, wd, share)


open_moe("capacity", with_capacity, router=1)
open_moe("experts-choose", experts_choose)
open_moe("soft", soft)
open_moe("all", lambda x, z, *m: jnp.einsum("etd,te->td", every(x, *m), jax.nn.softmax(z)))


@CASES("moe-tunix", router=1, moe=1)
def _():  # Qwen 3's, with a mask for dispatch
    q = tunix("qwen3")
    config = q.ModelConfig(1, 32, D, F, 2, 8, 1, 1e4, 1e-6, num_experts=4, num_experts_per_tok=2)
    layer = q.MoELayer(config, rngs=nnx.Rngs(5))
    for n in "gate_proj", "up_proj", "down_proj":
        getattr(layer, n).value *= 20  # it draws small ones
    return layer, {"x": f32("B", 7, D)}


def tunix_decoder(name, module, cls, shape=("B", 7), config=None, **blocks):
    """Adds a decoder of one layer of Tunix, as a function of token ids."""

    @CASES(f"decoder-tunix-{name}", **blocks)
    def _():
        m = tunix(module)
        model = getattr(m, cls)(m.ModelConfig(**(config() if callable(config) else config)), rngs=nnx.Rngs(7))
        r = np.random.default_rng(7)
        state = nnx.state(model, nnx.Param)
        draw = lambda p: jnp.asarray(
            r.standard_normal(p.shape) * (0.3 if p.ndim == 1 else 0.25) + (p if p.ndim == 1 else 0), jnp.float32
        )
        nnx.update(model, jax.tree.map(draw, state))

        def run(ids):
            n = ids.shape[1]
            positions = jnp.broadcast_to(jnp.arange(n), ids.shape)
            mask = jnp.broadcast_to(jnp.tril(jnp.ones((n, n), bool)), (ids.shape[0], n, n))
            return model(ids, positions, None, mask)[0]

        return run, {"ids": i32(*shape)}


BASE = {"num_layers": 1, "embed_dim": D, "hidden_dim": 24, "num_heads": 2, "head_dim": 8, "num_kv_heads": 1}
LLAMA = BASE | {"vocab_size": 32, "rope_theta": 10000, "norm_eps": 1e-5}
tunix_decoder("llama3", "llama3", "Llama3", config=LLAMA, rmsnorm=3, rope=2, glu=1)
tunix_decoder("llama3-static", "llama3", "Llama3", (2, 7), config=LLAMA, rmsnorm=3, rope=2, glu=1)
tunix_decoder("qwen3", "qwen3", "Qwen3", config=LLAMA, rmsnorm=5, rope=2, glu=1)
tunix_decoder(
    "qwen3-moe",
    "qwen3",
    "Qwen3",
    config=LLAMA | {"num_experts": 4, "num_experts_per_tok": 2},
    rmsnorm=5,
    rope=2,
    router=1,
    moe=1,
)


def gemma2():
    t = tunix("gemma").AttentionType
    return BASE | {
        "num_embed": 32,
        "final_logit_softcap": 30.0,
        "use_post_attn_norm": True,
        "use_post_ffw_norm": True,
        "attention_types": (t.GLOBAL,),
        "attn_logits_soft_cap": 50.0,
    }


tunix_decoder("gemma2", "gemma", "Gemma", config=gemma2, rmsnorm=5, rope=2, glu=1)
tunix_decoder(
    "gemma3",
    "gemma3",
    "Gemma3",
    config=BASE | {"num_embed": 32, "sliding_window_size": 4, "param_dtype": jnp.float32},
    rmsnorm=7,
    rope=2,
    glu=1,
)
H, W = 2, 8


def rope(x):
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] / 10000.0 ** (jnp.arange(0, W, 2) / W)
    sin, cos = jnp.sin(angle)[:, None], jnp.cos(angle)[:, None]
    a, b = x[..., : W // 2], x[..., W // 2 :]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


class LinenLayer(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        h = nn.RMSNorm()(x)
        q, k, v = (nn.DenseGeneral((H, W), use_bias=False, name=n)(h) for n in "qkv")
        a = nn.dot_product_attention(rope(q), rope(k), v, mask=nn.make_causal_mask(x[..., 0]))
        x = x + nn.DenseGeneral(D, axis=(-2, -1), use_bias=False)(a)
        h = nn.RMSNorm()(x)
        g, u = nn.Dense(24, use_bias=False)(h), nn.Dense(24, use_bias=False)(h)
        return x + nn.Dense(D, use_bias=False)(nn.silu(g) * u), None


def linen_decoder(name, module, **blocks):
    @CASES(f"decoder-{name}", **blocks)
    def _():
        variables = away(module.init(jax.random.key(1), jnp.zeros((2, 7, D))), name)
        return (lambda x: module.apply(variables, x)[0]), {"x": f32("B", 7, D)}


linen_decoder("linen", LinenLayer(), rmsnorm=2, rope=2, glu=1)
linen_decoder("linen-remat", nn.remat(LinenLayer)(), rmsnorm=2, rope=2, glu=1)


@CASES("decoder-haiku", rmsnorm=2, rope=2, glu=1)
def _():
    def form(x):
        h = hk.RMSNorm(-1)(x)
        q, k, v = (hk.Linear(H * W, with_bias=False)(h).reshape(*x.shape[:-1], H, W) for _ in range(3))
        scores = jnp.einsum("...thd,...Thd->...htT", rope(q), rope(k)) / np.sqrt(W).astype(np.float32)
        scores = jnp.where(np.tril(np.ones((7, 7), bool)), scores, -1e30)
        a = jnp.einsum("...htT,...Thd->...thd", jax.nn.softmax(scores), v).reshape(x.shape)
        x = x + hk.Linear(D)(a)
        h = hk.RMSNorm(-1)(x)
        return x + hk.Linear(D)(jax.nn.silu(hk.Linear(24)(h)) * hk.Linear(24)(h))

    model = hk.without_apply_rng(hk.transform(form))
    params = away(model.init(jax.random.key(1), jnp.zeros((2, 7, D))), "haiku")
    return (lambda x: model.apply(params, x)), {"x": f32("B", 7, D)}


@CASES("decoder-equinox", rmsnorm=2, rope=2, glu=1)
def _():  # of one sequence, over a batch of them
    keys = iter(jax.random.split(jax.random.key(3), 9))
    linear = lambda i, o: jax.vmap(eqx.nn.Linear(i, o, use_bias=False, key=next(keys)))
    n1, n2 = away((eqx.nn.RMSNorm(D, use_bias=False), eqx.nn.RMSNorm(D, use_bias=False)), "equinox")
    turn = jax.vmap(eqx.nn.RotaryPositionalEmbedding(W), 1, 1)
    q, k, v, o = (linear(D, H * W) for _ in range(4))
    gate, up, down = linear(D, 24), linear(D, 24), linear(24, D)

    def layer(x):
        h = jax.vmap(n1)(x)
        heads = [turn(m(h).reshape(7, H, W)) for m in (q, k)]
        scores = jnp.einsum("shd,Shd->hsS", *heads) / W**0.5
        scores = jnp.where(jnp.tril(jnp.ones((7, 7), bool)), scores, -jnp.inf)
        x = x + o(jnp.einsum("hsS,Shd->shd", jax.nn.softmax(scores), v(h).reshape(7, H, W)).reshape(7, -1))
        h = jax.vmap(n2)(x)
        return x + down(jax.nn.silu(gate(h)) * up(h))

    return jax.vmap(layer), {"x": f32("B", 7, D)}


@CASES("decoder-palm-package", layernorm=1, rope=2, glu=1)
def _():  # attention and feed-forward beside each other, of one product
    from palm_jax.palm import ParallelTransformerBlock, fixed_pos_embedding

    block = away(ParallelTransformerBlock(D, 8, 2, jax.random.key(3), ff_mult=2), "palm")
    table = fixed_pos_embedding(1.0 / (10000 ** (np.arange(0, 8, 2) / 8)), 7)
    mask = np.tril(np.ones((7, 7)))
    return (lambda x: block(x, pos_emb=table, causal_mask=mask) + x), {"x": f32("B", 7, D)}
