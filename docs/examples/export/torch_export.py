"""torch.onnx.export: what it returns is patched without a file in between.

usage: torch_export.py OUT.onnx        (pip install torch transformers onnx onnxscript mojo-patch onnxruntime)
"""

import sys

import mojo_patch
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

# A small model with random weights. A real one: Qwen3ForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
config = Qwen3Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, vocab_size=160, use_cache=False)
model = Qwen3ForCausalLM(config).eval()
torch.set_grad_enabled(False)
ids = torch.arange(14).reshape(2, 7)
sizes = {"batch": torch.export.Dim("batch"), "sequence": torch.export.Dim("sequence")}
program = torch.onnx.export(model, (ids,), input_names=["input_ids"], output_names=["logits"], dynamo=True,
                            dynamic_shapes=({0: sizes["batch"], 1: sizes["sequence"]},))

report = mojo_patch.apply(program, sys.argv[1])
session = mojo_patch.session(sys.argv[1])
[logits] = session.run(None, {"input_ids": ids.numpy()})
difference = float((torch.from_numpy(logits) - model(ids).logits).abs().max())
print(f"{report.fused} sites fused, largest difference from PyTorch {difference:.1g}")
