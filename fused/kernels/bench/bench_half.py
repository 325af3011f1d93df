"""Compares HalfLinear with onnxruntime's MatMul, for weights of 16 bits in both orders.

    python bench_half.py LIBRARY [--threads 2] [--rounds 15] [--sizes 576x576,2048x2048] [--rows 1,4,32,128]

float32 is MatMul with the same weights widened, float16 MatMul of float16 by float16; the others are HalfLinear by the
type of its weights, x in float32 but for f16x, where x is float16 too. out_in stores an output's weights side by side,
in_out an input's. All run in turn in one process, beginning with another one in each round, on more matrices than fit
into the caches; between them, the threads of the last one fall asleep. A time is the median of its rounds, for one
product; the ratio is that of float32's time to it, for f16x of float16's. The last line has the least ratio to float16.
"""

import argparse
import statistics
import time

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FILL = 120_000_000  # bytes of weights in float16 that a session has, or one matrix
TYPES = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16), "f16": (TensorProto.FLOAT16, np.float16)}
CONTENDERS = ["float32", "float16"] + [
    f"{t} {layout}" for t in ("bf16", "f16", "f16x") for layout in ("out_in", "in_out")
]
SPINNING = 0.06  # seconds after which onnxruntime's threads have gone to sleep


def session(contender, weights, library, threads):
    """A model that multiplies one x with each of the weights [K, N], float32."""
    kind, _, layout = contender.partition(" ")
    x_type = TensorProto.FLOAT16 if kind in ("float16", "f16x") else TensorProto.FLOAT
    nodes, initializers, outputs = [], [], []
    for i, w in enumerate(weights):
        if layout:
            element, array = TYPES[kind.removesuffix("x")]
            stored = np.ascontiguousarray((w.T if layout == "out_in" else w).astype(array))
            initializers.append(helper.make_tensor(f"w{i}", element, stored.shape, stored.tobytes(), raw=True))
            node = helper.make_node("HalfLinear", ["x", f"w{i}"], [f"y{i}"], domain="mojo", layout=layout)
        else:
            initializers.append(numpy_helper.from_array(w.astype(kind), f"w{i}"))
            node = helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"])
        nodes.append(node)
        outputs.append(helper.make_tensor_value_info(f"y{i}", x_type, ["M", w.shape[1]]))
    x = helper.make_tensor_value_info("x", x_type, ["M", weights[0].shape[0]])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mojo", 1)]
    graph = helper.make_graph(nodes, "products", [x], outputs, initializers)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(library)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libmojo_ops")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", default="576x576,576x1536,1536x576,2048x2048", help="K x N, comma separated")
    parser.add_argument("--rows", default="1,4,32,128", help="rows of x, comma separated")
    args = parser.parse_args()
    rng, least = np.random.default_rng(0), float("inf")
    print(f"{'K x N':>12} {'rows':>5} " + " ".join(f"{c:>18}" for c in CONTENDERS))
    for size in args.sizes.split(","):
        k, n = map(int, size.split("x"))
        count = max(1, FILL // (2 * k * n))
        weights = [(rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32) for _ in range(count)]
        sessions = [session(c, weights, args.library, args.threads) for c in CONTENDERS]
        for rows in map(int, args.rows.split(",")):
            x = rng.standard_normal((rows, k)).astype(np.float32)
            times = [[] for _ in CONTENDERS]
            for number in range(args.rounds + 1):
                order = [(number + i) % len(CONTENDERS) for i in range(len(CONTENDERS))]
                for i in order:
                    half = CONTENDERS[i].startswith(("float16", "f16x"))
                    feed = {"x": x.astype(np.float16) if half else x}
                    time.sleep(SPINNING)
                    start = time.perf_counter()
                    sessions[i].run(None, feed)
                    if number:
                        times[i].append((time.perf_counter() - start) / count)
            median = [statistics.median(t) for t in times]
            cells = []
            for i, name in enumerate(CONTENDERS):
                base = median[1] if name.startswith("f16x") else median[0]
                cells.append(f"{median[i] * 1e3:9.3f} ms {base / median[i]:5.2f}")
                if name.startswith("f16x"):
                    least = min(least, base / median[i])
            print(f"{size:>12} {rows:5} " + " ".join(f"{c:>18}" for c in cells), flush=True)
    print(f"HalfLinear takes float16 at {least:.2f} times the speed of MatMul or more")


if __name__ == "__main__":
    main()
