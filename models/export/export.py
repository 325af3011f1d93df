#!/usr/bin/env python3
"""Exports the models of this folder again, with the outputs PyTorch gives for them.

    export.py --out DIR [NAME …]        the bundled ones, or those named, like qwen3moe-batched_mm-ts-fp32
    export.py --list

NAME is ARCHITECTURE[-kv|-merged][-EXPERTS]-EXPORTER-DTYPE, or moe-FORM-EXPORTER-DTYPE for a layer of experts alone,
where FORM is one of forms.py or near.py, or ARCHITECTURE-EXPERTS, or gated-FORM-EXPORTER-DTYPE for a layer with a norm
of layers.GATED_NORMS, or ENCODER-EXPORTER-DTYPE for one of encoders.py. It goes to a folder of its own if it starts
with broken/ (then onnxruntime must fail to reproduce
a case other than the exporter's sample) or near/ (near misses). The exporters are
    dynamo   torch.onnx.export(dynamo=True); dynamo23 the same for opset 23
    ts       torch.onnx.export(dynamo=False): TorchScript
    hf       transformers' own OnnxExporter
Each export is run in onnxruntime, without optimizations, against the recorded outputs; one that fails is deleted and
the exit status is 1. The truth.json beside it gets the number of blocks that one forward pass executes.
"""

import argparse
import functools
import json
import pathlib
import re
import sys
import time
import traceback
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
import transformers

import architectures
import blocks
import cases
import encoders
import forms
import layers
import merge
import near
import values

MODELS = """
    llama-dynamo-fp32 llama-dynamo-bf16 llama-ts-fp32 llama-kv-dynamo-fp32
    qwen3-dynamo-fp32 qwen3-ts-fp16 gemma2-ts-fp32
    mixtral-batched_mm-ts-fp16 gptoss-batched_mm-dynamo-fp32 gptoss-batched_mm-dynamo-bf16
    qwen3moe-batched_mm-dynamo-bf16
    deepseek3-batched_mm-ts-fp32 deepseek3naive-kv-dynamo-fp32
    llama-dynamo23-fp32 llama-merged-ts-fp32
    moe-masks-dynamo-fp32 moe-where-ts-fp32 moe-gates-ts-fp16 moe-chosen-dynamo-bf16
    moe-switch-ts-fp32
    moe-flattened-ts-fp32 moe-einsum-dynamo-fp16 moe-repeated-dynamo-fp32 moe-gelu-ts-fp32
    moe-hits-ts-fp32
    moe-loop-ts-fp32 moe-if-ts-fp32 moe-mixtral-grouped_mm-hf-fp32
    bamba-dynamo-fp32
    gated-qwen3next-dynamo-fp16 gated-qwen3next-ts-fp16 gated-olmohybrid-hf-fp32 gated-mamba2-ts-fp16
    gated-zamba2-dynamo-fp16
    gated-zamba2-ts-fp32
    broken/moe-qwen3moe-eager-ts-fp32 broken/moe-deepseek3-eager-ts-fp32
    near/moe-capacity-ts-fp32 near/moe-before-ts-fp32 near/moe-different-ts-fp32 near/moe-scales-ts-fp32
    near/moe-absent-ts-fp32
    vit-dynamo-fp32 clip-ts-fp32 whisperencoder-dynamo-fp32 whisperdecoder-dynamo-fp32
""".split()
# Dynamo writes the positions in source files and the module into each node, as much text as the weights have bytes. One
# model keeps the module.
MODULES = ["llama-dynamo-fp32"]
UNREAD = tuple("pkg.torch.onnx." + key for key in ("class_hierarchy", "fx_node", "stack_trace"))

# The architecture to build instead of the one in the name, so that the files stay small.
SMALLER = {name: "llamasmall" for name in ("llama-dynamo-fp32", "llama-dynamo-bf16", "llama-dynamo23-fp32")}

