#!/usr/bin/env python3
"""Times SmolLM2-135M-Instruct in onnxruntime-genai: as it was exported, patched, and as genai's own model builder
writes it. Prints a table for docs/serving.md.

    genai.py --tool mojo-patch --gguf FILE --folder FOLDER [--builder PYTHON] [--rounds 10] [--threads 2]
    genai.py NAME=FOLDER... [--rounds 10] [--threads 2]

The first form makes the models as folders for the CPU in FOLDER, those that are not there yet; the second one takes
folders that are there. All models are in one process. In every round each of them reads the 128 tokens of golden.npz
and generates 65, the first of which is the prompt's; the next round begins with another model. With --rounds 0 the
tokens of golden.npz are counted in the place of times.

--builder is a Python with what genai's model builder needs (tools/requirements/genai.txt); without it the builder's
models are left out. This Python needs numpy, onnx and onnxruntime-genai.
"""

import argparse
import json
import pathlib
import shutil
import time

import numpy as np
import onnxruntime_genai as og

import tables
from contenders import HERE, load, measured

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "smollm2"
BUFFERS = ("--cache", "static", "--past-length=rows", "--last-logits")
# name: how the model is made, with its flags
CONTENDERS = {
    "as exported": ("export", None),
    "patched": ("export", ()),
    "patched, caches in place": ("export", BUFFERS),
    "model builder, fp32": ("builder", "fp32"),
    "Q4_1 of the GGUF file, caches in place": ("kept", BUFFERS),
    "q4_0 by quantize, caches in place": ("quantize", BUFFERS),
    "model builder, int4": ("builder", "int4"),
}


def make(options, kind, flags, out):
    """Writes a folder for genai."""
    tool, work = options.tool, options.folder
    if kind == "builder":
        checkpoint = work / "checkpoint"
        if not (checkpoint / "model.safetensors").exists():
            measured([options.builder, HERE / "checkpoint.py", options.gguf, checkpoint])
        command = [options.builder, "-m", "onnxruntime_genai.models.builder", "-i", checkpoint, "-p", flags]
        measured([*command, "-o", out, "-e", "cpu", "-c", work / "cache"])
        return
    scratch = work / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    if kind == "kept":
        model = scratch / "kept.onnx"
        graph = ["weights", "load", MODEL / "graph.onnx", "--from", options.gguf, "--map", MODEL / "map.json"]
        measured([tool, *graph, "--keep-quantized", "-o", model])
    else:
        model = load(tool, MODEL / "graph.onnx", MODEL / "map.json", options.gguf, scratch).arguments["path"]
    if kind == "quantize":
        measured([tool, "quantize", model, "--format", "q4_0", "-o", scratch / "quantized.onnx"])
        model = scratch / "quantized.onnx"
    if flags is not None:
        measured([tool, "apply", model, "-o", scratch / "patched.onnx", *flags])
        model = scratch / "patched.onnx"
    measured([tool, "export", "genai", model, "--tokenizer", MODEL, "-o", out])
    shutil.rmtree(scratch)


def made(options):
    """The folders of all contenders. Makes the missing ones."""
    folders = {}
    for number, (name, (kind, flags)) in enumerate(CONTENDERS.items()):
        out = options.folder / f"genai-{number}"
        if kind == "builder" and not options.builder:
            continue
        if not (out / "genai_config.json").exists():
            make(options, kind, flags, out)
        folders[name] = out
    return folders


def opened(folder, threads):
    """The model of a folder, that no token ends and that runs on so many threads."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["eos_token_id"] = [config["model"]["vocab_size"] - 1]
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    path.write_text(json.dumps(config, indent=4))
    return og.Model(str(folder))


def generate(model, ids, tokens):
    """Seconds until the first token and for each that follows, and the tokens."""
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, max_length=len(ids) + tokens + 1)
    generator = og.Generator(model, params)
    start = time.perf_counter()
    generator.append_tokens(np.array(ids, np.int32))
    generator.generate_next_token()
    first = time.perf_counter()
    for _ in range(tokens):
        generator.generate_next_token()
    generator.get_next_tokens()
    end = time.perf_counter()
    return first - start, (end - first) / tokens, [int(t) for t in generator.get_sequence(0)[len(ids) :]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--tool")
    parser.add_argument("--gguf", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--builder")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    folders = {name: pathlib.Path(path) for name, _, path in (m.partition("=") for m in options.models)}
    if not folders:
        if not (options.tool and options.gguf and options.folder):
            parser.error("--tool, --gguf and --folder, or folders, are missing")
        options.folder.mkdir(parents=True, exist_ok=True)
        folders = made(options)
    models = {name: (folder, opened(folder, options.threads)) for name, folder in folders.items()}

    golden = np.load(MODEL / "golden.npz")
    prompt, want = ([int(i) for i in golden[k]] for k in ("bench_ids", "bench_greedy"))
    print(table(models, prompt, want, options) if options.rounds else agreement(models, golden))


def agreement(models, golden):
    """How many of the 96 tokens of golden.npz each model generates."""
    rows = []
    for name, (_, model) in models.items():
        kept = 0
        for n in range(3):
            greedy = golden[f"greedy{n}"]
            kept += int((np.array(generate(model, golden[f"prompt{n}"], len(greedy) - 1)[2]) == greedy).sum())
        rows.append([name, str(kept)])
    return tables.table(["model", "of 96 golden tokens"], rows)


def table(models, prompt, want, options):
    times = {name: {"prefill": [], "decode": []} for name in models}
    tokens = {}
    for number in range(options.rounds + 1):
        names = list(models)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            prefill, decode, tokens[name] = generate(models[name][1], prompt, min(options.tokens, len(want) - 1))
            if number:  # the first round allocates memory
                times[name]["prefill"].append(prefill)
                times[name]["decode"].append(decode)
    rows = []
    base = times[next(iter(models))]
    for name, (folder, _) in models.items():
        t = times[name]
        size = sum(p.stat().st_size for p in folder.glob("model.onnx*")) / 1e6
        ratios = [tables.spread([a / b for a, b in zip(base[k], t[k])], 2) for k in ("prefill", "decode")]
        rows.append([
            name, f"{size:.0f}", tables.spread([1000 * s for s in t["prefill"]], 0), ratios[0],
            tables.spread([1 / s for s in t["decode"]], 1), ratios[1],
            tables.agreement(tokens[name], want[: len(tokens[name])]),
        ])  # fmt: skip
    header = ["model", "MB", "prefill of 128, ms", "speed-up", "decode, tokens/s", "speed-up", "tokens as PyTorch's"]
    return tables.table(header, rows)


if __name__ == "__main__":
    main()
