"""Compares layers of encoders as apply patches them with the same layers as onnxscript's ort_fusions writes them.

    python bench_encoders.py MOJO_PATCH LIBRARY [--threads 2] [--rounds 25] [--layers 3] [--tokens 16,128,197]

The layers are those of BERT-base (the norm after the sum) and of ViT-base (before it), 768 wide, with random weights,
as torch.onnx writes them. onnxruntime fuses all of them as far as it can. The models run in turn in one process, each
after its threads and those of the others have gone to sleep. A time is the median of its rounds with their quartiles,
in milliseconds; the ratio is the median of the rounds' ratios of onnxscript's time to it. Needs onnxscript.
"""

import argparse
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxscript.rewriter.ort_fusions import optimize_for_ort

WIDTH, HEADS = 768, 12
SPINNING = 0.06  # seconds after which onnxruntime's threads have gone to sleep


class Encoder:
    """Writes the layers of an encoder."""

    def __init__(self, norm_first):
        self.norm_first, self.nodes, self.initializers = norm_first, [], []
        self.random = np.random.default_rng(0)

    def constant(self, array):
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape, scale=0.1, mean=0.0):
        return self.constant((mean + self.random.standard_normal(shape) * scale).astype(np.float32))

    def op(self, kind, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x, k, n):
        return self.op("Add", self.op("MatMul", x, self.weights(k, n, scale=k**-0.5)), self.weights(n))

    def norm(self, x):
        scale, bias = self.weights(WIDTH, mean=1.0), self.weights(WIDTH)
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5 if self.norm_first else 1e-12)

    def attention(self, x):
        split = self.constant(np.array([0, 0, HEADS, WIDTH // HEADS]))
        q, k, v = (self.op("Reshape", self.linear(x, WIDTH, WIDTH), split) for _ in range(3))
        q, v = (self.op("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 2, 3, 1]))
        scores = self.op("Mul", scores, self.constant(np.array((WIDTH / HEADS) ** -0.5, np.float32)))
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", y, self.constant(np.array([0, 0, WIDTH]))), WIDTH, WIDTH)

    def mlp(self, x):
        return self.linear(self.op("Gelu", self.linear(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)

    def model(self, layers):
        x = "x"
        for part in [self.attention, self.mlp] * layers:
            x = self.op("Add", part(self.norm(x)), x) if self.norm_first else self.norm(self.op("Add", part(x), x))
        y = self.norm(x) if self.norm_first else x
        values = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["batch", "tokens", WIDTH]) for v in ("x", y)]
        graph = helper.make_graph(self.nodes, "encoder", values[:1], values[1:], self.initializers)
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def session(path, library, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def timed(run, x):
    time.sleep(SPINNING)
    run.run(None, {"x": x})
    start = time.perf_counter()
    run.run(None, {"x": x})
    return (time.perf_counter() - start) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", help="path of mojo-patch")
    parser.add_argument("library", help="path of libmojo_ops")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--tokens", default="16,128,197")
    options = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__}, {options.threads} threads, {options.layers} layers")
    for name, norm_first in ("BERT", False), ("ViT", True):
        with tempfile.TemporaryDirectory() as folder:
            paths = {kind: str(pathlib.Path(folder, kind)) + ".onnx" for kind in ("exported", "onnxscript", "patched")}
            onnx.save(Encoder(norm_first).model(options.layers), paths["exported"])
            fused = optimize_for_ort(onnx_ir.load(paths["exported"]))
            onnx_ir.save(fused[0] if isinstance(fused, tuple) else fused, paths["onnxscript"])
            patch = [options.tool, "apply", paths["exported"], "-o", paths["patched"], "-q", "--kernels-lib"]
            subprocess.run([*patch, options.library], check=True)
            runs = {kind: session(path, options.library, options.threads) for kind, path in paths.items()}
        for tokens in map(int, options.tokens.split(",")):
            x = np.random.default_rng(1).standard_normal((1, tokens, WIDTH)).astype(np.float32)
            times = {kind: [] for kind in runs}
            for _ in range(options.rounds):
                for kind, run in runs.items():
                    times[kind].append(timed(run, x))
            row = f"{name:4} {tokens:4} tokens"
            for kind, t in times.items():
                low, middle, high = np.quantile(t, [0.25, 0.5, 0.75])
                ratio = np.median(np.array(times["onnxscript"]) / np.array(t))
                row += f"   {kind} {middle:.1f} ({low:.1f}-{high:.1f}) {ratio:.2f}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
