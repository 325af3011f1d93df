#!/usr/bin/env python3
"""Exports decoder layers of a released model's width, with a cache, as PyTorch's exporter writes them, but without
their weights.

    export.py OUT.onnx [--model qwen3-30b|gpt-oss-20b|qwen3-next] [--dtype float16|bfloat16|float32]
        [--experts batched_mm|grouped_mm] [--count EXPERTS]

They are transformers' Qwen3MoeModel of one layer, GptOssModel of four, or Qwen3NextModel of three gated delta nets and
one attention, which decodes one token (the final norm is part of each). They read hidden states instead of words.
OUT.onnx names OUT.onnx.data for its weights: weights.py makes that file, on the
machine that runs the model.
"""

import argparse
import os
import pathlib
import tempfile
import warnings

import onnx
import onnx_ir
import torch
import transformers
from transformers.models.gpt_oss import configuration_gpt_oss, modeling_gpt_oss
from transformers.models.qwen3_moe import configuration_qwen3_moe, modeling_qwen3_moe
from transformers.models.qwen3_next import configuration_qwen3_next, modeling_qwen3_next

QWEN3_30B = configuration_qwen3_moe.Qwen3MoeConfig(
    hidden_size=2048,
    num_hidden_layers=1,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    intermediate_size=6144,
    moe_intermediate_size=768,
    num_experts=128,
    num_experts_per_tok=8,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    rms_norm_eps=1e-6,
    rope_parameters=dict(rope_type="default", rope_theta=1e6),
    max_position_embeddings=40960,
    vocab_size=16,
)
# Every second layer has a window of 128 keys.
GPT_OSS_20B = configuration_gpt_oss.GptOssConfig(num_hidden_layers=4, num_local_experts=32, vocab_size=16)
# Qwen3-Next-80B-A3B has twelve times these layers.
QWEN3_NEXT = configuration_qwen3_next.Qwen3NextConfig(num_hidden_layers=4, vocab_size=16)
MODELS = {
    "qwen3-30b": (QWEN3_30B, modeling_qwen3_moe.Qwen3MoeModel, modeling_qwen3_moe.Qwen3MoeRotaryEmbedding),
    "gpt-oss-20b": (GPT_OSS_20B, modeling_gpt_oss.GptOssModel, modeling_gpt_oss.GptOssRotaryEmbedding),
    "qwen3-next": (QWEN3_NEXT, modeling_qwen3_next.Qwen3NextModel, modeling_qwen3_next.Qwen3NextRotaryEmbedding),
}
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def parts(config, layer):
    """The parts of a layer's cache."""
    delta = getattr(config, "layer_types", None) and config.layer_types[layer] == "linear_attention"
    return ("conv", "state") if delta else ("key", "value")


def names(config):
    """The names of the inputs, with their dynamic axes, and of the outputs."""
    if config.model_type == "qwen3_next":
        cache = [f"{part}_{i}" for i in range(config.num_hidden_layers) for part in parts(config, i)]
        axes = {"hidden_states": [0], "attention_mask": [0, 1]}
        axes |= {f"past_{name}": [0, 2] if name[0] in "kv" else [0] for name in cache}
        return axes, ["hidden"] + [f"present_{name}" for name in cache]
    caches = [""] if config.num_hidden_layers == 1 else [f"_{i}" for i in range(config.num_hidden_layers)]
    axes = {"hidden_states": [0, 1], "attention_mask": [0, 1]}
    axes |= {f"past_{part}{i}": [0, 2] for i in caches for part in ("key", "value")}
    return axes, ["hidden"] + [f"present_{part}{i}" for i in caches for part in ("key", "value")]


