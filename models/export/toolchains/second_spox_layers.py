"""The second set of spox: routers, experts and a decoder; numpy gives their outputs."""

import numpy as np
from spox._function import to_function

from cases import Cases, Weights, f32, i32
from second_spox import Ops, S, in_halves
from spox_layers import best, softmax
from spox_models import gelu, inverse, rms, sigmoid, silu, turned

CASES = Cases()
D, F, E, K = 16, 12, 6, 2
tokens = {"x": f32("T", D)}
CORRECTION = Weights("correction").bias(E)


def top(o, x, k=K):
    return o.top_k(x, o.ints(k), axis=-1)


def share(o, weights, epsilon=0.0):
    total = o.total(weights)
    return o.div(weights, o.add(total, o.c(epsilon)) if epsilon else total)


def parts(weights):
    return weights / weights.sum(-1, keepdims=True)


# Routers: in spox and in numpy, weights and numbers of the chosen, of logits.
def renormalized(o, z):
    weights, ids = top(o, o.softmax(z, axis=-1))
    return share(o, weights, 1e-9), ids


def np_renormalized(z):
    weights, ids = best(softmax(z))
    return parts(weights), ids


def deepseek3(o, z):
    scores = o.sigmoid(z)
    choice = o.add(scores, o.c(CORRECTION))
    groups = o.total(top(o, o.reshape(choice, o.ints(-1, 3, 2)))[0], keepdims=0)
    keep = o.reduce_max(o.one_hot(top(o, groups)[1], o.c(3, np.int64), o.c([0.0, 1.0]), axis=-1), o.ints(1), keepdims=0)
    keep = o.reshape(o.expand(o.unsqueeze(keep, o.ints(2)), o.ints(1, 1, 2)), o.ints(-1, E))
    ids = top(o, o.where(o.greater(keep, o.c(0.0)), choice, o.c(-np.inf)))[1]
    return o.mul(share(o, o.gather_elements(scores, ids, axis=1), 1e-20), o.c(2.5)), ids


def np_deepseek3(z):
    scores = sigmoid(z)
    choice = scores + CORRECTION
    groups = np.sort(choice.reshape(-1, 3, 2), -1).sum(-1)
    kept = np.zeros_like(groups)
    np.put_along_axis(kept, best(groups)[1], 1, -1)
    ids = best(np.where(np.repeat(kept, 2, -1) > 0, choice, -np.inf))[1]
    return parts(np.take_along_axis(scores, ids, -1)) * 2.5, ids


def sigmoid_of_one(o, z):
    values, ids = top(o, z, 1)
    return o.sigmoid(values), ids


def argmax_gathered(o, z):
    ids = o.arg_max(z, axis=-1, keepdims=1)
    return o.gather_elements(o.softmax(z, axis=-1), ids, axis=-1), ids


def smallest_of_negated(o, z):
    values, ids = o.top_k(o.neg(z), o.ints(K), axis=-1, largest=0)
    return o.softmax(o.neg(values), axis=-1), ids


def softplus_root(o, z):
    weights, ids = top(o, o.sqrt(o.softplus(z)))
    return share(o, weights), ids


def exponentials(o, z):
    """A softmax of the chosen, written out."""
    values, ids = top(o, z)
    return share(o, o.exp(o.sub(values, o.reduce_max(values, o.ints(-1))))), ids


def l1(o, z):
    weights, ids = top(o, o.sigmoid(z))
    return o.div(weights, o.reduce_l1(weights, o.ints(-1))), ids


def l2(o, z):
    weights, ids = top(o, o.sigmoid(z))
    return o.div(weights, o.reduce_l2(weights, o.ints(-1))), ids


def of(score, after=lambda w: w, k=K):
    def router(z):
        weights, ids = best(score(z), k)
        return after(weights), ids

    return router


def np_chosen(z):
    values, ids = best(z)
    return softmax(values), ids


def l2_parts(w):
    return w / np.sqrt((w**2).sum(-1, keepdims=True))


ROUTERS = {
    "deepseek3": (20, deepseek3, np_deepseek3),
    "renormalized": (18, renormalized, np_renormalized),
    "sigmoid-of-one": (23, sigmoid_of_one, of(sigmoid, k=1)),
    "argmax-gathered": (22, argmax_gathered, of(softmax, k=1)),
    "smallest-of-negated": (24, smallest_of_negated, np_chosen),
    "softplus-root": (22, softplus_root, of(lambda z: np.sqrt(np.log1p(np.exp(z))), parts)),
    "exponentials": (19, exponentials, np_chosen),
    "l1": (18, l1, of(sigmoid, parts)),
    "l2": (21, l2, of(sigmoid, l2_parts)),
}


def moe(name, version, form, choose=renormalized, golden=np_renormalized, activation=silu, **blocks):
    """Adds a mixture given as a function of the operators, x, the choice and the experts' matrices."""

    @CASES(name, **(blocks or {"router": 1, "moe": 1}))
    def _():
        w, o = Weights(name), Ops(version)
        router, *m = w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, D, F), w.matrix(E, F, D)

        def numpy(x):
            weights, ids = golden(x @ router)
            full = np.zeros((len(x), E))
            np.put_along_axis(full, ids, weights, -1)
            return sum(full[:, e : e + 1] * ((activation(x @ m[0][e]) * (x @ m[1][e])) @ m[2][e]) for e in range(E))

        return (lambda x: form(o, x, *choose(o, o.matmul(x, o.c(router))), *map(o.c, m))), numpy, tokens


