#!/usr/bin/env python3
"""Times SmolLM2-135M-Instruct with its weights in float32 and as the GGUF file has them, as run.py does; prints tables
for docs/benchmarks/smollm2.md.

    quantised.py --tool mojo-patch --library libmojo_ops.so --gguf FILE [--folder FOLDER] [--loads 2] [--rounds 3]

All models are patched with --last-logits. Ratios are over the first of them, in float32, within rounds.
"""

import argparse
import pathlib
import sys

import numpy as np

import contenders
import run
import tables

ATTENTION = ("--skip", "Attention")
KEPT = {  # name: activations, flags of apply
    "int16, --skip Attention": ("int16", ATTENTION),
    "int16, --skip Attention --merge-products": ("int16", (*ATTENTION, "--merge-products")),
    "int16": ("int16", ()),
    "int16, --merge-products": ("int16", ("--merge-products",)),
    "int8": ("int8", ()),
}


def gather(options):
    """Makes the contenders: two in float32, then those that stay quantised."""
    tool, folder, library = options.tool, options.folder, options.kernels

    def patched(name, model, flags):
        return contenders.ours(tool, model, library, folder, 1, name, ("--last-logits", *flags))

    base = contenders.load(tool, run.MODEL / "graph.onnx", run.MODEL / "map.json", options.gguf, folder)
    floats = base.arguments["path"]
    made = [patched("float32, --skip Attention", floats, ATTENTION), patched("float32", floats, ())]
    kept = {}
    for activations in ("int16", "int8"):
        kept[activations] = folder / f"kept-{activations}.onnx"
        command = [tool, "weights", "load", run.MODEL / "graph.onnx", "--from", options.gguf, "--keep-quantized"]
        contenders.measured([*command, "--activations", activations, "-o", kept[activations]])
    made += [patched(name, kept[activations], flags) for name, (activations, flags) in KEPT.items()]
    if options.llama:
        made.append(contenders.llama(options.gguf, None, folder))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, required=True, help="mojo-patch")
    parser.add_argument("--library", dest="kernels", type=pathlib.Path, required=True, help="libmojo_ops.so")
    parser.add_argument("--gguf", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/smollm2/quantised"))
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="after each load")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--llama", action="store_true", help="llama.cpp as well, on the file as it is")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    golden = np.load(run.MODEL / "golden.npz")
    prompt = [int(i) for i in golden["bench_ids"]]
    want = [int(i) for i in golden["bench_greedy"]][: options.tokens + 1]
    chosen = gather(options)
    results, failed = run.measure(chosen, options.loads, options.rounds, prompt, options.tokens)
    chosen = [c for c in chosen if c.name in results]
    print(tables.figures(chosen, results, want))
    print(tables.ratios(chosen, results))
    for name, error in failed:
        print(f"{name}: {error}", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
