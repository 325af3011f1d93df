#!/usr/bin/env python3
"""Makes what package generate is tested with: tiny decoders in several forms, and the greedy tokens that transformers'
generate() gives.

    generation.py --out ../../llm/generate/testdata

Weights are random, from a seed. greedy.json has for each model its prompts, the tokens generated from each alone, from
all together with padding on the left, and how far the greatest logit was above the next one at each step. The models of
the parent folder named in BUNDLED are recorded too.
"""

import argparse
import json
import pathlib

import onnx
import torch
import transformers
from transformers import DynamicCache

import architectures
from export import shorten_paths

PROMPTS = [[5, 17, 42], [9, 3, 77, 120, 8, 31, 64], [101]]
TOKENS = 12
COMMON = dict(vocab_size=160, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA = transformers.LlamaConfig(
    hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=4,
    max_position_embeddings=64, tie_word_embeddings=True, **COMMON)  # fmt: skip
GPT2 = transformers.GPT2Config(n_embd=16, n_inner=24, n_layer=2, n_head=2, n_positions=32, **COMMON)
# a layer of Mamba-2 with its states, then one of attention with its cache
HYBRID = transformers.BambaConfig(
    hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=8, mamba_d_state=4, mamba_n_groups=1, mamba_chunk_size=8,
    max_position_embeddings=64, **COMMON | dict(vocab_size=128))  # fmt: skip
BUNDLED = {"llama": ["llama-kv-dynamo-fp32", "llama-merged-ts-fp32", "llama-ts-fp32"]}

# name: configuration, dtype, whether positions are an input, names of pasts and presents (layer, "key" or "value")
FORMS = {
    "positions-fp32": (LLAMA, torch.float32, True, "past_key_values.{0}.{1}", "present.{0}.{1}"),
    "cache-fp16": (
        LLAMA,
        torch.float16,
        False,
        "input.past_key_values.layers.{0}.{1}s",
        "output.past_key_values.layers.{0}.{1}s",
    ),
    "absolute-fp16": (GPT2, torch.float16, False, "past_{1}_{0}", "present_{1}_{0}"),
}


class Decode(torch.nn.Module):
    """logits of the next tokens, and keys and values of all."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, past):
        cache = DynamicCache(config=self.model.config)
        for layer, (key, value) in enumerate(past):
            cache.update(key, value, layer)
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return (out.logits, *[t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)])


class Positions(Decode):
    def forward(self, input_ids, attention_mask, position_ids, k0, v0, k1, v1):
        return super().forward(input_ids, attention_mask, position_ids, [(k0, v0), (k1, v1)])


class NoPositions(Decode):
    def forward(self, input_ids, attention_mask, k0, v0, k1, v1):
        return super().forward(input_ids, attention_mask, None, [(k0, v0), (k1, v1)])


class States(torch.nn.Module):
    """One token of the hybrid: its logits, the states after it, and keys and values of all tokens."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, conv, recurrent, key, value):
        cache = DynamicCache(config=self.model.config)
        mixer, attention = cache.layers
        mixer.lazy_initialization(conv, recurrent)
        mixer.conv_states[0], mixer.recurrent_states[0] = conv.clone(), recurrent.clone()
        mixer.has_previous_state[0] = True
        attention.update(key, value)
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return out.logits, mixer.conv_states[0], mixer.recurrent_states[0], attention.keys, attention.values


def build(config, dtype):
    kind = {
        "llama": transformers.LlamaForCausalLM,
        "gpt2": transformers.GPT2LMHeadModel,
        "bamba": transformers.BambaForCausalLM,
    }[config.model_type]
    config._attn_implementation = "eager"
    model = kind(config)
    architectures.randomise(model, seed=20261122)
    return model.to(dtype).eval()


def export(name, out):
    config, dtype, positions, past, present = FORMS[name]
    model = build(config, dtype)
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    width = config.hidden_size // config.num_attention_heads
    batch, fresh, seen = 2, 3, 5
    sample = dict(
        input_ids=torch.randint(3, 160, (batch, fresh)),
        attention_mask=torch.ones(batch, seen + fresh, dtype=torch.long),
    )
    if positions:
        sample["position_ids"] = torch.arange(seen, seen + fresh).expand(batch, -1).contiguous()
    for layer in range(2):
        for part in ("key", "value"):
            sample[past.format(layer, part)] = torch.randn(batch, heads, seen, width).to(dtype)
    names = ["logits"] + [present.format(layer, part) for layer in range(2) for part in ("key", "value")]
    dims = {n: {0: "batch", 1: "sequence"} for n in ("input_ids", "position_ids")}
    dims["attention_mask"] = {0: "batch", 1: "total"}
    shapes = [{axis: torch.export.Dim.AUTO for axis in dims.get(k, {0: "batch", 2: "past"})} for k in sample]
    module = (Positions if positions else NoPositions)(model).eval()
    return write(module, sample, names, shapes, out / f"{name}.onnx")


def export_hybrid(path):
    """One token per run, as a decoding step of transformers' Mamba-2 takes."""
    model = build(HYBRID, torch.float32)
    batch, seen, auto = 2, 5, torch.export.Dim.AUTO
    mixer = model.model.layers[0].mamba
    sample = dict(
        input_ids=torch.randint(3, HYBRID.vocab_size, (batch, 1)),
        attention_mask=torch.ones(batch, seen + 1, dtype=torch.long),
        position_ids=torch.full((batch, 1), seen),
        past_conv_0=torch.randn(batch, mixer.conv_dim, mixer.conv_kernel_size),
        past_recurrent_0=torch.randn(batch, mixer.num_heads, mixer.head_dim, mixer.ssm_state_size),
    )
    for part in ("key", "value"):
        sample[f"past_{part}_1"] = torch.randn(batch, 1, seen, HYBRID.hidden_size // HYBRID.num_attention_heads)
    names = ["logits"] + [k.replace("past", "present") for k in sample if k.startswith("past")]
    axes = {"attention_mask": {1: auto}, "past_key_1": {2: auto}, "past_value_1": {2: auto}}
    shapes = [{0: auto} | axes.get(k, {}) for k in sample]
    return write(States(model).eval(), sample, names, shapes, path)


def write(module, sample, names, shapes, path):
    """Writes the export, and returns the tokens of the module's model."""
    program = torch.onnx.export(
        module, tuple(sample.values()), dynamo=True, input_names=list(sample), output_names=names,
        dynamic_shapes=tuple(shapes),
        external_data=False, verbose=False)  # fmt: skip
    program.save(str(path), external_data=False)
    shorten_paths(path, keep=False)
    small = onnx.load(path)
    del small.graph.value_info[:]
    for node in small.graph.node:
        node.name = ""
    onnx.save(small, path)
    return record(module.model)


@torch.no_grad()
def record(model):
    """Greedy tokens by generate(), alone and together."""
    alone, gaps = [], []
    settings = dict(max_new_tokens=TOKENS, min_new_tokens=0, do_sample=False, eos_token_id=None, pad_token_id=0)
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), output_logits=True, return_dict_in_generate=True, **settings
        )
        alone.append(out.sequences[0, len(prompt) :].tolist())
        best = [step[0].float().topk(2).values for step in out.logits]
        gaps.append([round(float(b[0] - b[1]), 6) for b in best])
    longest = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in PROMPTS])
    together = model.generate(ids, attention_mask=mask, **settings)[:, longest:].tolist()
    return dict(prompts=PROMPTS, greedy=alone, together=together, gaps=gaps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    recorded = {name: export(name, out) for name in FORMS}
    recorded["hybrid-fp32"] = export_hybrid(out / "hybrid-fp32.onnx")
    for architecture, names in BUNDLED.items():
        model = architectures.build(architecture, "fp32")
        entry = record(model.eval())
        recorded.update({name: entry for name in names})
    (out / "greedy.json").write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
