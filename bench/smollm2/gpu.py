#!/usr/bin/env python3
"""Times SmolLM2-135M-Instruct on a GPU: the model of each type as exported and patched, in onnxruntime with its CUDA
provider.

    gpu.py --library libmojo_ops_cuda.so bfloat16=bf16.onnx,bf16-patched.onnx float16=fp16.onnx,fp16-patched.onnx
        [--rounds 10] [--cpu]

Each argument names a type, the unpatched and the patched model (`mojo-patch weights load --dtype bf16 --dtype-provider
cuda`, `mojo-patch apply --backend +CUDA,+CPU`). All models are in one process; in every round each of them prefills the
128 tokens of golden.npz and decodes 64 more, with inputs and cache bound to the device and the logits copied to the
host. Prints rows for docs/benchmarks.md, with the number of greedy tokens that are those of PyTorch in float32 up to
the first that is not; then which nodes are not on CUDA. --cpu runs everything on the CPU, to try the program. Needs
numpy and onnxruntime.
"""

import argparse
import collections
import json
import pathlib
import tempfile

import numpy as np

import tables
from decoder import Decoder
from worker import generate

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "smollm2"


def placed(path, library, cuda, prompt):
    """Kinds of nodes that a token runs on the CPU, with their number, and the number of all nodes."""
    with tempfile.TemporaryDirectory() as folder:
        decoder = Decoder(path, library, cuda=cuda, profile=pathlib.Path(folder) / "profile")
        best = decoder.step(prompt)
        decoder.step([best])
        events = json.loads(pathlib.Path(decoder.session.end_profiling()).read_text())
    last = max((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])
    nodes = [
        e["args"]
        for e in events
        if e.get("cat") == "Node" and e["name"].endswith("kernel_time") and e["ts"] >= last["ts"]
    ]
    return collections.Counter(n["op_name"] for n in nodes if n["provider"] == "CPUExecutionProvider"), len(nodes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="TYPE=MODEL,PATCHED")
    parser.add_argument("--library", required=True)
    parser.add_argument("--golden", default=MODEL / "golden.npz")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    golden = np.load(options.golden)
    prompt, want = ([int(i) for i in golden[k]] for k in ("bench_ids", "bench_greedy"))
    want = want[: options.tokens + 1]
    questions = [([int(i) for i in golden[f"prompt{n}"]], [int(i) for i in golden[f"greedy{n}"]]) for n in range(3)]

    decoders = {}
    for argument in options.models:
        kind, _, paths = argument.partition("=")
        for path, name in zip(paths.split(","), ("unpatched", "patched"), strict=True):
            library = options.library if name == "patched" else None
            decoders[kind, name] = path, library, Decoder(path, library, cuda=not options.cpu)
    times = {key: {"prefill": [], "decode": []} for key in decoders}
    answers = {}
    for number in range(options.rounds + 1):
        keys = list(decoders)
        for key in keys[number % len(keys) :] + keys[: number % len(keys)]:
            prefill, decode, answers[key] = generate(decoders[key][2], prompt, options.tokens)
            if number:  # the first round allocates memory and chooses algorithms
                times[key]["prefill"].append(prefill)
                times[key]["decode"].append(decode)

    rows = []
    for key, (_, _, decoder) in decoders.items():
        kind, name = key
        t, base = times[key], times[kind, "unpatched"]
        ratios = (
            ["-", "-"]
            if name == "unpatched"
            else [tables.spread([a / b for a, b in zip(base[k], t[k])], 2) for k in ("prefill", "decode")]
        )
        same = [tables.agreement(answers[key], want)]
        same += [tables.agreement(generate(decoder, ids, len(tokens) - 1)[2], tokens) for ids, tokens in questions]
        rows.append([
            f"{kind}, {name}", tables.spread([1000 * s for s in t["prefill"]], 2),
            tables.spread([1 / s for s in t["decode"]], 1), *ratios,
            ", ".join(same),
        ])  # fmt: skip
    header = [
        "",
        "prefill of 128, ms",
        "decode of 64, tokens/s",
        "prefill over unpatched",
        "decode over unpatched",
        "tokens as PyTorch's in float32",
    ]
    print(tables.table(header, rows))
    for key, (path, library, _) in decoders.items():
        on_cpu, total = placed(path, library, not options.cpu, prompt)
        kinds = ", ".join(f"{n} {op}" for op, n in on_cpu.most_common()) or "none"
        print(f"- {', '.join(key)}: {total} nodes in a token's run, on the CPU: {kinds}")


if __name__ == "__main__":
    main()
