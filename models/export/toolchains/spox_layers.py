"""Mixtures of experts and a decoder layer written with spox; numpy gives their outputs."""

import numpy as np
import spox.opset.ai.onnx.v21 as op
from spox._function import to_function

from cases import Cases, Weights, f32, i32
from spox_models import c, halves, ints, inverse, mean, rms, root, sigmoid, silu, squares, swiglu, total, turned

CASES = Cases()
D, F, E, K = 16, 12, 6, 2  # channels, hidden channels, experts, experts of a token
tokens = {"x": f32("T", D)}


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def best(scores, k=K):
    ids = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(scores, ids, -1), ids


def top(scores, k=K):
    return op.top_k(scores, ints(k), axis=-1)


def renormalized(weights):
    return op.div(weights, total(weights))


# Of each router: its form in spox and in numpy, functions of the logits.
def probabilities(z):
    return top(op.softmax(z, axis=-1))


def mixtral(z):
    weights, ids = probabilities(z)
    return renormalized(weights), ids


def chosen_first(z):
    values, ids = top(z)
    return op.softmax(values), ids


def logistic(z):
    weights, ids = top(op.sigmoid(z))
    return op.mul(op.div(weights, op.add(total(weights), c(1e-20))), c(2.5)), ids


def exponentials(z):
    e = op.exp(op.sub(z, op.reduce_max(z, ints(-1))))
    weights, ids = top(e)
    return renormalized(weights), ids


def log_softmax(z):
    weights, ids = top(op.log_softmax(z, axis=-1))
    return op.exp(weights), ids


def one(z):
    p = op.softmax(z, axis=1)
    return op.reduce_max(p, ints(1)), op.arg_max(p, axis=1, keepdims=1)


def masked(z):
    """The chosen ones among all: a threshold is put in, as smallest of the chosen."""
    values, ids = top(z)
    keep = op.scatter_elements(op.mul(z, c(0.0)), ids, op.add(op.mul(values, c(0.0)), c(1.0)), axis=1)
    p = op.softmax(op.where(op.greater(keep, c(0.5)), z, c(-1e30)), axis=-1)
    return op.gather_elements(p, ids, axis=1), ids


CORRECTION = Weights("correction").bias(E)


def corrected(z):
    scores = op.sigmoid(z)
    ids = top(op.add(scores, c(CORRECTION)))[1]
    return renormalized(op.gather_elements(scores, ids, axis=-1)), ids


def np_probabilities(z):
    return best(softmax(z))


def np_renormalized(z):
    weights, ids = best(softmax(z))
    return weights / weights.sum(-1, keepdims=True), ids


def np_logistic(z):
    weights, ids = best(sigmoid(z))
    return 2.5 * weights / weights.sum(-1, keepdims=True), ids


def np_one(z):
    return best(softmax(z), 1)


def np_corrected(z):
    scores = sigmoid(z)
    ids = best(scores + CORRECTION)[1]
    weights = np.take_along_axis(scores, ids, -1)
    return weights / weights.sum(-1, keepdims=True), ids


ROUTERS = {
    "softmax": (probabilities, np_probabilities),
    "mixtral": (mixtral, np_renormalized),
    "chosen-first": (chosen_first, np_renormalized),
    "sigmoid": (logistic, np_logistic),
    "exponentials": (exponentials, np_renormalized),
    "log-softmax": (log_softmax, np_probabilities),
    "one": (one, np_one),
    "masked": (masked, np_renormalized),
    "corrected": (corrected, np_corrected),
}


def moe(name, **blocks):
    return CASES(f"moe-{name}", **(blocks or {"router": 1, "moe": 1}))


def experts(name):
    w = Weights(name)
    return w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, D, F), w.matrix(E, F, D)


def numpy_layer(x, choose, router, wg, wu, wd):
    weights, ids = choose(x @ router)
    y = np.zeros_like(x, np.float64)
    for t in range(len(x)):
        for w, e in zip(weights[t], ids[t], strict=True):
            y[t] += w * ((silu(x[t] @ wg[e]) * (x[t] @ wu[e])) @ wd[e])
    return y


