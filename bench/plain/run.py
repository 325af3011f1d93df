#!/usr/bin/env python3
"""Patches models that have no language blocks, and prints in Markdown what was fused and the CPU time beside two tools
that simplify graphs.

    run.py DIR [--tool build/mojo-patch] [--kernels libmojo_ops.so] [--rounds 3]

CPU seconds of user and system: of the whole process for mojo-patch, without imports for onnxsim and onnxslim, which
are given the model's file and write another. Where something is fused, the outputs of the patched model are compared
with the original's in onnxruntime, on random inputs; a difference is an error and the exit status 1. Needs
tools/requirements/plain.txt.
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
LIMIT = 1e-4  # of the largest output


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
    p = subprocess.run(
        [sys.executable, "-c", PEER.format(module=name, work=PEERS[name]), model, out], capture_output=True, text=True
    )
    return float(p.stdout.split()[-1]) if p.returncode == 0 else None


def differs(model, patched, kernels):
    r = np.random.default_rng(1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    before = onnxruntime.InferenceSession(model, options)
    if kernels:
        options.register_custom_ops_library(kernels)
    after = onnxruntime.InferenceSession(patched, options)
    inputs = {}
    for i in before.get_inputs():
        shape = [d if isinstance(d, int) else 2 for d in i.shape]
        inputs[i.name] = r.standard_normal(shape).astype(DTYPES[i.type])
    for a, b in zip(before.run(None, inputs), after.run(None, inputs)):
        if np.abs(a - b).max() > LIMIT * max(np.abs(a).max(), 1e-30):
            return True
    return False


def cell(times):
    if not times or None in times:
        return "failed"
    return f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--tool", default="build/mojo-patch")
    p.add_argument("--kernels", default="")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peers-of", type=int, default=10**9, help="time the peers on so many models")
    args = p.parse_args()
    failed, medians, everything = False, {"apply": [], "onnxsim": [], "onnxslim": []}, {}
    print("| model | nodes | fused | apply | onnxsim | onnxslim |\n| --- | ---: | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as work:
        out = f"{work}/out.onnx"
        models = sorted(args.dir.glob("*.onnx"))
        for n, model in enumerate(map(str, models)):
            times, fused = [], {}
            for _ in range(args.rounds):
                seconds, fused = ours(args.tool, model, out)
                times.append(seconds)
            verdict = ""
            if fused and differs(model, out, args.kernels):
                verdict, failed = " DIFFERS", True
            row = [cell(times)]
            medians["apply"].append(statistics.median(times))
            for name in PEERS:
                if n % max(len(models) // args.peers_of, 1):
                    row.append("–")
                    continue
                seconds = [peer(name, model, out) for _ in range(args.rounds)]
                row.append(cell(seconds))
                if None not in seconds:
                    medians[name].append(statistics.median(seconds))
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
