"""optimum's export writes a folder: its models are patched into another one, which optimum loads as the first.

usage: optimum_export.py EXPORTED PATCHED        (pip install optimum-onnx[onnxruntime] mojo-patch)
"""

import sys

import mojo_patch
import onnxruntime
import torch
from optimum.exporters.onnx import onnx_export_from_model
from optimum.onnxruntime import ORTModelForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM

exported, patched = sys.argv[1:]
# A small model with random weights. A real one: optimum-cli export onnx --model HuggingFaceTB/SmolLM2-135M exported
config = LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=160)
model = LlamaForCausalLM(config).eval()
onnx_export_from_model(model, exported, task="text-generation-with-past", do_validation=False)

reports = mojo_patch.apply_folder(exported, patched)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(mojo_patch.get_library_path())
fast = ORTModelForCausalLM.from_pretrained(patched, session_options=options)
torch.set_grad_enabled(False)
ids = torch.arange(14).reshape(2, 7)
difference = float((fast(input_ids=ids, attention_mask=torch.ones_like(ids)).logits - model(ids).logits).abs().max())
tokens = [m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False, eos_token_id=None)
          for m in (fast, model)]
if not torch.equal(*tokens):
    sys.exit(f"generates {tokens[0]}, and PyTorch {tokens[1]}")
print(f"{sum(r.fused for r in reports.values())} sites fused, largest difference from PyTorch {difference:.1g}")