def combine(weights, ids):
    hot = op.one_hot(ids, op.const(np.array(E, np.int64)), c([0.0, 1.0]), axis=-1)
    return total(op.mul(hot, op.unsqueeze(weights, ints(-1))), 1, keepdims=0)


def act(g, u):
    return op.mul(op.mul(g, op.sigmoid(g)), u)


def dense(x, weights, ids, wg, wu, wd):
    x = op.unsqueeze(x, ints(0))
    y = op.matmul(act(op.matmul(x, c(wg)), op.matmul(x, c(wu))), c(wd))  # experts, tokens, channels
    factors = op.unsqueeze(op.transpose(combine(weights, ids), perm=[1, 0]), ints(2))
    return total(op.mul(y, factors), 0, keepdims=0)


def einsums(x, weights, ids, wg, wu, wd):
    h = act(op.einsum([x, c(wg)], equation="td,edf->tef"), op.einsum([x, c(wu)], equation="td,edf->tef"))
    return op.einsum([h, c(wd), combine(weights, ids)], equation="tef,efd,te->td")


def gathered(x, weights, ids, wg, wu, wd):
    row = op.unsqueeze(x, ints(1, 2))
    h = act(op.matmul(row, op.gather(c(wg), ids)), op.matmul(row, op.gather(c(wu), ids)))
    y = op.squeeze(op.matmul(h, op.gather(c(wd), ids)), ints(2))
    return total(op.mul(y, op.unsqueeze(weights, ints(2))), 1, keepdims=0)


def gathered_weighted_sum(x, weights, ids, wg, wu, wd):
    row = op.unsqueeze(x, ints(1, 2))
    h = act(op.matmul(row, op.gather(c(wg), ids)), op.matmul(row, op.gather(c(wu), ids)))
    y = op.squeeze(op.matmul(h, op.gather(c(wd), ids)), ints(2))
    return op.squeeze(op.matmul(op.unsqueeze(weights, ints(1)), y), ints(1))


def unrolled(x, weights, ids, wg, wu, wd):
    parts = []
    for e in range(E):
        hit = op.cast(op.equal(ids, op.const(np.array(e, np.int64))), to=np.float32)
        y = op.matmul(act(op.matmul(x, c(wg[e])), op.matmul(x, c(wu[e]))), c(wd[e]))
        parts.append(op.mul(total(op.mul(hit, weights)), y))
    return op.sum(parts)


def by_choice(x, weights, ids, wg, wu, wd):
    """The first choice of each token, then the second."""
    y = None
    for k in range(K):
        expert = op.squeeze(op.slice(ids, ints(k), ints(k + 1), ints(1)), ints(1))
        weight = op.slice(weights, ints(k), ints(k + 1), ints(1))
        row = op.unsqueeze(x, ints(1))
        h = act(op.matmul(row, op.gather(c(wg), expert)), op.matmul(row, op.gather(c(wu), expert)))
        out = op.mul(op.squeeze(op.matmul(h, op.gather(c(wd), expert)), ints(1)), weight)
        y = out if y is None else op.add(y, out)
    return y


def hits(x, weights, ids, wg, wu, wd):
    y = op.mul(x, c(0.0))
    for e in range(E):
        at = op.transpose(op.non_zero(op.equal(ids, op.const(np.array(e, np.int64)))), perm=[1, 0])
        rows = op.slice(at, ints(0), ints(1), ints(1))
        inside = op.gather_nd(x, rows)
        out = op.matmul(act(op.matmul(inside, c(wg[e])), op.matmul(inside, c(wu[e]))), c(wd[e]))
        y = op.scatter_nd(y, rows, op.mul(out, op.unsqueeze(op.gather_nd(weights, at), ints(1))), reduction="add")
    return y