def every(o, x, wg, wu, wd, act=Ops.silu):
    return o.matmul(o.mul(act(o, o.matmul(x, wg)), o.matmul(x, wu)), wd)


def full(o, weights, ids):
    """The weight of each expert, by a scatter into zeros."""
    zeros = o.expand(o.c(0.0), o.concat([o.slice(o.shape(ids), o.ints(0), o.ints(1)), o.ints(E)], axis=0))
    return o.scatter_elements(zeros, ids, weights, axis=1)


def scattered(o, x, weights, ids, *m):
    y = o.mul(every(o, x, *m), o.unsqueeze(o.transpose(full(o, weights, ids)), o.ints(2)))
    return o.reduce_sum(y, o.ints(0), keepdims=0)


def one_hot(o, x, weights, ids, *m):
    hot = o.one_hot(ids, o.c(E, np.int64), o.c([0.0, 1.0]), axis=-1)
    combine = o.squeeze(o.matmul(o.unsqueeze(weights, o.ints(1)), hot), o.ints(1))
    return o.einsum([every(o, x, *m), combine], equation="etd,te->td")


def gathered(o, x, weights, ids, wg, wu, wd):
    row = o.unsqueeze(x, o.ints(1, 2))
    g, u, d = (o.gather(m, ids) for m in (wg, wu, wd))
    h = o.matmul(o.mul(o.silu(o.matmul(row, g)), o.matmul(row, u)), d)
    return o.squeeze(o.matmul(o.unsqueeze(weights, o.ints(1)), o.squeeze(h, o.ints(2))), o.ints(1))


def loop(o, x, weights, ids, wg, wu, wd):
    combine = full(o, weights, ids)

    def body(e, _, y):
        e = o.reshape(e, o.ints())
        h = every(o, x, *(o.gather(m, e) for m in (wg, wu, wd)))
        return [o.const(True), o.add(y, o.mul(o.unsqueeze(o.gather(combine, e, axis=1), o.ints(1)), h))]

    y = o.loop(o.c(E, np.int64), v_initial=[o.mul(x, o.c(0.0))], body=body)[0]
    return o.reshape(y, o.ints(-1, D))


def hits(o, x, weights, ids, wg, wu, wd):
    """The tokens of each expert are taken out, and what it says of them is added to the result."""
    y = o.mul(x, o.c(0.0))
    for e in range(E):
        n = o.c(e, np.int64)
        at = o.non_zero(o.equal(ids, n))
        rows, slots = (o.gather(at, o.c(i, np.int64), axis=0) for i in (0, 1))
        out = every(o, o.gather(x, rows), *(o.gather(m, n) for m in (wg, wu, wd)))
        factor = o.gather_nd(weights, o.transpose(at))
        y = o.scatter_nd(y, o.unsqueeze(rows, o.ints(1)), o.mul(out, o.unsqueeze(factor, o.ints(1))), reduction="add")
    return y


def if_hit(o, x, weights, ids, wg, wu, wd):
    """An expert that no token goes to is passed over."""
    y = o.mul(x, o.c(0.0))
    for e in range(E):
        hit = o.cast(o.equal(ids, o.c(e, np.int64)), to=np.float32)
        factor, before = o.total(o.mul(hit, weights)), y
        m = [o.gather(t, o.c(e, np.int64)) for t in (wg, wu, wd)]
        y = o.if_(
            o.greater(o.reduce_sum(hit, keepdims=0), o.c(0.0)),
            then_branch=lambda f=factor, b=before, m=m: [o.add(b, o.mul(f, every(o, x, *m)))],
            else_branch=lambda b=before: [o.mul(b, o.c(1.0))],
        )[0]
    return y


def thresholded(o, z):
    """Weights of all: those below the second best are zero. It gives no numbers."""
    p = o.softmax(z, axis=-1)
    least = o.gather(top(o, p)[0], o.ints(1), axis=1)
    return share(o, o.where(o.less(p, least), o.c(0.0), p)), None


def of_all(o, x, combine, _, *m):
    return o.einsum([every(o, x, *m), combine], equation="etd,te->td")


for name, (version, form, golden) in ROUTERS.items():
    moe(f"router-{name}", version, scattered, form, golden)
moe("moe-scattered", 18, scattered)
moe("moe-one-hot", 22, one_hot)
moe("moe-gathered", 23, gathered)
moe(
    "moe-gelu",
    21,
    lambda o, x, w, i, *m: o.einsum(
        [every(o, x, *m, act=lambda o, g: o.gelu(g)), full(o, w, i)], equation="etd,te->td"
    ),
    activation=gelu,
)
moe("moe-loop", 19, loop)
moe("moe-hits", 18, hits)
moe("moe-if-hit", 20, if_hit)
moe("moe-threshold", 21, of_all, thresholded)
moe("moe-one-expert", 24, gathered, sigmoid_of_one, of(sigmoid, k=1))
moe(
    "near-moe-all",
    21,
    of_all,
    lambda o, z: (o.softmax(z, axis=-1), None),
    lambda z: (softmax(z), np.broadcast_to(np.arange(E), z.shape)),
    glu=1,
)


