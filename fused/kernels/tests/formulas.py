"""The results of the fused ops, in numpy: FORMULAS has one for each op of the catalogue. The folder of an op may have
its own in formula.py.
"""
import glob
import os
import runpy

import ml_dtypes
import numpy as np

F32, F16, BF16, F8 = "float32", "float16", "bfloat16", "float8e4m3fn"
I64, I32, I8, U8 = "int64", "int32", "int8", "uint8"
NUMPY_TYPE = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16, F8: ml_dtypes.float8_e4m3fn, I64: np.int64,
              I32: np.int32, I8: np.int8, U8: np.uint8}
EPSILON = {F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7}


def rounded(x, dtype):
    """x rounded to dtype, as float32."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(NUMPY_TYPE[dtype]).astype(np.float32)


def rms_norm(x, scale, y_type, axis=-1, epsilon=1e-5, scale_after_cast=0):
    """RMSNorm, from float64 statistics."""
    axes = tuple(range(axis, 0))
    x64 = x.astype(np.float64)
    n = x64 / np.sqrt((x64 * x64).mean(axes, keepdims=True) + epsilon)
    if scale_after_cast:
        n = rounded(n, y_type).astype(np.float64)
    return rounded(n * scale, y_type)


def gelu(g):
    """GELU by the error function."""
    from math import erf, sqrt

    return 0.5 * g * (1 + np.vectorize(erf, otypes=[np.float64])(g / sqrt(2)))


def gelu_tanh(g):
    """GELU by tanh."""
    return 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))


def glu(gate, up, dtype, activation="silu", alpha=1.0, limit=0.0, up_offset=0.0):
    """GLU."""
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    g = gate.astype(np.float64)
    if activation == "silu":
        a = g / (1 + np.exp(-alpha * g))
    else:
        a = gelu(g) if activation == "gelu" else gelu_tanh(g)
    return rounded(rounded(a, dtype) * rounded(up + np.float32(up_offset), dtype), dtype)


def rotary(x, cos, sin, dtype, interleaved=0, rotary_dim=None, rotated_side="first", output_layout="halves"):
    """RotaryEmbedding, bit by bit."""
    r = rotary_dim or x.shape[-1]
    start = 0 if rotated_side == "first" else x.shape[-1] - r
    halves = (np.arange(r // 2), np.arange(r // 2) + r // 2)
    pairs = (np.arange(0, r, 2), np.arange(1, r, 2))
    a, b = pairs if interleaved else halves
    j, k = pairs if output_layout == "interleaved" else halves
    at = lambda t, channels: t[..., channels if t.shape[-1] == r else np.arange(r // 2)]
    v = x[..., start:start + r]
    y = x.copy()
    y[..., start + j] = rounded(rounded(v[..., a] * at(cos, j), dtype) - rounded(v[..., b] * at(sin, j), dtype), dtype)
    y[..., start + k] = rounded(rounded(v[..., b] * at(cos, k), dtype) + rounded(v[..., a] * at(sin, k), dtype), dtype)
    return y


def norm_rotary(x, scale, cos, sin, y_type, epsilon=1e-5, scale_after_cast=0, **attributes):
    """NormRotary: RMSNorm of each row, then RotaryEmbedding of the result."""
    return rotary(
        rms_norm(x, scale, y_type, epsilon=epsilon, scale_after_cast=scale_after_cast), cos, sin, y_type, **attributes
    )


def between(p, activation, packing, alpha, limit, up_offset):
    """The activation between MoE's two products, in float64."""
    acts = {"silu": lambda g: g / (1 + np.exp(-alpha * g)), "relu": lambda g: np.maximum(g, 0),
            "relu2": lambda g: np.maximum(g, 0) ** 2, "gelu": gelu, "gelu_tanh": gelu_tanh}
    g, u = p, 1.0
    if packing != "none":
        g, u = (p[..., 0::2], p[..., 1::2]) if packing == "interleaved" else np.split(p, 2, -1)
    if limit > 0:
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    return acts[activation](g) * (u + up_offset)


