#!/usr/bin/env python3
"""Writes the safetensors files of the tests with safetensors and torch, and what torch converts them to (see
tools/requirements/weights.txt).

    make.py            writes into its own folder

expected.txt lists each tensor: file, name, type, shape, and the SHA-256 of its elements in float32, little-endian, with
every NaN replaced by 0x7fc00000: libraries choose different ones when they convert.
"""

import hashlib
import json
import pathlib

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
BYTES = torch.arange(256, dtype=torch.uint8)


def types():
    tensors = {
        "F64": torch.tensor(
            [0, -0.0, 1 / 3, 1e300, -1e300, 1e-310, 1e-46, 5e-46, 16777217, float("inf"), float("-inf"), float("nan")],
            dtype=torch.float64,
        ),
        "F32": torch.tensor([[0, -0.0, 1e-45], [3.4e38, float("-inf"), float("nan")]]),
        "F16": torch.arange(0, 0x10000, 97).to(torch.uint16).view(torch.float16),
        "BF16": torch.arange(0, 0x10000, 97).to(torch.uint16).view(torch.bfloat16),
        "BOOL": torch.tensor([True, False, True]),
        "C64": torch.tensor([1 + 2j]),
        "dims": torch.arange(24, dtype=torch.float32).reshape(2, 3, 4),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
    }
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        t, i = getattr(torch, name), np.iinfo(name)
        values = [i.min, i.min + 1, 0, 1, i.max - 1, i.max] + ([2**24 + 1, 2**24 + 3] if i.bits > 16 else [])
        tensors[("U" if name[0] == "u" else "I") + str(i.bits)] = torch.from_numpy(np.array(values, name))
    for name, t in {"F8_E4M3": torch.float8_e4m3fn, "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2": torch.float8_e5m2,
                    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "F8_E8M0": torch.float8_e8m0fnu}.items():
        tensors[name] = BYTES.clone().view(t)
    tensors["F4"] = BYTES[:8].clone().view(torch.float4_e2m1fn_x2)
    save_file(tensors, HERE / "types.safetensors", metadata={"format": "pt", "Größe": "世界"})
    return tensors


def sharded():
    shards = {
        "model-00001-of-00002.safetensors": {
            "a": torch.full((2, 2), 1.0),
            "b": torch.full((3,), 2.0, dtype=torch.bfloat16),
        },
        "model-00002-of-00002.safetensors": {"c": torch.full((4,), 3.0)},
    }
    for name, tensors in shards.items():
        save_file(tensors, HERE / name, metadata={"format": "pt"})
    places = {t: name for name, tensors in shards.items() for t in tensors}
    index = {"metadata": {"total_size": 38}, "weight_map": places}
    (HERE / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def expected(tensors):
    spelled = {name: info["dtype"] for name, info in safetensors.deserialize((HERE / "types.safetensors").read_bytes())}
    lines = []
    for name, t in tensors.items():
        if name in ("C64", "F4"):
            continue
        if t.dtype.is_floating_point:
            values = t.to(torch.float32).numpy()
        else:
            values = t.numpy().astype(np.float32)
        values = np.ascontiguousarray(values, "<f4").reshape(-1).view("<u4").copy()
        values[(values & 0x7FFFFFFF) > 0x7F800000] = 0x7FC00000
        shape = "x".join(str(d) for d in t.shape) or "scalar"
        lines.append(
            f"types.safetensors {name} {spelled[name]} {shape} {hashlib.sha256(values.tobytes()).hexdigest()}\n"
        )
    (HERE / "expected.txt").write_text("".join(lines))


expected(types())
sharded()