@CASES("near-moe-capacity", router=1)
def _():  # three tokens for an expert
    w, o = Weights("capacity"), Ops(20)
    router, wi, wo = w.matrix(D, E), w.matrix(E, D, F), w.matrix(E, F, D)
    one, zero = o.c(1, np.int64), o.c([0.0, 1.0])

    def form(x):
        p = o.softmax(o.matmul(x, o.c(router)), axis=-1)
        mask = o.one_hot(o.arg_max(p, axis=1, keepdims=0), o.c(E, np.int64), zero, axis=-1)
        place = o.total(o.mul(o.sub(o.cumsum(mask, o.c(0, np.int64)), o.c(1.0)), mask), keepdims=0)
        slot = o.one_hot(
            o.min([o.cast(place, to=np.int64), o.c(3, np.int64)]), o.add(one, o.c(3, np.int64)), zero, axis=-1
        )
        dispatch = o.einsum([mask, o.slice(slot, o.ints(0), o.ints(3), o.ints(1))], equation="te,tc->tec")
        inside = o.einsum([x, dispatch], equation="td,tec->ecd")
        y = o.matmul(o.relu(o.matmul(inside, o.c(wi))), o.c(wo))
        return o.mul(o.einsum([y, dispatch], equation="ecd,tec->td"), o.reduce_max(p, o.ints(1)))

    def golden(x):
        p, count, y = softmax(x @ router), np.zeros(E, int), np.zeros(x.shape)
        for t, e in enumerate(p.argmax(-1)):
            if count[e] < 3:
                y[t] = p[t, e] * (np.maximum(x[t] @ wi[e], 0) @ wo[e])
            count[e] += 1
        return y

    return form, golden, {"x": f32(17, D)}


def decoder(name, version, shapes, function=False):
    @CASES(f"decoder-{name}", rmsnorm=4, rope=2, glu=1)
    def _():  # queries and keys are normed
        w, o = Weights(name), Ops(version)
        H, W = 2, 8
        q, k, v, out, wg, wu, wd = (w.matrix(*s) for s in [(D, D)] * 4 + [(D, 24), (D, 24), (24, D)])
        qn, kn, s2 = w.scale(W), w.scale(W), w.scale(D)
        norm = lambda x, s: o.mul(o.c(s), o.div(x, o.root(x)))
        if function:

            @to_function("Norm", "acme.norms", _version=1)
            def norm_function(x, s):
                return [o.mul(s, o.div(x, o.root(x)))]

            norm = lambda x, s: norm_function(x, o.c(s))[0]

        def form(x, positions):
            angle = o.mul(o.unsqueeze(o.cast(positions, to=np.float32), o.ints(2, 3)), o.c(inverse))
            sin, cos = o.sin(angle), o.cos(angle)
            heads = lambda h, m: o.reshape(o.matmul(h, o.c(m)), o.ints(0, 0, H, W))
            h = norm(x, S)
            a, b = (in_halves(o, norm(heads(h, m), n), sin, cos) for m, n in ((q, qn), (k, kn)))
            scores = o.mul(o.matmul(o.transpose(a, perm=(0, 2, 1, 3)), o.transpose(b, perm=(0, 2, 3, 1))), o.c(W**-0.5))
            h = o.matmul(o.softmax(scores, axis=-1), o.transpose(heads(h, v), perm=(0, 2, 1, 3)))
            x = o.add(x, o.matmul(o.reshape(o.transpose(h, perm=(0, 2, 1, 3)), o.ints(0, 0, D)), o.c(out)))
            h = norm(x, s2)
            return o.add(x, o.matmul(o.mul(o.silu(o.matmul(h, o.c(wg))), o.matmul(h, o.c(wu))), o.c(wd)))

        def golden(x, positions):
            heads = lambda h, m: (h @ m).reshape(*x.shape[:2], H, W)
            h = rms(x, S)
            a, b = (turned(rms(heads(h, m), n), positions) for m, n in ((q, qn), (k, kn)))
            scores = np.einsum("bthw,bshw->bhts", a, b) * W**-0.5
            x = x + np.einsum("bhts,bshw->bthw", softmax(scores), heads(h, v)).reshape(x.shape) @ out
            h = rms(x, s2)
            return x + (silu(h @ wg) * (h @ wu)) @ wd

        return form, golden, shapes


named = {"x": f32("B", "S", D), "positions": i32("B", "S")}
decoder("qwen3-18", 18, named)
decoder("qwen3-24", 24, named)
decoder("qwen3-static", 21, {"x": f32(2, 7, D), "positions": i32(2, 7)})
decoder("qwen3-unnamed", 21, {"x": f32(None, None, D), "positions": i32(None, None)})
decoder("qwen3-functions", 22, named, function=True)
