#!/usr/bin/env python3
"""Writes the GGUF files of the tests with gguf-py, and what gguf-py dequantizes them to (see
tools/requirements/weights.txt).

    make.py            writes into its own folder

expected.txt lists each tensor: file, name, type, shape, and the SHA-256 of its elements in float32, little-endian, with
every NaN of a quantized type replaced by 0x7fc00000: which NaN arithmetic makes is the processor's choice.
"""

import hashlib
import pathlib
import warnings

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUFEndian, GGUFReader, GGUFWriter
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(8)
warnings.simplefilter("ignore")  # of overflows and NaN, which are wanted

# Zeros, the least and the largest subnormal, the least normal, the largest number, one, a third, infinities, quiet and
# signalling NaN.
SCALES = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x3555, 0xB555,
                   0x7C00, 0xFC00, 0x7E00, 0x7C01], "<u2")
PLACES = {
    T.Q4_0: [0],
    T.Q4_1: [0, 2],
    T.Q5_0: [0],
    T.Q5_1: [0, 2],
    T.Q8_0: [0],
    T.Q4_K: [0, 2],
    T.Q5_K: [0, 2],
    T.Q6_K: [208],
    T.MXFP4: [],
}


def blocks(qtype, n):
    """n random blocks whose scales are hard: every one of SCALES first, then ordinary numbers. One block holds all
    pairs of nibbles or as many as it has room for, one only the least, one only the largest elements."""
    size = GGML_QUANT_SIZES[qtype][1]
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    b[8], b[9], b[10] = np.arange(size) * 17, 0, 255
    for k, at in enumerate(PLACES[qtype]):
        s = (rng.standard_normal(n) * 0.02).astype("<f2").view("<u2")
        s[: len(SCALES)] = np.roll(SCALES, k * 5)
        b[:, at : at + 2] = s.view(np.uint8).reshape(n, 2)
    return b


def types():
    w = GGUFWriter(HERE / "types.gguf", "test")
    for qtype in PLACES:
        block, size = GGML_QUANT_SIZES[qtype]
        rows, across = (5, 4) if block == 256 else (7, 8)
        w.add_tensor(qtype.name, blocks(qtype, rows * across).reshape(rows, across * size), raw_dtype=qtype)
    halves = np.concatenate([np.arange(0, 0x10000, 37), SCALES]).astype("<u2")
    w.add_tensor("F16", halves.view("<f2"))
    w.add_tensor(
        "BF16",
        np.concatenate([halves, [0x7F80, 0xFF80, 0x7F81, 0xFFFF]]).astype("<u2").view(np.uint8),
        raw_dtype=T.BF16,
    )
    w.add_tensor("F32", np.array([[0, 0x80000000, 1], [0x7F7FFFFF, 0xFF800000, 0x7F800001]], "<u4").view("<f4"))
    w.add_tensor("F64", np.array([0, -0.0, 1 / 3, 1e300, -1e300, 1e-310, 1e-46, 5e-46, 16777217, np.inf, -np.inf]))
    for t in (np.int8, np.int16, np.int32, np.int64):
        i = np.iinfo(t)
        w.add_tensor(
            f"I{i.bits}",
            np.array(
                [i.min, i.min + 1, -1, 0, 1, i.max - 1, i.max] + ([2**24 + 1, 2**24 + 3] if i.bits > 16 else []), t
            ),
        )
    w.add_tensor("dims", np.arange(24, dtype="<f4").reshape(2, 3, 4))
    w.add_tensor("scalar", np.array([2.5], "<f4"), raw_shape=())
    w.add_tensor("empty", np.zeros((0, 4), "<f4"))
    w.add_tensor("Q2_K", np.zeros((1, 84), np.uint8), raw_dtype=T.Q2_K)
    close(w)


def metadata():
    w = GGUFWriter(HERE / "metadata.gguf", "test")
    w.add_uint8("u8", 255)
    w.add_int8("i8", -128)
    w.add_uint16("u16", 65535)
    w.add_int16("i16", -32768)
    w.add_uint32("u32", 4294967295)
    w.add_int32("i32", -2147483648)
    w.add_float32("f32", 1.5)
    w.add_uint64("u64", 18446744073709551615)
    w.add_int64("i64", -9223372036854775808)
    w.add_float64("f64", 0.1)
    w.add_bool("yes", True)
    w.add_bool("no", False)
    w.add_string("text", "Grüße, 世界")
    w.add_array("strings", ["a", "", "ü"])
    w.add_array("integers", [1, -2, 3])
    w.add_array("floats", [0.5, -0.25])
    w.add_array("booleans", [True, False])
    w.add_array("bytes", b"\x00\xff")
    w.add_array("nested", [[1, 2], [3]])
    w.add_custom_alignment(64)
    w.add_tensor("a", np.arange(3, dtype="<f4"))
    w.add_tensor("b", np.arange(3, 6, dtype="<f4"))
    close(w)


def split():
    w = GGUFWriter(HERE / "split.gguf", "test", split_max_tensors=2)
    for i in range(5):
        w.add_tensor(f"t{i}", np.full(4, i, "<f4"))
    close(w)


def big_endian():
    w = GGUFWriter(HERE / "big-endian.gguf", "test", endianess=GGUFEndian.BIG)
    w.add_tensor("a", np.arange(3, dtype="<f4"))
    close(w)


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def expected():
    lines = []
    for path in sorted(HERE.glob("*.gguf")):
        for t in [] if path.name == "big-endian.gguf" else GGUFReader(path).tensors:
            if t.tensor_type.name.startswith("I") or t.tensor_type == T.F64:
                values = t.data.astype(np.float32)
            elif t.tensor_type == T.Q2_K:
                continue
            else:
                values = dequantize(t.data, t.tensor_type)
            values = np.ascontiguousarray(values, "<f4").reshape(-1).view("<u4").copy()
            if t.tensor_type in PLACES:
                values[(values & 0x7FFFFFFF) > 0x7F800000] = 0x7FC00000
            shape = "x".join(str(d) for d in reversed(t.shape.tolist())) or "scalar"
            lines.append(
                f"{path.name} {t.name} {t.tensor_type.name} {shape} {hashlib.sha256(values.tobytes()).hexdigest()}\n"
            )
    (HERE / "expected.txt").write_text("".join(lines))


types()
metadata()
split()
big_endian()
expected()
