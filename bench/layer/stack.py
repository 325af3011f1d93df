#!/usr/bin/env python3
"""Compares the decode steps of models of export.py --model qwen3-next: as exported, and patched.

    stack.py EXPORTED.onnx PATCHED.onnx ... [--library LIBRARY] [--cpu] [--threads 2] [--cuda-graph] [--batch 1]
        [--past 512] [--rounds 15] [--runs 8] [--nodes 12]

Needs numpy, ml_dtypes, onnx and onnxruntime. Missing weights are written first (weights.py); models that name the same
file share them. All models run in one process, in turn; between them, the threads of the last one fall asleep. A step
reads the caches of --past tokens and writes new ones, so all steps are equal. Prints tokens per second, the medians of
the rounds with quartiles, the speed over the first model and the difference from its outputs. Then it prints the time
of each kind of node, from onnxruntime's profile. On CUDA each node then waits for its kernels.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import weights

ASLEEP = 0.2  # seconds until threads without work no longer spin


def sizes(name, dims, args):
    """The sizes of an input's dimensions."""
    free = {"hidden_states": {0: args.batch}, "attention_mask": {0: args.batch, 1: args.past + 1}}
    free |= {part: {0: args.batch, 2: args.past} for part in ("past_key", "past_value")}
    of = next((axes for start, axes in free.items() if name.startswith(start)), {0: args.batch})
    return [of.get(axis, d.dim_value) if d.dim_param else d.dim_value for axis, d in enumerate(dims)]


class Model:
    """A session whose inputs and outputs are bound to the device."""

    def __init__(self, path, args, profile=None):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.enable_profiling = profile is not None
        options.profile_file_prefix = profile or ""
        if args.library:
            options.register_custom_ops_library(args.library)
        if args.cpu:
            options.intra_op_num_threads = args.threads
        inputs, rng = {}, np.random.default_rng(1)
        for v in onnx.load(path, load_external_data=False).graph.input:
            dims, kind = v.type.tensor_type.shape.dim, v.type.tensor_type.elem_type
            shape = sizes(v.name, dims, args)
            for d, size in zip(dims, shape, strict=True):
                if d.dim_param:
                    options.add_free_dimension_override_by_name(d.dim_param, size)
            if kind == onnx.TensorProto.INT64:
                inputs[v.name] = np.ones(shape, np.int64)
            else:
                inputs[v.name] = (0.5 * rng.standard_normal(shape, dtype=np.float32)).astype(weights.TYPES[kind])
        graph = "1" if args.cuda_graph and profile is None else "0"
        provider = "CPUExecutionProvider" if args.cpu else ("CUDAExecutionProvider", {"enable_cuda_graph": graph})
        self.session = ort.InferenceSession(path, options, providers=[provider])
        self.binding = self.session.io_binding()
        for name, array in inputs.items():
            if array.dtype == ml_dtypes.bfloat16:  # which numpy lacks
                of = onnx.TensorProto.BFLOAT16
                given = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), of)
            else:
                given = ort.OrtValue.ortvalue_from_numpy(array)
            self.binding.bind_ortvalue_input(name, given)
        for v in self.session.get_outputs():
            self.binding.bind_output(v.name, "cpu" if args.cpu else "cuda")
        self.run()

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        """The outputs of float32: the hidden states, and the states of the delta rules."""
        named = zip(self.session.get_outputs(), self.binding.get_outputs(), strict=True)
        return [out.numpy() for v, out in named if v.type == "tensor(float)"]


def measure(models, args):
    """The seconds of a step in each round, for each model."""
    times = [[] for _ in models]
    for number in range(args.rounds + 1):
        for model, measured in zip(models, times, strict=True):
            time.sleep(ASLEEP)
            model.run()
            steps = []
            for _ in range(args.runs):
                start = time.perf_counter()
                model.run()
                steps.append(time.perf_counter() - start)
            if number:
                measured.append(statistics.median(steps))
    return times


def spread(values, form):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def nodes(path, args):
    """Prints the time and number of each kind of node in a step."""
    with tempfile.TemporaryDirectory() as folder:
        model = Model(path, args, os.path.join(folder, "profile"))
        for _ in range(args.runs + 2):
            model.run()
        events = json.loads(pathlib.Path(model.session.end_profiling()).read_text())
    steps = [[]]  # of nodes
    for event in sorted(events, key=lambda e: e["ts"]):
        if event["name"] == "model_run":
            steps.append([])
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            steps[-1].append((event["args"]["op_name"], event["dur"]))
    steps = steps[3:]
    kinds = collections.defaultdict(list)
    for op in {op for step in steps for op, _ in step}:
        for step in steps:
            kinds[op].append((sum(t for o, t in step if o == op), sum(o == op for o, _ in step)))
    table = sorted(((statistics.median(t for t, _ in v), v[0][1], op) for op, v in kinds.items()), reverse=True)
    print(f"\n{path}: {sum(t for t, _, _ in table):,} us in {sum(n for _, n, _ in table)} nodes\n")
    print("| kind | nodes | us |\n| --- | ---: | ---: |")
    for t, n, op in table[: args.nodes]:
        print(f"| {op} | {n} | {t:,.0f} |")
    rest = table[args.nodes :]
    print(f"| {len(rest)} others | {sum(n for _, n, _ in rest)} | {sum(t for t, _, _ in rest):,.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--library", help="path of libmojo_ops or libmojo_ops_cuda")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--cuda-graph", action="store_true")
    for name, default in dict(threads=2, batch=1, past=512, rounds=15, runs=8, nodes=12).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--profile", action="store_true", help="only the kinds of nodes")
    args = parser.parse_args()
    if args.profile:
        for path in args.models:
            nodes(path, args)
        return
    for path in map(pathlib.Path, args.models):
        external = [t for t in onnx.load(path, load_external_data=False).graph.initializer if t.external_data]
        names = {e.value for t in external for e in t.external_data if e.key == "location"}
        if any(not (path.parent / name).exists() for name in names):
            weights.write(path, 1)
    models = [Model(path, args) for path in args.models]
    times, first = measure(models, args), models[0].outputs()
    where = f"CPU, {args.threads} threads" if args.cpu else "CUDA" + (", as a graph" if args.cuda_graph else "")
    print(f"onnxruntime {ort.__version__}, {where}, batch {args.batch}, past {args.past}, {args.rounds} rounds\n")
    print("| model | tokens/s | speed | difference |\n| --- | ---: | ---: | ---: |")
    for path, model, measured in zip(args.models, models, times, strict=True):
        off = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(model.outputs(), first, strict=True))
        tokens = spread([args.batch / t for t in measured], ".1f")
        print(f"| {path} | {tokens} | {spread([b / a for a, b in zip(measured, times[0])], '.2f')} | {off:.0e} |")
    del models, model
    # Another process: CUDA reads the variable once.
    again = [sys.executable, *sys.argv, "--profile"]
    subprocess.run(again, env={**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}, check=True)


if __name__ == "__main__":
    main()
