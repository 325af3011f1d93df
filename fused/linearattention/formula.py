"""LinearAttention and CausalConv in numpy."""
import numpy as np

from formulas import EPSILON, F32, Formula, rounded


def linear_attention(q, k, v, past, decay, beta, dtype, q_heads, k_heads, v_heads, scale, l2_norm, epsilon):
    """LinearAttention, in float64, token by token."""
    batch, tokens, _ = q.shape
    heads = lambda t, n: t.astype(np.float64).reshape(batch, tokens, n, t.shape[-1] // n)
    q, k, v, y_heads = heads(q, q_heads), heads(k, k_heads), heads(v, v_heads), max(q_heads, v_heads)
    if l2_norm:
        q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + epsilon) for t in (q, k))
    q, k = np.repeat(q, y_heads // q_heads, 2), np.repeat(k, v_heads // k_heads, 2)
    state = np.zeros((batch, v_heads, q.shape[-1], v.shape[-1])) if past is None else past.astype(np.float64)
    y = np.zeros((batch, tokens, y_heads, v.shape[-1]))
    for t in range(tokens):
        if decay is not None:
            state = state * np.exp(heads(decay, v_heads)[:, t, :, :, None])
        update = v[:, t]
        if beta is not None:
            update = beta[:, t, :, None] * (update - np.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * update[:, :, None]
        y[:, t] = scale * np.einsum("bhkv,bhk->bhv", np.repeat(state, y_heads // v_heads, 1), q[:, t])
    return [rounded(y.reshape(batch, tokens, y_heads * v.shape[-1]), dtype), rounded(state, F32)]


def state_slack(q, k, v, past, *gates, **attributes):
    """How far roundings of the state move the results: each token rounds it twice, by half a unit at most."""
    present = linear_attention(q, k, v, past, *gates, F32, **attributes)[1]
    greatest = max(np.abs(t).max(initial=0) for t in (present, past) if t is not None)
    return q.shape[1] * EPSILON[F32] * greatest


def causal_conv(x, weight, bias, past, dtype, activation):
    """CausalConv, in float64."""
    width = weight.shape[2]
    past = np.zeros((*x.shape[:2], width - 1)) if past is None else past
    every, kept = np.concatenate([past, x], 2).astype(np.float64), past.shape[2]
    z = np.zeros(x.shape) if bias is None else np.zeros(x.shape) + np.reshape(bias, (-1, 1))
    for j in range(width):
        first = kept - (width - 1) + j
        z = z + weight[:, :, j].astype(np.float64) * every[:, :, first:first + x.shape[2]]
    y = z / (1 + np.exp(-z)) if activation == "silu" else z
    return [rounded(y, dtype), rounded(every[:, :, x.shape[2]:], dtype)]


FORMULAS = {
    "LinearAttention": Formula(lambda types, *inputs, **a: linear_attention(*inputs, types[0], **a), units=8,
                               slack=state_slack),
    "CausalConv": Formula(lambda types, *inputs, **a: causal_conv(*inputs, types[0], **a)),
}
