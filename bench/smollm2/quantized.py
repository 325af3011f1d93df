#!/usr/bin/env python3
"""Times SmolLM2-135M-Instruct with its weights in float32 and as a GGUF file has them, as run.py does; prints tables
for docs/benchmarks/smollm2.md.

    quantized.py --tool mojo-patch --library libmojo_ops.so --gguf FILE [--format Q4_0] [--folder FOLDER]
        [--loads 2] [--rounds 3]

All models are patched with --last-logits. Ratios are over the first of them, in float32, within rounds. With --format
llama.cpp quantizes the file anew; the models in float32 are those of the file as it is. KL is the divergence from them,
mean and greatest, over the next token behind the prompt and behind each of the 64 that PyTorch generates.
"""

import argparse
import pathlib
import re
import sys

import numpy as np
import onnx

import contenders
import run
import tables
from worker import maker

ATTENTION = ("--skip", "Attention")
APART = ("--merge-products=false",)
KEPT = {  # name: flags of weights load, and of apply
    "int16, --skip Attention": ((), ATTENTION),
    "int16": ((), ()),
    "int16, --merge-products=false": (APART, ()),
    "int8": (("--activations", "int8"), ()),
    "MatMulNBits, accuracy_level 0": ((), ("--target", "ort")),
    "MatMulNBits, accuracy_level 4": ((), ("--target", "ort", "--accuracy-level", "4")),
}


def gather(options):
    """Makes the contenders: two in float32, then the quantized ones."""
    tool, folder, library = options.tool, options.folder, options.kernels

    def patched(name, model, flags):
        return contenders.ours(tool, model, library, folder, 1, name, ("--last-logits", *flags))

    base = contenders.load(tool, run.MODEL / "graph.onnx", run.MODEL / "map.json", options.gguf, folder)
    floats = base.arguments["path"]
    made = [patched("float32, --skip Attention", floats, ATTENTION), patched("float32", floats, ())]
    file = options.gguf
    if options.format:
        from llama import convert

        file = folder / f"{options.format}.gguf"
        convert(options.gguf, file, options.format)
    for number, (name, (load, flags)) in enumerate(KEPT.items()):
        if options.only and not re.search(options.only, name):
            continue
        kept = folder / f"kept-{number}.onnx"
        command = [tool, "weights", "load", run.MODEL / "graph.onnx", "--from", file, "--keep-quantized", *load]
        contenders.measured([*command, "-o", kept])
        made.append(patched(name, kept, flags))
    if options.llama:
        made.append(contenders.llama(file, None, folder))
    return made


def size(contender):
    """Bytes of a model's files, in MB."""
    path = pathlib.Path(contender.arguments["path"])
    files = {path}
    if contender.kind != "llama":
        for tensor in onnx.load(path, load_external_data=False).graph.initializer:
            files.update(path.parent / e.value for e in tensor.external_data if e.key == "location")
    return sum(f.stat().st_size for f in files) / 1e6


def log_softmax(contender, ids, forced):
    """Logarithms of the probabilities of the token behind ids, and behind each that is forced after them."""
    runner = maker(contender.kind)(**contender.arguments | {"threads": 1})
    logits = [np.array(runner.logits(ids), np.float64)] + [np.array(runner.logits([i]), np.float64) for i in forced]
    logits = np.array(logits) - np.max(logits, axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def more(chosen, prompt, want):
    """Sizes of the files, and divergences from the first of them."""
    rows, reference = [], None
    for c in chosen:
        logs = log_softmax(c, prompt, want[:-1])
        reference = logs if reference is None else reference
        kl = (np.exp(reference) * (reference - logs)).sum(axis=-1)
        equal = int((logs.argmax(axis=-1) == np.array(want)).sum())
        rows.append([c.name, f"{size(c):.1f}", f"{kl.mean():.2g}, {kl.max():.2g}", f"{equal} of {len(want)}"])
    return tables.table(["", "files, MB", "KL", "likeliest tokens, of PyTorch's text"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, required=True, help="mojo-patch")
    parser.add_argument("--library", dest="kernels", type=pathlib.Path, required=True, help="libmojo_ops.so")
    parser.add_argument("--gguf", type=pathlib.Path, required=True)
    parser.add_argument("--format", help="what llama.cpp quantizes the file to, such as Q4_0, Q8_0, Q4_K and Q6_K")
    parser.add_argument("--only", help="leave out kept models whose name does not match")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/smollm2/quantized"))
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="after each load")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--llama", action="store_true", help="llama.cpp as well, on the file as it is")
    parser.add_argument("--cpu-time", action="store_true", help="of one thread: for machines that others use as well")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    golden = np.load(run.MODEL / "golden.npz")
    prompt = [int(i) for i in golden["bench_ids"]]
    want = [int(i) for i in golden["bench_greedy"]][: options.tokens + 1]
    chosen = gather(options)
    results, failed = run.measure(
        chosen, options.loads, options.rounds, prompt, options.tokens, cpu_time=options.cpu_time
    )
    chosen = [c for c in chosen if c.name in results]
    print(tables.figures(chosen, results, want))
    print(tables.ratios(chosen, results))
    print(more(chosen, prompt, want))
    for name, error in failed:
        print(f"{name}: {error}", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
