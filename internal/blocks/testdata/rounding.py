"""Writes rounding.txt: the bytes that gguf-py makes of blocks of floats, which TestEncode makes anew.

usage: python rounding.py > rounding.txt      (with tools/requirements/weights.txt)
"""

import hashlib

import numpy as np
from gguf import GGMLQuantizationType, quants


def uniform(n):
    """Numbers of 16 bits by a generator that is easily written again, from -1 to 1."""
    state, out = np.uint64(1), np.empty(n, np.float32)
    for i in range(n):
        state = (state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)) & np.uint64(2**64 - 1)
        out[i] = (float(int(state) >> 48) - 32768) / 32768
    return out


def blocks():
    x = uniform(4096 * 32).reshape(-1, 32)
    # block i is of size 2^(i mod 25 - 16), some of one sign, some with halves between codes, one of zeros
    x *= np.float32(2.0) ** (np.arange(len(x)) % 25 - 16).astype(np.float32)[:, None]
    x[5::7] = abs(x[5::7])
    x[6::11] = -abs(x[6::11])
    x[3::13] = np.round(x[3::13] * 64) / 64
    x[100] = 0
    x[101] = 0.25
    x[102, 1:] = 0
    x[103] = np.arange(32, dtype=np.float32) - 16
    x[104] = (np.arange(32, dtype=np.float32) - 16) / 2
    return x.astype(np.float32) + np.float32(0)  # no -0: which zero is the least depends on numpy's loops


np.seterr(over="ignore")
x = blocks()
print("input", hashlib.sha256(x.tobytes()).hexdigest())
for name in ("Q4_0", "Q4_1", "Q8_0", "MXFP4"):
    b = quants.quantize(x, GGMLQuantizationType[name])
    print(name.lower(), hashlib.sha256(b.tobytes()).hexdigest(), b[103].tobytes().hex(), b[1].tobytes().hex())