# Their values' names, paths of modules as long as the rest, are numbers. The nodes keep theirs.
NUMBERED = [
    "bamba-dynamo-fp32",
    "broken/moe-deepseek3-eager-ts-fp32",
    "broken/moe-qwen3moe-eager-ts-fp32",
    "deepseek3-batched_mm-ts-fp32",
    "gated-mamba2-ts-fp16",
    "gated-qwen3next-ts-fp16",
    "gated-zamba2-ts-fp32",
    "gemma2-ts-fp32",
    "gptoss-batched_mm-dynamo-bf16",
    "gptoss-batched_mm-dynamo-fp32",
    "llama-merged-ts-fp32",
    "llama-ts-fp32",
    "mixtral-batched_mm-ts-fp16",
    "moe-flattened-ts-fp32",
    "moe-gates-ts-fp16",
    "moe-gelu-ts-fp32",
    "moe-if-ts-fp32",
    "moe-switch-ts-fp32",
    "moe-where-ts-fp32",
    "near/moe-absent-ts-fp32",
    "near/moe-before-ts-fp32",
    "near/moe-capacity-ts-fp32",
    "near/moe-different-ts-fp32",
    "near/moe-scales-ts-fp32",
    "qwen3-ts-fp16",
    "qwen3moe-batched_mm-dynamo-bf16",
]

# Largest difference to PyTorch that an export may show, as a fraction of the largest magnitude in the output. An export
# in half precision adds up in another order than PyTorch does.
LIMIT = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}
TORCHSCRIPT_OPSET = 17
LAYERS = "moe", "gated"


def parse(name):
    """Splits a model's name into architecture, "kv" or "merged", experts' implementation, exporter and dtype; a layer's
    into "moe" or "gated", form, None, exporter and dtype."""
    architecture, *middle, exporter, dtype = name.split("-")
    if architecture in LAYERS and exporter in EXPORTERS and dtype in architectures.DTYPES:
        return architecture, "-".join(middle), None, exporter, dtype
    if (
        architecture not in architectures.ARCHITECTURES
        and architecture not in encoders.ENCODERS
        or exporter not in EXPORTERS
        or dtype not in architectures.DTYPES
    ):
        sys.exit(f"export.py: no such model: {name} (see --help)")
    form = next((m for m in middle if m in CALLS), "")
    experts = [m for m in middle if m != form]
    return architecture, form, experts[0] if experts else None, exporter, dtype


def axes(name, cached):
    """Which axes of an input or output are dynamic, by their names."""
    if cached in encoders.ENCODERS:
        return {0: "batch", **encoders.ENCODERS[cached].axes.get(name, {})}
    if name.startswith("past"):
        return {0: "batch", 2: "past"}
    if name.startswith("present"):
        return {0: "batch", 2: "total"}
    if name == "attention_mask" and cached:
        return {0: "batch", 1: "total"}
    if name == "use_cache_branch":
        return {}
    return {0: "batch", 1: "sequence"}


def with_dynamo(module, sample, names, cached, path, opset=None):
    dynamic = {k: {axis: torch.export.Dim.AUTO for axis in axes(k, cached)} for k in sample}
    if not cached:
        batch, sequence = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("sequence", min=2, max=128)
        dynamic = {k: {0: batch, 1: sequence} for k in sample}
    program = torch.onnx.export(
        module,
        tuple(sample.values()),
        dynamo=True,
        input_names=list(sample),
        output_names=names,
        dynamic_shapes=dynamic,
        opset_version=opset,
        external_data=False,
        verbose=False,
    )
    program.save(str(path), external_data=False)


def with_torchscript(module, sample, names, cached, path):
    torch.onnx.export(
        module,
        tuple(sample.values()),
        str(path),
        dynamo=False,
        input_names=list(sample),
        output_names=names,
        dynamic_axes={k: axes(k, cached) for k in [*sample, *names]},
        opset_version=TORCHSCRIPT_OPSET,
    )


