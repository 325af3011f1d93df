#!/usr/bin/env python3
"""Writes the weights of a GGUF file as a checkpoint of Hugging Face, in float32:  checkpoint.py FILE.gguf FOLDER

onnxruntime-genai's model builder reads it. The files beside the weights are those of models/smollm2. Needs torch,
transformers, gguf, accelerate and safetensors.
"""

import gzip
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "smollm2"

gguf, folder = (pathlib.Path(p) for p in sys.argv[1:])
folder.mkdir(parents=True, exist_ok=True)
model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
tensors = {name: t.detach().clone() for name, t in model.state_dict().items() if name != "lm_head.weight"}  # tied
save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
for name in ("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"):
    shutil.copy(MODEL / name, folder)
(folder / "tokenizer.json").write_bytes(gzip.decompress((MODEL / "tokenizer.json.gz").read_bytes()))