def packed(x, weights, ids, wg, wu, wd):
    """Gate and up are one matrix of each expert."""
    both = np.concatenate([wg, wu], axis=-1)
    h = op.matmul(op.unsqueeze(x, ints(1, 2)), op.gather(c(both), ids))
    g, u = op.split(h, num_outputs=2, axis=3)
    y = op.squeeze(op.matmul(act(g, u), op.gather(c(wd), ids)), ints(2))
    return total(op.mul(y, op.unsqueeze(weights, ints(2))), 1, keepdims=0)


def functions(x, weights, ids, wg, wu, wd):
    parts = []
    for e in range(E):
        hit = op.cast(op.equal(ids, op.const(np.array(e, np.int64))), to=np.float32)
        y = one_expert(x, c(wg[e]), c(wu[e]), c(wd[e]))[0]
        parts.append(op.mul(total(op.mul(hit, weights)), y))
    return op.sum(parts)


@to_function("Expert", "my.lib", _version=1)
def one_expert(x, wg, wu, wd):
    return [op.matmul(swiglu(op.matmul(x, wg), op.matmul(x, wu))[0], wd)]


def add(name, form, router):
    @moe(name)
    def _():
        p = experts(name)
        write, numpy = ROUTERS[router]
        return (
            lambda x: form(x, *write(op.matmul(x, c(p[0]))), *p[1:]),
            lambda x: numpy_layer(x, numpy, *p),
            tokens,
        )


for router in ROUTERS:
    add(f"router-{router}", dense, router)
for form in [
    einsums, gathered, gathered_weighted_sum, unrolled, by_choice, hits, packed, functions,
]:  # fmt: skip
    add(form.__name__.replace("_", "-"), form, "mixtral")


@CASES("decoder-llama", rmsnorm=2, rope=2, glu=1)
def _():
    w = Weights("decoder")
    h, n = 2, 8
    ln1, ln2 = w.scale(D), w.scale(D)
    q, k, v, o = (w.matrix(D, D) for _ in range(4))
    wg, wu, wd = w.matrix(D, F), w.matrix(D, F), w.matrix(F, D)

    def norm(x, s):
        return op.mul(op.div(x, root(mean(squares(x)))), c(s))

    def form(x, positions):
        angle = op.unsqueeze(op.mul(op.unsqueeze(op.cast(positions, to=np.float32), ints(-1)), c(inverse)), ints(2))
        sin, cos = op.sin(angle), op.cos(angle)
        y = norm(x, ln1)
        heads = lambda m: op.reshape(op.matmul(y, c(m)), ints(0, 0, h, n))
        first = lambda t: op.transpose(t, perm=[0, 2, 1, 3])
        scores = op.matmul(
            first(halves(heads(q), sin, cos)), op.transpose(halves(heads(k), sin, cos), perm=[0, 2, 3, 1])
        )
        length = op.gather(op.shape(x), ints(1))
        ones = op.expand(c(1.0), op.concat([length, length], axis=0))
        scores = op.add(op.mul(scores, c(n**-0.5)), op.mul(op.trilu(ones, op.const(1, np.int64), upper=1), c(-1e9)))
        a = op.reshape(first(op.matmul(op.softmax(scores), first(heads(v)))), ints(0, 0, D))
        x = op.add(x, op.matmul(a, c(o)))
        y = norm(x, ln2)
        return op.add(x, op.matmul(act(op.matmul(y, c(wg)), op.matmul(y, c(wu))), c(wd)))

    def golden(x, positions):
        y = rms(x, ln1)
        heads = lambda m: (y @ m).reshape(*x.shape[:2], h, n)
        scores = np.einsum("bthw,bshw->bhts", turned(heads(q), positions), turned(heads(k), positions)) * n**-0.5
        scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -1e9)
        x = x + np.einsum("bhts,bshw->bthw", softmax(scores), heads(v)).reshape(x.shape) @ o
        y = rms(x, ln2)
        return x + (silu(y @ wg) * (y @ wu)) @ wd

    return form, golden, {"x": f32("B", "S", D), "positions": i32("B", "S")}