def merged(module, sample, names, path):
    """Exports the decoder with and without a past, and puts an If around both."""
    first, decode = path.with_suffix(".first"), path.with_suffix(".decode")
    past = {k: v for k, v in sample.items() if k != "use_cache_branch"}
    prompt = {k: v for k, v in cases.inputs(False, None)[0].items() if k in sample}
    try:
        with_torchscript(cases.First(module.model).eval(), prompt, names, False, first)
        with_torchscript(cases.Decode(module.model).eval(), past, names, True, decode)
        onnx.save(merge.merge(onnx.load(first), onnx.load(decode)), path)
    finally:
        first.unlink(missing_ok=True)
        decode.unlink(missing_ok=True)


def with_transformers(module, sample, names, cached, path):
    import onnx_ir
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    if cached:
        raise ValueError("the hf exporter has no form with a cache here")
    exported = OnnxExporter().export(getattr(module, "model", module), sample, config=OnnxConfig(dynamic=True))
    for value, name in zip(exported.program.graph.outputs, names):  # a module that returns a tensor has no name for it
        value.name = name
    onnx_ir.save(exported.program, path)


EXPORTERS = {
    "dynamo": with_dynamo,
    "dynamo23": functools.partial(with_dynamo, opset=23),
    "ts": with_torchscript,
    "hf": with_transformers,
}
CALLS = {"": cases.Prefill, "kv": cases.Decode, "merged": cases.Merged}


def shorten_paths(path, keep):
    """Leaves of dynamo's metadata nothing, or all but UNREAD, without folders."""
    model = onnx.load(path)
    here = str(pathlib.Path(__file__).resolve().parent)

    def shorten(text):
        text = text.replace(here, "models/export")
        return re.sub(r'/[^"\s]*/(site-packages|lib/python[0-9.]+)/', r"\1/", text)

    for graph in [model.graph, *model.functions]:
        for item in [graph, *graph.node, *graph.value_info]:
            if not keep:
                del item.metadata_props[:]
            for entry in list(item.metadata_props):
                if entry.key in UNREAD:
                    item.metadata_props.remove(entry)
                entry.value = shorten(entry.value)
    onnx.save(model, path)


def difference(path, golden, only=None):
    """The largest difference to the recorded outputs, over their largest magnitude, of all cases or the one given."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    data = np.load(golden)
    known = [i.name for i in session.get_inputs()]
    worst = 0.0
    for i in range(int(data["n"])) if only is None else [only]:
        feeds = {k: data[f"{i}.in.{k}"] for k in known}
        for info, got in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            want = data[f"{i}.out.{info.name}"].astype(np.float64)
            if got.shape != want.shape:
                raise ValueError(f"{info.name}: shape {got.shape}, PyTorch gives {want.shape}")
            worst = max(worst, float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()))
    return worst


def check(path, golden, exporter, dtype, broken):
    """Runs the export. Returns the largest difference, or None if onnxruntime's CPU lacks kernels for the type."""
    if dtype == "bf16":
        return None
    if broken:
        try:
            whole = difference(path, golden) <= LIMIT[dtype]
        except Exception:  # onnxruntime's have no common class
            whole = False
        if whole:
            raise ValueError("it is not broken: onnxruntime reproduces every case")
        return difference(path, golden, only=0)
    # onnxruntime's RotaryEmbedding of opset 23 refuses tables that would have to be broadcast over the batch.
    return difference(path, golden, only=1 if exporter == "dynamo23" else None)


def layer(architecture, form, dtype):
    """A layer: module, shapes of its inputs, and the truth if a forward pass does not tell it."""
    shapes, truth = cases.LAYER, {}
    if architecture == "gated":
        block = layers.GATED_NORMS[form]()
    elif form in near.NEAR:
        make, truth = near.NEAR[form]
        block = make()
        shapes = getattr(block, "shapes", shapes)
    elif form in forms.FORMS:
        block = forms.FORMS[form]()
    else:
        block = architectures.block(*form.split("-"), layers.HIDDEN, layers.INTERMEDIATE)
    module = layers.Layer(block)
    architectures.randomise(module, seed=20261121)
    return module.to(architectures.DTYPES[dtype]).eval(), shapes, truth


