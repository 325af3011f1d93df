#!/usr/bin/env python3
"""Times SmolLM2-135M-Instruct with many tokens: as exported, patched, patched with the cache in place, in llama.cpp;
prints a table for docs/benchmarks/smollm2.md.

    lengths.py --tool mojo-patch --library libmojo_ops.so --gguf FILE [--folder build/smollm2]
        [--lengths 128,1024,2048] [--loads 3] [--rounds 4] [--pieces FILE]     (`make bench-cache`)

The contenders take turns as in run.py, of which this has the rules; ratios are speeds over that of the model as it was
exported, within rounds. The prompt is that of golden.npz, again and again. llama.cpp is left out where it is not there.
With --pieces a run is one of several, such as of minutes in which a machine is left alone: models and times of those
before are in the file, the table is of all of them.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys

import numpy as np

import contenders
import tables
from run import MODEL, measure

PARTS = ("prefill", "decode")


def gather(options, room):
    """Makes the contenders: the model as it was exported, then ours, then llama.cpp."""
    base = contenders.load(options.tool, MODEL / "graph.onnx", MODEL / "map.json", options.gguf, options.folder)
    ours = [options.tool, base.arguments["path"], options.library, options.folder, 1]
    made = [base, contenders.ours(*ours)]
    made.append(contenders.ours(*ours, name="patched, --cache static", flags=("--cache", "static")))
    made.append(contenders.ours(*ours, name="patched, --last-logits", flags=("--cache", "static", "--last-logits")))
    for contender in made[2:]:
        contender.arguments["room"] = room
    for dtype in ("F32", "F16"):
        try:
            made.append(contenders.llama(options.gguf, dtype, options.folder))
            made[-1].arguments["context"] = room
        except (ImportError, RuntimeError) as error:
            print(f"llama.cpp, {dtype}: {error}", file=sys.stderr)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=pathlib.Path, required=True, help="mojo-patch")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libmojo_ops.so")
    parser.add_argument("--gguf", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/smollm2"), help="where models go")
    parser.add_argument("--lengths", default="128,1024,2048", help="tokens of the prompts")
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4, help="after each load")
    parser.add_argument("--tokens", type=int, default=32, help="to decode behind each prompt")
    parser.add_argument("--room", type=int, default=2080, help="tokens of buffers and contexts")
    parser.add_argument("--only", default="", help="contenders beside the first, by their names, separated by ;")
    parser.add_argument("--pieces", type=pathlib.Path, help="JSON of the runs before, to which this one is added")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ids = [int(i) for i in np.load(MODEL / "golden.npz")["bench_ids"]]
    lengths = [int(n) for n in options.lengths.split(",")]
    if max(lengths) + options.tokens > options.room:
        sys.exit(f"lengths.py: --room {options.room} is less than {max(lengths)} and {options.tokens} tokens")
    before = {"made": [], "times": {}}
    if options.pieces and options.pieces.exists():
        before = json.loads(options.pieces.read_text())
    chosen = [contenders.Contender(**c) for c in before["made"]] or gather(options, options.room)
    made = [dataclasses.asdict(c) for c in chosen]
    only = [name for name in options.only.split(";") if name]
    chosen = [c for i, c in enumerate(chosen) if i == 0 or not only or c.name in only]
    exported = [c.name for c in chosen if c.kind != "llama"]
    for length in lengths:
        prompt = (ids * (length // len(ids) + 1))[:length]
        warm = options.pieces is None  # a piece is short, and each turn has a prefill that is not timed
        results, failed = measure(chosen, options.loads, options.rounds, prompt, options.tokens, warm)
        if failed:
            sys.exit(f"lengths.py: {failed}")
        if len({tuple(results[name]["tokens"]) for name in exported}) > 1:
            sys.exit(f"lengths.py: {length} tokens are followed by others in one model than in another")
        rounds = before["times"].setdefault(str(length), [])
        for i in range(options.loads * options.rounds):
            rounds.append({c.name: {part: results[c.name][part][i] for part in PARTS} for c in chosen})
    if options.pieces:
        options.pieces.write_text(json.dumps({"made": made, "times": before["times"]}))
    rows = []
    for length, rounds in before["times"].items():
        for name in [c["name"] for c in made]:
            own = [r for r in rounds if name in r]
            row = [f"{length}: {name}"]
            for part in PARTS if own else ():
                row.append(f"{1000 * statistics.median(r[name][part] for r in own):.1f}")
                row.append(tables.spread([r[exported[0]][part] / r[name][part] for r in own], 2))
            rows += [row] if own else []
    header = ["tokens: model", "prefill, ms", "over unpatched", "decode, ms a token", "over unpatched"]
    print(tables.table(header, rows))


if __name__ == "__main__":
    main()
