#!/usr/bin/env python3
"""Times SmolLM2-135M-Instruct as exported, patched by mojo-patch and by others, and in llama.cpp; prints tables for
docs/benchmarks.md.

    run.py --tool mojo-patch --library libmojo_ops.so --gguf FILE [--folder build/smollm2]
        [--loads 6] [--rounds 4]     (`make bench-smollm2`)

Each contender has a process and two threads of its own. In every round each of them prefills the 128 tokens of
golden.npz and decodes 64 more, one contender after the other and beginning with another each time, so that ratios
within a round compare what the machine did at one time. In the first round, and of the first prefill of each turn,
nothing is measured. After some rounds all are loaded anew: where its memory happens to lie makes a process faster or
slower as long as it lives. A contender that cannot be made or fails is listed with its error.
"""

import argparse
import json
import pathlib
import statistics
import sys

import numpy as np

import contenders
import nodes
import tables
from worker import Worker

MODEL = contenders.HERE.parents[1] / "models" / "smollm2"


def gather(options):
    """Makes the contenders; returns them, and (name, error) of the failed ones."""
    folder, made, failed = options.folder, [], []

    def attempt(name, make, *arguments, **named):
        print(f"making {name} …", file=sys.stderr, flush=True)
        try:
            made.append(make(*arguments, **named))
        except Exception as error:  # whatever the tool raises
            failed.append((name, f"{type(error).__name__}: {error}"))

    base = contenders.load(options.tool, MODEL / "graph.onnx", MODEL / "map.json", options.gguf, folder)
    made.append(base)
    model = base.arguments["path"]
    made.append(contenders.ours(options.tool, model, options.library, folder))
    last = ("--last-logits",)
    attempt(
        "patched, --last-logits",
        contenders.ours,
        options.tool,
        model,
        options.library,
        folder,
        1,
        "patched, --last-logits",
        last,
    )
    for dtype in ("bf16", "f16"):
        attempt(f"patched, {dtype}", contenders.rounded, options.tool, made[1], dtype, folder)
    for fuse in ("optimize_for_ort", "fuse_for_onnxruntime"):
        attempt(fuse, contenders.theirs, fuse, model, folder)
    for dtype in ("F32", "F16", "BF16", None):
        attempt(f"llama.cpp, {dtype or 'as packaged'}", contenders.llama, options.gguf, dtype, folder)
    return made, failed


def measure(chosen, loads, rounds, prompt, tokens, warm=True, cpu_time=False):
    """Loads all contenders and runs them in turn; warm: once before times count; cpu_time: as Worker has it.

    Returns {name: {"load": […], "prefill": […], "decode": […], "peak": MiB, "tokens": […]}}, and errors.
    """
    results, failed = {c.name: {"load": [], "prefill": [], "decode": []} for c in chosen}, []

    def fail(name, error):
        failed.append((name, str(error)))
        results.pop(name)
        workers.pop(name, None)

    for load in range(loads):
        workers = {}
        for contender in chosen:
            if contender.name not in results:
                continue
            try:
                workers[contender.name] = worker = Worker(contender.kind, contender.arguments, cpu_time)
                results[contender.name]["load"].append(worker.load)
            except RuntimeError as error:
                fail(contender.name, error)
        for number in range(0 if warm else 1, rounds + 1):
            print(f"load {load + 1} of {loads}, round {number} of {rounds}", file=sys.stderr, flush=True)
            names = list(workers)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                try:
                    answer = workers[name].run(prompt, tokens)
                except RuntimeError as error:
                    fail(name, error)
                    continue
                result = results[name]
                if answer["tokens"] != result.setdefault("tokens", answer["tokens"]):
                    fail(name, f"round {number} gave other tokens than the rounds before")
                    continue
                result["peak"] = max(answer["peak"], result.get("peak", 0))
                if number:
                    result["prefill"].append(answer["prefill"])
                    result["decode"].append(answer["decode"])
        for worker in workers.values():
            worker.close()
    return results, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, required=True, help="mojo-patch")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libmojo_ops.so")
    parser.add_argument("--gguf", type=pathlib.Path, required=True)
    parser.add_argument(
        "--folder", type=pathlib.Path, default=pathlib.Path("build/smollm2"), help="where the models go (3 GB)"
    )
    parser.add_argument("--loads", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4, help="after each load")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    golden = np.load(MODEL / "golden.npz")
    prompt = [int(i) for i in golden["bench_ids"]]
    want = [int(i) for i in golden["bench_greedy"]][: options.tokens + 1]

    chosen, failed = gather(options)
    results, errors = measure(chosen, options.loads, options.rounds, prompt, options.tokens)
    failed += errors
    chosen = [c for c in chosen if c.name in results]
    if chosen[0].name != "unpatched":
        sys.exit(f"run.py: the unpatched model failed: {failed}")
    print(tables.figures(chosen, results, want))
    print(tables.ratios(chosen, results))
    for name, error in failed:
        print(f"- {name} could not be measured: {error.strip().splitlines()[-1]}")
        print(f"{name}: {error}", file=sys.stderr)
    profiles = {c.name: nodes.profile(c.arguments, prompt, min(options.tokens, 20)) for c in chosen[:2]}
    print(tables.kinds(profiles))
    if options.json:
        patch = {c.name: c.patch for c in chosen}
        options.json.write_text(json.dumps({"results": results, "patch": patch, "failed": failed, "nodes": profiles}))
    ours, base = results.get("patched"), results["unpatched"]
    if not ours or any(r["tokens"] != want for r in (ours, base)):
        sys.exit("run.py: the unpatched and the patched model must give PyTorch's tokens")
    speedup = statistics.median(a / b for a, b in zip(base["decode"], ours["decode"]))
    patched = statistics.median(p["wall"] for p in chosen[1].patch)
    print(f"decode: {speedup:.2f} times the unpatched model, patched in {patched:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
