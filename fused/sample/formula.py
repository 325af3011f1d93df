"""Sample in numpy."""
from math import factorial

import numpy as np

from formulas import Formula

ONE, LEAST, MOST = 2.0**40, -29.0, np.finfo(np.float32).max


def weights(d):
    """round(2^40 * exp(d)) for d <= 0, with the roundings of every device."""
    d = np.where(d >= LEAST, d, LEAST)
    n = np.rint(d * 1.4426950408889634)
    x = (d - n * float.fromhex("0x1.62e42feep-1")) - n * 1.90821492927058770002e-10
    y, terms = 1 / factorial(11), [1 / factorial(k) for k in range(10, -1, -1)]
    for term in terms:
        y = y * x + term
    return np.rint(y * np.exp2(n + 40)).astype(np.int64)


def sample_row(row, controls, random, tokens, prompt):
    """The token of a row of logits, by sorting all of it."""
    t, k, p, m, r, f, q = np.asarray(controls, np.float32)
    if not (min(t, k, p, m, r) >= 0 and max(p, m) <= 1 and max(abs(f), abs(q)) <= 2 and max(t, k, r) <= MOST):
        return -1
    row = np.array(row, np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for i in set(tokens):
            if 0 <= i < len(row):
                n = np.float32(np.count_nonzero(tokens[prompt:] == i))
                row[i] = row[i] if r == 0 else row[i] * r if row[i] < 0 else row[i] / r
                row[i] = row[i] - f * n
                row[i] = row[i] - q if n > 0 else row[i]
        if np.isnan(row).any() or row.max() > MOST or row.max() == -np.inf:
            return -1
        order = np.argsort(-row, kind="stable")
        if t == 0:
            return order[0]
        scaled = (row / t).astype(np.float64)
    if not abs(scaled[order[0]]) <= MOST:
        return -1
    w = weights(scaled - scaled[order[0]])[order]
    if 0 < k < len(row):
        w[row[order] < row[order[int(k) - 1]]] = 0
    before = np.cumsum(w) - w
    if 0 < p < 1:
        w = np.where(before < np.ceil(np.float64(p) * np.float64(w.sum())), w, 0)
    w[w < np.ceil(np.float64(m) * ONE)] = 0
    by_id = np.zeros(len(row), np.int64)
    by_id[order] = w
    total = by_id.sum()
    target = min(int(min(max(random, 0), 2**53 - 1) * 2.0**-53 * np.float64(total)), total - 1)
    return np.searchsorted(np.cumsum(by_id), target, "right")


def sample(logits, controls, random, tokens, prompt):
    """Sample, row by row."""
    rows = len(logits)
    tokens = np.zeros((rows, 0)) if tokens is None else tokens
    prompt = np.zeros(rows) if prompt is None else prompt
    return [np.array([sample_row(row, c, u, t.astype(int), int(max(n, 0)))
                      for row, c, u, t, n in zip(logits, controls, random, tokens, prompt)], np.int64)]


FORMULAS = {"Sample": Formula(lambda types, *inputs: sample(*inputs))}
