"""The exporter of transformers: the model that it gives is patched in memory.

usage: transformers_export.py OUT.onnx        (pip install torch transformers onnx onnxscript mojo-patch onnxruntime)
"""

import sys

import mojo_patch
import onnx
import onnx_ir
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

# A small model with random weights. A real one: LlamaForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M")
config = LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=160, use_cache=False)
model = LlamaForCausalLM(config).eval()
torch.set_grad_enabled(False)
ids = torch.arange(14).reshape(2, 7)
exported = OnnxExporter().export(model, {"input_ids": ids}, config=OnnxConfig(dynamic=True))

patched, report = mojo_patch.apply_model(onnx_ir.to_proto(exported.program))
onnx.save(patched, sys.argv[1])
session = mojo_patch.session(patched)
logits = session.run(None, {"input_ids": ids.numpy()})[0]
difference = float((torch.from_numpy(logits) - model(ids).logits).abs().max())
print(f"{report.fused} sites fused, largest difference from PyTorch {difference:.1g}")
