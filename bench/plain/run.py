#!/usr/bin/env python3
"""Patches models that have no language blocks, and prints in Markdown what was fused and the CPU time beside two tools
that simplify graphs.

    run.py DIR [--tool build/mojo-patch] [--kernels libmojo_ops.so] [--rounds 3] [--sample 20] [--peers NAMES]

CPU seconds of user and system, the median of the rounds with the least and the most: of the whole process for
mojo-patch, without imports for onnxsim and onnxslim (--peers; none with ""), which are given the model's file and write
another. A round has each of the tools once. --sample takes so many of the models, spread over their kinds (timm,
speech, ...). Where something is fused, the outputs of the patched model are compared with the original's in
onnxruntime, on random inputs; a difference is an error and the exit status 1. Needs tools/requirements/plain.txt.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

PEER = """
import resource, sys, time, onnx
import {module}
before = time.process_time()
{work}
print(time.process_time() - before)
"""
PEERS = {
    "onnxsim": "m, ok = onnxsim.simplify(onnx.load(sys.argv[1])); onnx.save(m, sys.argv[2])",
    "onnxslim": "onnxslim.slim(sys.argv[1], sys.argv[2])",
}
DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}
LIMIT = 1e-4  # of the largest output, where onnxruntime's own optimizations do not change more
PATIENCE = 120  # seconds for one model in a peer


def ours(tool, model, out):
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [tool, "apply", model, "-o", out, "--json", "--check-kernels", "off", "--assume-available"]
    p = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if p.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {p.returncode}\n{p.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    fused, sites = {}, json.loads(p.stdout).get("sites", []) if p.stdout else []
    for s in sites:
        if s["status"] == "fused":
            fused[s["op"]] = fused.get(s["op"], 0) + 1
    return seconds, fused


def peer(name, model, out):
    command = [sys.executable, "-c", PEER.format(module=name, work=PEERS[name]), model, out]
    try:
        p = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    return float(p.stdout.split()[-1]) if p.returncode == 0 else None


def differs(model, patched, kernels):
    """Reports whether outputs differ by several times more than onnxruntime's own optimizations change them."""
    r = np.random.default_rng(1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    before = onnxruntime.InferenceSession(model, options)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(model, options)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    if kernels:
        options.register_custom_ops_library(kernels)
    after = onnxruntime.InferenceSession(patched, options)
    inputs = {}
    for i in before.get_inputs():
        shape = [d if isinstance(d, int) else 2 for d in i.shape]
        inputs[i.name] = r.standard_normal(shape).astype(DTYPES[i.type])
    for a, b, c in zip(*(session.run(None, inputs) for session in (before, plain, after))):
        noise = max(LIMIT * np.abs(a).max(), 4 * np.abs(a - b).max(), 1e-30)
        if not np.abs(a - c).max() <= noise:  # also fails on NaN
            return True
    return False


def cell(times):
    if not times or None in times:
        return "failed"
    return f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})"


def sample(models, n):
    """n of the models: of each kind, which the name begins with, as large a share of them as of all, evenly spread."""
    kinds = {}
    for m in models:
        kinds.setdefault(m.name.split("-")[0], []).append(m)
    out = []
    for of in kinds.values():
        k = min(max(round(n * len(of) / len(models)), 1), len(of))
        out += [of[i * len(of) // k] for i in range(k)]
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--tool", default="build/mojo-patch")
    p.add_argument("--kernels", default="")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--sample", type=int, default=0)
    p.add_argument("--peers", default=",".join(PEERS))
    args = p.parse_args()
    peers = [name for name in args.peers.split(",") if name]
    failed, medians, everything = False, {name: [] for name in ["apply", *peers]}, {}
    print("| model | nodes | fused |", " | ".join(medians), "|")
    print("| --- | ---: | --- |", " | ".join("---:" for _ in medians), "|")
    with tempfile.TemporaryDirectory() as work:
        out = f"{work}/out.onnx"
        models = sorted(args.dir.glob("*.onnx"))
        if args.sample:
            models = sample(models, args.sample)
        for model in map(str, models):
            times, fused = {name: [] for name in medians}, {}
            for _ in range(args.rounds):
                seconds, fused = ours(args.tool, model, out)
                times["apply"].append(seconds)
                for name in peers:
                    if None not in times[name]:  # do not retry a failed peer
                        times[name].append(peer(name, model, f"{work}/peer.onnx"))
            verdict = ""
            if fused and differs(model, out, args.kernels):
                verdict, failed = " DIFFERS", True
            row = [cell(t) for t in times.values()]
            for name, t in times.items():
                if None not in t:
                    medians[name].append(statistics.median(t))
            for op, k in fused.items():
                everything[op] = everything.get(op, 0) + k
            names = ", ".join(f"{op} {k}" for op, k in sorted(fused.items())) + verdict
            nodes = len(onnx.load(model, load_external_data=False).graph.node)
            print("|", " | ".join([pathlib.Path(model).stem, str(nodes), names, *row]), "|", flush=True)
    print(f"\n{len(models)} models; fused: {everything or 'nothing'}. Median CPU seconds of a model:", end=" ")
    print(", ".join(f"{k} {statistics.median(v):.3f} ({len(v)})" for k, v in medians.items() if v))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
