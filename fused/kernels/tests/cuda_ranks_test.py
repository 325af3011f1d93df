"""Tests the collective ops of libmojo_ops_cuda on GPUs, through onnxruntime's CUDA provider, a process for each rank.

    python cuda_ranks_test.py LIBRARY [--ranks N]

N is 2 unless given; the ranks share the GPUs that there are. Every result must have the bits of its definition on every
rank, with a CUDA graph and without. At the end a rank is killed: the others must end within 12 seconds, and name it.
Needs onnxruntime with the CUDA provider, onnx and numpy.
"""
import argparse
import os
import socket
import subprocess
import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}
SHAPE = (6, 16, 64)  # of X; the axis of the parts is -2
OUTPUTS = ["sum", "gathered", "scattered", "exchanged", "normed", "stream"]


def model(rank, ranks, dtype):
    """A model of one rank: every op on X, and AllReduceAddRMSNorm with the residual R."""
    attributes = {"rank": rank, "ranks": ranks, "plan": "test"}

    def node(op, inputs, outputs, **more):
        return helper.make_node(op, inputs, outputs, outputs[0], domain="mojo", **attributes, **more)

    kind = TYPES[dtype]
    nodes = [
        node("AllReduce", ["X"], ["sum"]),
        node("AllGather", ["X"], ["gathered"], axis=-2),
        node("ReduceScatter", ["X"], ["scattered"], axis=-2),
        node("AllToAll", ["X"], ["exchanged"], axis=-2),
        node("AllReduceAddRMSNorm", ["X", "R", "W"], ["normed", "stream"], axis=-1, epsilon=1e-6, scale_after_cast=0),
    ]
    inputs = [helper.make_tensor_value_info(n, kind, s) for n, s in (("X", SHAPE), ("R", SHAPE), ("W", SHAPE[-1:]))]
    graph = helper.make_graph(nodes, "ranks", inputs, [helper.make_tensor_value_info(n, kind, None) for n in OUTPUTS])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mojo", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def numbers(rank, step, dtype):
    return np.random.default_rng(1000 * step + rank).standard_normal(SHAPE).astype(dtype)


def expected(rank, ranks, step, dtype, residual, scale):
    """The outputs by their definitions."""
    all_x = [numbers(r, step, dtype) for r in range(ranks)]
    total = np.zeros(SHAPE, np.float32)
    for x in all_x:
        total += x.astype(np.float32)
    total = total.astype(dtype)
    part = slice(rank * SHAPE[1] // ranks, (rank + 1) * SHAPE[1] // ranks)
    stream = (total.astype(np.float32) + residual.astype(np.float32)).astype(dtype)
    wide = stream.astype(np.float64)
    normed = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * scale
    exchanged = np.concatenate([x[:, part] for x in all_x], axis=1)
    return [total, np.concatenate(all_x, axis=1), total[:, part], exchanged, normed.astype(dtype), stream]


def check(got, want, dtype, what):
    for name, g, w in zip(OUTPUTS, got, want):
        off = 4 * np.finfo(dtype).eps if name == "normed" else 0
        np.testing.assert_allclose(g, w, rtol=off, atol=off, err_msg=f"{what}: {name}")


def run_rank(library, device, dies):
    """Runs one rank. With dies, the last rank ends before its second run."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for dtype in TYPES:
        rng = np.random.default_rng(7)
        residual, scale = rng.standard_normal(SHAPE).astype(dtype), rng.standard_normal(SHAPE[-1]).astype(dtype)
        for graph in ("0", "1"):
            options = ort.SessionOptions()
            options.register_custom_ops_library(library)
            provider = ("CUDAExecutionProvider", {"device_id": str(device), "enable_cuda_graph": graph})
            session = ort.InferenceSession(model(rank, ranks, dtype), options, providers=[provider])
            binding = session.io_binding()
            inputs = {"X": numbers(rank, 0, dtype), "R": residual, "W": scale}
            values = {n: ort.OrtValue.ortvalue_from_numpy(v, "cuda", device) for n, v in inputs.items()}
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            for name, value in zip(OUTPUTS, expected(rank, ranks, 0, dtype, residual, scale)):
                empty = np.full_like(value, np.nan)
                binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(empty, "cuda", device))
            for step in range(8):
                values["X"].update_inplace(numbers(rank, step, dtype))
                if dies and step == 5 and rank == ranks - 1:
                    os._exit(0)
                session.run_with_iobinding(binding)
                got = [v.numpy() for v in binding.get_outputs()]
                want = expected(rank, ranks, step, dtype, residual, scale)
                check(got, want, dtype, f"rank {rank}, {np.dtype(dtype).name}, graph {graph}, step {step}")


def start(library, ranks, dies):
    """Runs all ranks, and returns their exit codes, what they wrote, and the seconds that they took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = listed if visible is None else len(visible.split(","))
    children = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        command = [sys.executable, __file__, library, "--device", str(rank % devices)] + ["--dies"] * dies
        children.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    texts = [child.communicate(timeout=100)[0] for child in children[::-1]][::-1]
    return [child.returncode for child in children], texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", type=int)
    parser.add_argument("--dies", action="store_true")
    arguments = parser.parse_args()
    if arguments.device is not None:
        run_rank(arguments.library, arguments.device, arguments.dies)
        return
    ranks = arguments.ranks
    codes, texts = start(arguments.library, ranks, dies=False)
    if any(codes):
        sys.exit(f"exit codes {codes}\n" + "\n".join(texts))
    print(f"{ranks} ranks: all results have the expected bits")
    begin = time.monotonic()
    codes, texts = start(arguments.library, ranks, dies=True)
    seconds = time.monotonic() - begin
    for rank in range(ranks - 1):
        if codes[rank] == 0 or f"rank {ranks - 1}" not in texts[rank]:
            sys.exit(f"rank {rank} does not name rank {ranks - 1}, which was killed: {codes[rank]}\n{texts[rank]}")
    print(f"{ranks} ranks, one killed: the others name it and end, {seconds:.0f} s with the start")


if __name__ == "__main__":
    main()
