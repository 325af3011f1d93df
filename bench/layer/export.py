#!/usr/bin/env python3
"""Exports one decoder layer of Qwen3-30B-A3B's width, with a cache, as PyTorch's exporter writes it, but without its
weights.

    export.py OUT.onnx [--dtype float16|bfloat16] [--experts batched_mm|grouped_mm]

The layer is transformers' Qwen3MoeModel of one layer (its final norm is part of it), which reads hidden states in place
of words. OUT.onnx names OUT.onnx.data for its weights: weights.py makes that file, on the machine that runs the model.
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
from transformers.models.qwen3_moe import configuration_qwen3_moe, modeling_qwen3_moe

CONFIG = dict(
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
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
AXES = {"hidden_states": [0, 1], "attention_mask": [0, 1], "past_key": [0, 2], "past_value": [0, 2]}
INPUTS = list(AXES)
OUTPUTS = ["hidden", "present_key", "present_value"]


class Layer(torch.nn.Module):
    def __init__(self, model, config):
        super().__init__()
        self.model, self.config = model, config

    def forward(self, hidden_states, attention_mask, past_key, past_value):
        cache = transformers.DynamicCache(config=self.config)
        cache.update(past_key, past_value, 0)
        out = self.model(
            inputs_embeds=hidden_states, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )
        layer = out.past_key_values.layers[0]
        return out.last_hidden_state, layer.keys, layer.values


def build(dtype, experts):
    config = configuration_qwen3_moe.Qwen3MoeConfig(**CONFIG)
    torch.set_default_dtype(dtype)
    with torch.device("meta"):  # its weights are never read
        model = modeling_qwen3_moe.Qwen3MoeModel(config)
    torch.set_default_dtype(torch.float32)
    model = model.to_empty(device="cpu").eval()
    with torch.no_grad():
        torch.manual_seed(1)
        for i, p in enumerate(model.parameters()):
            # Matrices are left to weights.py; the exporter would make one of two that are equal.
            p.copy_(1 + 0.1 * torch.randn(p.shape)) if p.dim() == 1 else p.fill_(0.01 * (i + 1))
        # to_empty left the frequencies of the rotation without values, which are no weights
        model.rotary_emb = modeling_qwen3_moe.Qwen3MoeRotaryEmbedding(config)
    model.set_experts_implementation(experts)
    return Layer(model, config).eval(), config


def with_torch(layer, sample):
    auto = torch.export.Dim.AUTO
    dynamic = tuple({axis: auto for axis in AXES[name]} for name in sample)
    program = torch.onnx.export(
        layer,
        tuple(sample.values()),
        dynamo=True,
        input_names=INPUTS,
        output_names=OUTPUTS,
        dynamic_shapes=dynamic,
        verbose=False,
    )
    return program.model


def with_transformers(layer, sample):
    """torch.onnx has no form of grouped_mm: transformers brings one."""
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model = OnnxExporter().export(layer, sample, config=OnnxConfig(dynamic=True)).program
    for value, name in zip(model.graph.outputs, OUTPUTS, strict=True):
        value.name = name
    for value in model.graph.inputs:  # every dimension is dynamic here, those of the layer itself too
        value.shape = onnx_ir.Shape(
            [d if axis in AXES[value.name] else sample[value.name].shape[axis] for axis, d in enumerate(value.shape)]
        )
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument("--experts", choices=["batched_mm", "grouped_mm"], default="batched_mm")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    dtype = DTYPES[args.dtype]
    layer, config = build(dtype, args.experts)
    past = torch.zeros(2, config.num_key_value_heads, 5, config.head_dim, dtype=dtype)
    sample = (
        torch.zeros(2, 3, config.hidden_size, dtype=dtype),
        torch.ones(2, 8, dtype=torch.long),
        past,
        past.clone(),
    )
    sample = dict(zip(INPUTS, sample))
    program = (with_torch if args.experts == "batched_mm" else with_transformers)(layer, sample)
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