def export(name, out):
    """Exports one model into out and returns its entry for truth.json."""
    architecture, form, experts, exporter, dtype = parse(pathlib.PurePath(name).name)
    cached, truth = form != "", {}
    if architecture in LAYERS:
        module, shapes, truth = layer(architecture, form, dtype)
        samples, names, cached = cases.layer_inputs(shapes, architectures.DTYPES[dtype]), ["y"], False
    elif architecture in encoders.ENCODERS:
        module, samples = encoders.make(architecture, architectures.DTYPES[dtype])
        names, cached = encoders.ENCODERS[architecture].outputs, architecture
    else:
        built = architectures.build(SMALLER.get(name, architecture), dtype, experts)
        module = CALLS[form](built).eval()
        if form == "kv" and architecture in architectures.LATENT:
            samples = cases.conversations(module)
        elif experts and dtype == "bf16":
            samples = cases.clear_prompts(module)
        else:
            samples = cases.inputs(cached, architectures.DTYPES[dtype], merged=form == "merged")
        names = cases.output_names(cached)
    path, golden = out / f"{name}.onnx", out / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        cases.record(golden, module, samples, names)
        counted = blocks.count(module, samples[0]) | truth
        if architecture in encoders.ENCODERS:
            counted["layernorm"] = 0  # they stay one op
        if form == "merged":  # the file holds both branches
            other = blocks.count(module, samples[1])
            counted = {kind: n + other[kind] for kind, n in counted.items()}
            merged(module, samples[0], names, path)
        else:
            EXPORTERS[exporter](module, cases.sample(samples), names, cached, path)
        shorten_paths(path, keep=name in MODULES)
        if architecture in encoders.ENCODERS or name in NUMBERED:
            small = onnx.load(path)
            (values.number if name in NUMBERED else encoders.shorten)(small)
            onnx.save(small, path)
        worst = check(path, golden, exporter, dtype, broken=name.startswith("broken/"))
        if worst is not None and not worst <= LIMIT[dtype]:
            raise ValueError(f"differs from PyTorch by {worst:.2g} of the largest output, allowed {LIMIT[dtype]:g}")
        written = onnx.load(path, load_external_data=False)
    except BaseException:
        path.unlink(missing_ok=True)
        golden.unlink(missing_ok=True)
        raise
    entry = dict(
        architecture=architecture,
        exporter=exporter,
        dtype=dtype,
        cache=cached is True,
        experts=form if architecture in LAYERS else experts,
    )
    entry["opset"] = next(o.version for o in written.opset_import if o.domain == "")
    entry["nodes"] = len(written.graph.node)
    entry["difference"] = None if worst is None else float(f"{worst:.2g}")
    entry["blocks"] = counted
    if architecture in encoders.ENCODERS:
        entry["attention"] = encoders.ENCODERS[architecture].attention
    return entry


class Truth:
    """The truth.json of a folder, written after each model."""

    def __init__(self, folder):
        self.path = folder / "truth.json"
        self.data = json.loads(self.path.read_text()) if self.path.exists() else {"schema": 1, "models": {}}

    def add(self, name, entry):
        self.data["models"] = dict(sorted({**self.data["models"], name: entry}.items()))
        versions = {
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "onnx": onnx.__version__,
        }
        self.data["made_with"] = versions
        models = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in self.data["models"].items()]
        text = json.dumps({**self.data, "models": {}})  # a line for each model
        self.path.write_text(text.replace('"models": {}', '"models": {\n' + ",\n".join(models) + "\n}") + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("--list", action="store_true", help="print the names of the models and stop")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if options.list:
        print("\n".join(MODELS))
        return 0
    if not options.out:
        parser.error("--out DIR is missing")
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    failed = 0
    for name in options.names or MODELS:
        start = time.monotonic()
        try:
            entry = export(name, options.out)
            path = options.out / name
            Truth(path.parent).add(path.name, entry)
            print(f"{name}: {time.monotonic() - start:.1f} s, {entry}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"{name}: FAILED", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