def moe(x, weights, ids, gate_up, down, gate_up_bias, down_bias, dtype, activation="silu", packing="halves",
        gate_up_layout="out_in", down_layout="out_in", alpha=1.0, limit=0.0, up_offset=0.0, narrow=lambda v: v):
    """MoE, in float64. narrow rounds what is multiplied with weights."""
    wide = lambda t, layout: (
        np.asarray(t, np.float64) if layout == "out_in" else np.swapaxes(t, 1, 2).astype(np.float64)
    )
    first, second = wide(gate_up, gate_up_layout), wide(down, down_layout)
    tokens, k = x.reshape(-1, x.shape[-1]).astype(np.float64), ids.shape[-1]
    y = np.zeros(tokens.shape)
    for t, (chosen, scale) in enumerate(
        zip(np.reshape(ids, (len(y), k)).astype(int), np.reshape(weights, (len(y), k)))
    ):
        for e, w in zip(chosen, scale):
            if e == -1:
                continue
            p = first[e] @ narrow(tokens[t]) + (0 if gate_up_bias is None else gate_up_bias[e])
            a = between(p, activation, packing, alpha, limit, up_offset)
            y[t] += np.float64(w) * (second[e] @ narrow(a) + (0 if down_bias is None else down_bias[e]))
    return rounded(y.reshape(x.shape), dtype)