class Layers(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, hidden_states, attention_mask, *past):
        cache = transformers.DynamicCache()  # without windows: the mask has them
        for i in range(0, len(past), 2):
            cache.update(past[i], past[i + 1], i // 2)
        out = self.model(
            inputs_embeds=hidden_states, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )
        caches = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return out.last_hidden_state, *caches


class Hybrid(Layers):
    """Layers whose caches are keys and values, or the tokens of a convolution and the state of a delta rule."""

    def forward(self, hidden_states, attention_mask, *past):
        cache = transformers.DynamicCache(config=self.model.config)
        for i, layer in enumerate(cache.layers):
            if parts(self.model.config, i)[0] == "key":
                cache.update(past[2 * i], past[2 * i + 1], i)
                continue
            layer.lazy_initialization(conv_states=past[2 * i], recurrent_states=past[2 * i + 1])
            layer.conv_states[0], layer.recurrent_states[0] = past[2 * i].clone(), past[2 * i + 1].clone()
            layer.has_previous_state[0] = True
        out = self.model(
            inputs_embeds=hidden_states, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )
        pairs = [
            (layer.keys, layer.values) if hasattr(layer, "keys") else (layer.conv_states[0], layer.recurrent_states[0])
            for layer in cache.layers
        ]
        return out.last_hidden_state.float(), *(t for pair in pairs for t in pair)


def sample_of(config, axes, dtype):
    """Inputs for the exporter."""
    past = torch.zeros(2, config.num_key_value_heads, 5, config.head_dim, dtype=dtype)
    if config.model_type != "qwen3_next":
        first = [torch.zeros(2, 3, config.hidden_size, dtype=dtype), torch.ones(2, 8, dtype=torch.long)]
        return dict(zip(axes, [*first, *(past.clone() for _ in list(axes)[2:])]))
    key, value = config.linear_key_head_dim, config.linear_value_head_dim
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    shapes = {"conv": (2 * keys * key + values * value, config.linear_conv_kernel_dim), "state": (values, key, value)}
    sample = dict(hidden_states=torch.zeros(2, 1, config.hidden_size, dtype=dtype))
    sample["attention_mask"] = torch.ones(2, 6).long()
    for name in list(axes)[2:]:
        part = name.split("_")[1]
        wide = torch.float32 if part == "state" else dtype
        sample[name] = torch.zeros(2, *shapes[part], dtype=wide) if part in shapes else past.clone()
    return sample


def build(name, dtype, experts, count):
    config, model_of, rotary_of = MODELS[name]
    if count:
        config.num_experts = count
    config._attn_implementation = "eager" if name == "gpt-oss-20b" else "sdpa"  # which has no sinks
    torch.set_default_dtype(dtype)
    with torch.device("meta"):  # its weights are never read
        model = model_of(config)
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        torch.manual_seed(1)
        for i, (path, p) in enumerate(list(model.named_parameters())):
            # Matrices are left to weights.py; the exporter would make one of two that are equal. They take no memory.
            value = torch.full((), 0.01 * (i + 1), dtype=p.dtype).expand(p.shape)
            if p.dim() == 1:
                value = (1 + 0.1 * torch.randn(p.shape)).to(p.dtype)
            module, _, last = path.rpartition(".")
            setattr(model.get_submodule(module), last, torch.nn.Parameter(value, requires_grad=False))
    model.rotary_emb = rotary_of(config)  # its frequencies are not weights
    model.set_experts_implementation(experts)
    return (Hybrid if name == "qwen3-next" else Layers)(model).eval(), config


def with_torch(layer, sample, axes, outputs):
    auto = torch.export.Dim.AUTO
    dynamic = tuple({axis: auto for axis in axes[name]} for name in sample)
    dynamic = (*dynamic[:2], dynamic[2:])
    program = torch.onnx.export(
        layer,
        tuple(sample.values()),
        dynamo=True,
        input_names=list(sample),
        output_names=outputs,
        dynamic_shapes=dynamic,
        verbose=False,
    )
    return program.model


def with_transformers(layer, sample, axes, outputs):
    """torch.onnx has no form of grouped_mm: transformers brings one."""
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model = OnnxExporter().export(layer, sample, config=OnnxConfig(dynamic=True)).program
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name
    for value in model.graph.inputs:  # every dimension is dynamic here, also the layer's
        value.shape = onnx_ir.Shape(
            [d if axis in axes[value.name] else sample[value.name].shape[axis] for axis, d in enumerate(value.shape)]
        )
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--model", choices=MODELS, default="qwen3-30b")
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument("--experts", choices=["batched_mm", "grouped_mm"], default="batched_mm")
    parser.add_argument("--count", type=int, help="experts of a layer of qwen3-next or qwen3-30b")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    dtype = DTYPES[args.dtype]
    layer, config = build(args.model, dtype, args.experts, args.count)
    axes, outputs = names(config)
    sample = sample_of(config, axes, dtype)
    export = with_torch if args.experts == "batched_mm" else with_transformers
    program = export(layer, sample, axes, outputs)
    with tempfile.TemporaryDirectory(dir=args.out.parent) as folder:
        path = pathlib.Path(folder, args.out.name)
        onnx_ir.save(program, path, external_data=args.out.name + ".data", size_threshold_bytes=1 << 16)  # matrices
        model = onnx.load(path, load_external_data=False)
    for graph in [model.graph, *model.functions]:
        for item in [graph, *graph.node, *graph.value_info]:
            del item.metadata_props[:]
    onnx.save(model, args.out)
    print(f"{args.out}: {len(model.graph.node)} nodes, {os.path.getsize(args.out)} bytes")


if __name__ == "__main__":
    main()