def router(logits, bias, top_k, score, order, groups, group_top_k, group_score, excluded_score, renormalize,
           epsilon, scale):
    """TopKRouter, in float64: weights and ids."""
    def scored(z):
        if score == "sigmoid":
            return 1 / (1 + np.exp(-z))
        if score == "sqrtsoftplus":
            return np.sqrt(np.logaddexp(z, 0))
        e = np.exp(z - z.max(-1, keepdims=True, initial=-np.inf))
        return e / e.sum(-1, keepdims=True)

    def best(v, k):
        return np.argsort(-v, -1, kind="stable")[..., :k]

    v = np.asarray(logits, np.float64)
    if order == "score_first":
        v = scored(v)
    choice = v if bias is None else v + bias
    if groups > 1:
        grouped = choice.reshape(v.shape[:-1] + (groups, v.shape[-1] // groups))
        of_group = grouped.max(-1) if group_score == "max" else np.sort(grouped, -1)[..., -2:].sum(-1)
        kept = np.zeros(of_group.shape, bool)
        np.put_along_axis(kept, best(of_group, group_top_k), True, -1)
        choice = np.where(kept[..., None], grouped, excluded_score).reshape(v.shape)
    ids = best(choice, top_k)
    w = np.take_along_axis(v, ids, -1)
    if order == "top_k_first":
        w = scored(w)
    if renormalize:
        w = w / (w.sum(-1, keepdims=True) + epsilon)
    return w * scale, ids


class Formula:
    """The results of an op: compute(types of its outputs, *inputs, **attributes) is a list. An omitted input is None. A
    kernel may be off by as many units in the last place of the greatest magnitude, and by slack(*inputs, **attributes)
    if the op rounds its own intermediate results.
    """

    def __init__(self, compute, units=4, slack=None):
        self.compute, self.units, self.slack = compute, units, slack

    def bounds(self, wants, types, *inputs, **attributes):
        """How far a kernel may be from each of wants: one number, or one for each element."""
        slack = 0 if self.slack is None else self.slack(*inputs, **attributes)
        return [0 if t == I64 else slack + self.units * EPSILON[t] * np.abs(want).max(initial=0)
                for want, t in zip(wants, types)]


def add_rms_norm(types, x, residual, scale, **attributes):
    """AddRMSNorm."""
    total = rounded(x + residual, types[1])
    return [rms_norm(total, scale, types[0], **attributes), total]


class NormQuantize(Formula):
    """NormQuantize. A kernel may round to the other neighbor only if errors of float32 can move v / Y_scale across the
    middle, or move the norm across the middle between two numbers of the type that it is rounded to."""

    def __init__(self):
        super().__init__(self.outputs)

    @staticmethod
    def parts(types, x, scale, zero, residual, epsilon, scale_after_cast, least_scale, nudge=1):
        """Returns v, Y_scale and the sum. nudge is a factor of the norm near 1."""
        total = x if residual is None else rounded(x + residual, types[2])
        t = total.astype(np.float64)
        n = t / np.sqrt((t * t).mean(-1, keepdims=True) + epsilon) * nudge
        cast = lambda v: rounded(v, types[2] if scale_after_cast else F32).astype(np.float64)
        v = cast(cast(n) * scale)
        most = 127 if types[0] == I8 else 448
        return v, np.maximum(np.abs(v).max(-1, keepdims=True, initial=0) / most, least_scale), total

    @staticmethod
    def quantized(steps, dtype):
        if dtype == I8:
            return np.clip(np.round(steps), -128, 127)
        return rounded(np.clip(steps, -448, 448), dtype)

    def outputs(self, types, *inputs, **attributes):
        v, scale, total = self.parts(types, *inputs, **attributes)
        return [self.quantized(v / scale, types[0]), scale, total]

    def bounds(self, wants, types, *inputs, **attributes):
        off = 8 * max(1, inputs[0].shape[-1] / 4096) * EPSILON[F32]
        low, least, _ = self.parts(types, *inputs, **attributes, nudge=1 - off)
        high, most, _ = self.parts(types, *inputs, **attributes, nudge=1 + off)
        around = [low / most * (1 - off), high / least * (1 + off)]
        return [np.maximum(*[np.abs(self.quantized(v, types[0]) - wants[0]) for v in around]),
                np.maximum(most - wants[1], wants[1] - least) + wants[1] * off, 0]


def gated_rms_norm(x, gate, scale, y_type, gate_first, groups, epsilon, scale_after_cast):
    """GatedRMSNorm, in float64 except its roundings."""
    x, a = x.astype(np.float64), gate / (1 + np.exp(-gate.astype(np.float64)))
    runs = (x * a if gate_first else x).reshape(x.shape[:-1] + (groups, -1))
    n = (runs / np.sqrt((runs * runs).mean(-1, keepdims=True) + epsilon)).reshape(x.shape)
    cast = (lambda v: rounded(v, y_type).astype(np.float64)) if scale_after_cast else lambda v: v
    y = cast(n) * scale.reshape(-1)
    return rounded(y if gate_first else cast(y) * a, y_type)


def attention(q, k, v, key_valid, past_key, past_value, past_length, bias, sink, dtype, scale, causal, window, softcap,
              empty, head_order, q_layout, k_layout, v_layout, y_layout):
    """Attention, in float64, row by row."""
    by_heads = lambda t, layout: np.swapaxes(t, 1, 2) if layout == "bsnh" else t
    q, k, v = by_heads(q, q_layout), by_heads(k, k_layout), by_heads(v, v_layout)
    (batch, heads, queries, _), new = q.shape, k.shape[2]
    length = np.full(batch, new)
    if past_length is not None:
        length = np.broadcast_to(past_length, batch).astype(int) + new
        keys, values = np.array(past_key), np.array(past_value)
        for b, end in enumerate(length):
            keys[b, :, end - new:end], values[b, :, end - new:end] = k[b], v[b]
    elif past_key is not None:
        keys, values = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
        length = length + past_key.shape[2]
    else:
        keys, values = k, v
    if bias is not None:
        bias = np.broadcast_to(bias, (batch, heads, queries, length.max(initial=0)))
    y = np.zeros((batch, heads, queries, v.shape[3]))
    for b, h, i in np.ndindex(batch, heads, queries):
        g = h // (heads // k.shape[1]) if head_order == "blocked" else h % k.shape[1]
        n, j = length[b], np.arange(length[b])
        s = scale * (keys[b, g, :n].astype(np.float64) @ q[b, h, i].astype(np.float64))
        if softcap > 0:
            s = softcap * np.tanh(s / softcap)
        if bias is not None:
            s = s + bias[b, h, i, :n]
        at = i + n - queries
        seen = (j <= at if causal else j >= 0) & (j > at - window if window else True)
        if key_valid is not None:
            seen &= key_valid[b, :n] != 0
        s = np.where(seen, s, -np.inf)
        m = max(s.max(initial=-np.inf), -np.inf if sink is None else sink[h])
        if m == -np.inf:
            p = np.full(n, 0 if empty == "zero" else 1 / max(n, 1))
        else:
            p = np.exp(s - m)
            p /= p.sum() + (0 if sink is None else np.exp(sink[h] - m))
        y[b, h, i] = p @ values[b, g, :n].astype(np.float64)
    return [rounded(by_heads(y, y_layout), dtype), rounded(keys, dtype), rounded(values, dtype)]


def latent_attention(q, c, k_pe, w, key_valid, past, past_length, dtype, scale, causal, empty, q_layout, y_layout,
                     w_layout):
    """LatentAttention, in float64: its naive form."""
    heads, rotated = q.shape[2 if q_layout == "bsnh" else 1], k_pe.shape[3]
    nope, w = q.shape[3] - rotated, (w.T if w_layout == "out_in" else w).astype(np.float64)

    def expand(latents):
        latents = latents.astype(np.float64)
        batch, _, tokens, _ = latents.shape
        both = (latents[:, 0, :, :c.shape[2]] @ w).reshape(batch, tokens, heads, w.shape[1] // heads).swapaxes(1, 2)
        pe = np.broadcast_to(latents[..., c.shape[2]:], (batch, heads, tokens, rotated))
        return np.concatenate([both[..., :nope], pe], 3), both[..., nope:]

    latents = np.concatenate([c[:, None], k_pe], 3)
    (k, v), (past_key, past_value) = expand(latents), (None, None) if past is None else expand(past)
    y, _, _ = attention(q, k, v, key_valid, past_key, past_value, past_length, None, None, dtype, scale, causal, 0, 0,
                        empty, "blocked", q_layout, "bnsh", "bnsh", y_layout)
    if past_length is not None:
        present = np.array(past)
        for b, n in enumerate(np.broadcast_to(past_length, len(c)).astype(int)):
            present[b, :, n:n + c.shape[1]] = latents[b]
        return [y, rounded(present, dtype)]
    return [y, rounded(latents if past is None else np.concatenate([past, latents], 2), dtype)]


def paged_attention(q, k, v, key_cache, value_cache, cumulative_sequence_length, past_seqlens, block_table,
                    slot_mapping, sink, dtype, causal, **attributes):
    """PagedAttention, in float64: Attention of each sequence alone, with its keys taken out of the pool."""
    keys, values, cum = np.array(key_cache), np.array(value_cache), cumulative_sequence_length.astype(int)
    block, table, past = keys.shape[1], block_table.astype(int), past_seqlens.astype(int)
    place = lambda b, j: (table[b, j // block], j % block)
    for t in range(len(q)):
        b = np.searchsorted(cum[1:], t, "right")
        at = place(b, past[b] + t - cum[b])
        if slot_mapping is not None:
            at = divmod(int(slot_mapping[t]), block)
        if at[0] >= 0:
            keys[at], values[at] = k[t], v[t]
    y = np.zeros((*q.shape[:2], v.shape[2]))
    for b in range(len(past)):
        new, n = slice(cum[b], cum[b + 1]), past[b] + cum[b + 1] - cum[b]
        rows = [np.array([pool[place(b, j)] for j in range(n)]).reshape(1, n, *pool.shape[2:])
                for pool in (keys, values)]
        y[new] = attention(q[None, new], *rows, None, None, None, None, None, sink, F32, causal=causal, empty="zero",
                           q_layout="bsnh", k_layout="bsnh", v_layout="bsnh", y_layout="bsnh", **attributes)[0][0]
    return [rounded(y, dtype), rounded(keys, dtype), rounded(values, dtype)]


def sampling_input(rng, name, shape):
    """The input controls or random of Sample; None for another name. Each option is off in some rows."""
    if name == "random":
        return rng.integers(0, 2**53, shape)
    if name != "controls":
        return None
    options = rng.uniform([0.3, 1, 0.2, 0.01, 0.5, -2, -2], [2, 12, 0.99, 0.3, 2, 2, 2], shape)
    options[:, 1] = options[:, 1].astype(int)
    return (options * rng.integers(0, 2, shape)).astype(np.float32)


PAGED = ("PagedAttention", "QPagedAttention")


def paged_inputs(rng, shapes):
    """The integer inputs of PAGED ops: sequences of unequal lengths in blocks in any order, of which some have no
    token. Blocks after the last token of a sequence are -1.
    """
    (tokens, *_), (pool, block, *_), (batch, most) = shapes[0], shapes[3], shapes[7]
    cum = np.concatenate([[0], np.sort(rng.integers(0, tokens + 1, batch - 1)), [tokens]])
    room = most * block - np.diff(cum)
    past = rng.integers(0, room + 1)
    table = rng.permutation(pool)[:batch * most].reshape(batch, most)
    used = -(-(past + np.diff(cum)) // block)
    owner = np.searchsorted(cum[1:], np.arange(tokens), "right")
    at = past[owner] + np.arange(tokens) - cum[owner]
    slots = np.where(np.arange(tokens) % 3 == 1, -1, table[owner, at // block] * block + at % block)
    return [cum, past, np.where(np.arange(most) < used[:, None], table, -1), slots]


def random_codes(rng, name, shape, dtype):
    """Values of an input of one byte: codes and factors, or exponents near 127 for scales of eight bits. No code is one
    of the two that are NaN as float8e4m3fn."""
    values = rng.integers(*((-9, 10) if dtype == I8 else (118, 131) if name.endswith("scale") else (0, 256)), shape)
    return np.where((values & 127 == 127) & name.endswith("codes"), values - 1, values)


def spread(name):
    """The standard deviation of an input of random floats. Factors of codes are small if two products follow each
    other, so that the results fit into float16; so are the gates of states, which otherwise grow with the tokens.
    """
    if name in ("decay", "beta"):
        return 0.1
    if name in ("key_scale", "value_scale"):  # of codes of up to 448
        return 2.0**-7
    return 2.0**-9 if name.startswith(("gate_up_", "down_")) and name.endswith(("scale", "minus")) else 1.0


def apart(got, want):
    """The difference of each element; 0 between infinities of one sign."""
    with np.errstate(invalid="ignore"):
        return np.where(got == want, 0, np.abs(got.astype(np.float64) - want))


class Quantized:
    """The weights of Linear and Embedding as arrays [n, k] of float64: codes, d and m."""

    def __init__(self, codes, scale, minus, super_scale, super_minus, code, zero, block, n, k):
        self.zero, self.center = zero, {"int4": 8, "int8": 128}.get(code, 0)
        c = codes.astype(np.uint8).reshape(*codes.shape[:2], -1, 16, 4)  # panel, block, group, row, place
        if code in ("int4", "e2m1"):
            c = np.concatenate([c & 15, c >> 4], 2)
        c = c.transpose(0, 3, 1, 2, 4).reshape(-1, k)[:n]
        values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
        values = {"e2m1": np.array(values + [-v for v in values]),
                  "e4m3": np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)}.get(code)
        self.codes = c.astype(np.float64) if values is None else values[c]

        def columns(v):
            v = np.broadcast_to(v, (*v.shape[:2], 16))  # the rows of a panel may share one
            return np.repeat(v.transpose(0, 2, 1).reshape(-1, v.shape[1]), k // v.shape[1], 1)[:n].astype(np.float64)

        self.d = np.exp2(columns(scale) - 127) if code == "e2m1" else columns(scale)
        self.m = np.zeros(1) if minus is None else columns(minus)
        if super_scale is not None:
            self.d = self.d * columns(super_scale)
        if super_minus is not None:
            self.m = self.m * columns(super_minus)

    def values(self):
        """W, each operation rounded to float32."""
        return ((self.d * (self.codes - self.zero)).astype(np.float32) + self.m.astype(np.float32)).astype(np.float32)

    def parts(self):
        """The part of W that multiplies the rounded activations, and the part that multiplies them as they came."""
        return self.d * (self.codes - self.center), self.m + self.d * (self.center - self.zero)

    def sizes(self, activations):
        """Magnitudes of the parts; without rounded activations all is one part."""
        if activations == "float":
            w = np.abs(self.values()).astype(np.float64)
            return w, np.zeros_like(w)
        return [np.abs(part) + np.zeros(self.codes.shape) for part in self.parts()]


def linear(x, codes, scale, minus, super_scale, super_minus, bias, dtype, activations, **attributes):
    """Linear: the rounding of the activations in float32, sums in float64."""
    w, rows = Quantized(codes, scale, minus, super_scale, super_minus, **attributes), x.astype(np.float32)
    if activations == "float":
        y = rows.astype(np.float64) @ w.values().astype(np.float64).T
    else:
        limit = np.float32({"int8": 127, "int16": 32767, "fp8": 448}[activations])
        width = 128 if activations == "fp8" else 32
        blocks = rows.reshape(*rows.shape[:-1], rows.shape[-1] // width, width)
        greatest = np.abs(blocks).max(-1, keepdims=True, initial=0)
        with np.errstate(divide="ignore"):
            factor = np.where(greatest < np.float32(2.0**-100), np.float32(0), limit / greatest)
        scaled = blocks * factor
        codes = scaled.astype(ml_dtypes.float8_e4m3fn) if activations == "fp8" else np.round(scaled)
        rounded_x = (codes.astype(np.float64) * (greatest / limit)).reshape(rows.shape)
        moved, still = w.parts()
        y = rounded_x @ moved.T + rows.astype(np.float64) @ still.T
    return rounded(y if bias is None else y + bias, dtype)


def half_linear(x, w, bias, dtype, layout):
    """HalfLinear, from float64 sums."""
    y = x.astype(np.float64) @ (w.T if layout == "out_in" else w).astype(np.float64)
    return rounded(y if bias is None else y + bias, dtype)


def qmoe_parts(x, weights, ids, gate_up_codes, gate_up_scale, down_codes, down_scale, gate_up_minus, down_minus,
               gate_up_super_scale, down_super_scale, gate_up_super_minus, down_super_minus, gate_up_bias, down_bias,
               hidden, inner, activations, gate_up_code, gate_up_zero, gate_up_block, down_code, down_zero, down_block,
               **gate):
    """QMoE, and how far float32 can move it: the errors of the first product and of the gate, in the second product;
    those of the greatest activation of a block, by which the others are scaled; and activations so near the middle of
    two integers that they round to the other one.
    """
    ids = np.reshape(ids, (-1, ids.shape[-1])).astype(int)
    tokens, weights = x.reshape(-1, hidden).astype(np.float32), np.reshape(weights, ids.shape).astype(np.float64)
    packed = inner if gate["packing"] == "none" else 2 * inner
    up = dict(code=gate_up_code, zero=gate_up_zero, block=gate_up_block, n=packed, k=hidden)
    down = dict(code=down_code, zero=down_zero, block=down_block, n=hidden, k=inner)
    y, slack = np.zeros(tokens.shape), np.zeros(tokens.shape)
    for e in np.unique(ids[ids >= 0]):
        of = lambda *tensors: [None if t is None else t[e] for t in tensors]
        first = of(gate_up_codes, gate_up_scale, gate_up_minus, gate_up_super_scale, gate_up_super_minus)
        second = of(down_codes, down_scale, down_minus, down_super_scale, down_super_minus)
        mine = (ids == e).any(1)
        rows, share = tokens[mine], (weights * (ids == e)).sum(1)[mine, None]
        h = linear(rows, *first, *of(gate_up_bias), F32, activations=activations, **up).astype(np.float64)
        a = between(h, **gate)
        y[mine] += share * linear(a.astype(np.float32), *second, *of(down_bias), F32, activations=activations, **down)
        # The errors of sums in float32, and of results computed from them, are smaller than this.
        small = 8 * EPSILON[F32]
        off = np.abs(rows) @ sum(Quantized(*first, **up).sizes(activations)).T * small
        place = np.arange(packed)
        signs = np.where(place % 2 if gate["packing"] == "interleaved" else place >= inner, -1, 1)
        near = np.maximum(np.abs(between(h + off, **gate) - a), np.abs(between(h + off * signs, **gate) - a))
        # 1 + erf of a negative number has the error of 1.
        near += small * (np.abs(a) + between(np.abs(h), **{**gate, "activation": "relu"}))
        moved, still = Quantized(*second, **down).sizes(activations)
        slack[mine] += np.abs(share) * (near @ (moved + still).T)
        if activations != "float":
            blocks = lambda values: np.repeat(values.reshape(len(a), -1, 32).max(-1), 32, -1)
            limit, greatest = 127 if activations == "int8" else 32767, blocks(np.abs(a)) + 1e-300
            step, scaled = greatest / limit, np.abs(a) * (blocks(near) / greatest)
            ties = np.abs(a / step % 1 - 0.5) < (near + scaled) / step
            slack[mine] += np.abs(share) * ((ties * step + scaled) @ moved.T)
    return y.reshape(x.shape), slack.reshape(x.shape)


def embedding(ids, *weights, **attributes):
    """Rows of the weights."""
    return Quantized(*weights, **attributes).values()[ids.astype(np.int64)]


FORMULAS = {
    "RMSNorm": Formula(lambda types, x, scale, **a: [rms_norm(x, scale, types[0], **a)]),
    "AddRMSNorm": Formula(add_rms_norm),
    "GatedRMSNorm": Formula(lambda types, x, gate, scale, **a: [gated_rms_norm(x, gate, scale, types[0], **a)]),
    "NormQuantize": NormQuantize(),
    "GLU": Formula(lambda types, gate, up, **a: [glu(gate, up, types[0], **a)]),
    "RotaryEmbedding": Formula(lambda types, x, cos, sin, **a: [rotary(x, cos, sin, types[0], **a)], units=0),
    "NormRotary": Formula(lambda types, x, scale, cos, sin, **a: [norm_rotary(x, scale, cos, sin, types[0], **a)]),
    "TopKRouter": Formula(lambda types, logits, bias, **a: router(logits, bias, **a)),
    "MoE": Formula(lambda types, *inputs, **a: [moe(*inputs, types[0], **a)], units=8),
    "Attention": Formula(lambda types, *inputs, **a: attention(*inputs, types[0], **a), units=8),
    "Linear": Formula(lambda types, *inputs, **a: [linear(*inputs, types[0], **a)], units=8),
    "HalfLinear": Formula(lambda types, *inputs, **a: [half_linear(*inputs, types[0], **a)], units=8),
    "Embedding": Formula(lambda types, *inputs, **a: [embedding(*inputs, **a)], units=0),
    "QMoE": Formula(lambda types, *inputs, **a: [rounded(qmoe_parts(*inputs, **a)[0], types[0])], units=16,
                    slack=lambda *inputs, **a: qmoe_parts(*inputs, **a)[1]),
    "PagedAttention": Formula(lambda types, *inputs, **a: paged_attention(*inputs, types[0], **a), units=8),
    "LatentAttention": Formula(lambda types, *inputs, **a: latent_attention(*inputs, types[0], **a), units=8),
}
# What the files import from here is defined by now.
for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "*", "formula.py"))):
    FORMULAS.update(runpy.run_path(path)["FORMULAS"])
