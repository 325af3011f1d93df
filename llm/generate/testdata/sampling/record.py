"""Records what transformers' logits processors leave of random logits: python record.py |
gzip -9n >cases.json.gz.

Needs torch and transformers (made with 2.15.0 and 5.23.0). The frequency and presence penalties, which transformers
lacks, are computed by PyTorch as the OpenAI API defines them.
"""
import json

import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def left(logits, prompt, generated, o):
    scores = logits.clone()[None]
    ids = torch.tensor([prompt + generated], dtype=torch.int64)
    if "repetition_penalty" in o:
        scores = RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(ids, scores)
    counts = torch.bincount(torch.tensor(generated, dtype=torch.int64), minlength=logits.numel())[: logits.numel()]
    scores = scores - o.get("frequency_penalty", 0.0) * counts
    scores = scores - o.get("presence_penalty", 0.0) * (counts > 0)
    if o["temperature"] == 0:
        return scores, None
    for name, warper in (("temperature", TemperatureLogitsWarper), ("top_k", TopKLogitsWarper),
                         ("top_p", TopPLogitsWarper), ("min_p", MinPLogitsWarper)):
        if name in o:
            scores = warper(o[name])(ids, scores)
    return scores, torch.softmax(scores, -1)


torch.manual_seed(20)
normal = (torch.randn(60) * 3).round(decimals=2)
peaked = (torch.randn(100) * 8).round(decimals=2)
ties = torch.randint(-3, 4, (50,)).float()
some_inf = torch.where(torch.rand(40) < 0.5, torch.tensor(float("-inf")), (torch.randn(40) * 2).round(decimals=2))
logits = {"normal": normal, "peaked": peaked, "ties": ties, "some_inf": some_inf}
prompt, generated = [3, 5, 5, 17, 31, 39, 5000], [5, 8, 8, 8, 21, 39]
options = [
    dict(temperature=1.0), dict(temperature=0.7), dict(temperature=1.0, top_k=1), dict(temperature=1.0, top_k=7),
    dict(temperature=1.3, top_k=1000), dict(temperature=1.0, top_p=0.05), dict(temperature=0.8, top_p=0.9),
    dict(temperature=2.0, top_p=0.999), dict(temperature=1.0, min_p=0.05), dict(temperature=1.0, min_p=1.0),
    dict(temperature=0.6, top_k=20, top_p=0.95, min_p=0.02),
    dict(temperature=1.0, repetition_penalty=1.3), dict(temperature=1.0, repetition_penalty=0.8, top_k=9),
    dict(temperature=1.0, frequency_penalty=0.5), dict(temperature=1.0, presence_penalty=1.5),
    dict(temperature=0.9, repetition_penalty=1.1, frequency_penalty=-0.4, presence_penalty=0.7, top_k=30, top_p=0.8,
         min_p=0.01),
    dict(temperature=0), dict(temperature=0, repetition_penalty=1.9), dict(temperature=0, presence_penalty=2.0),
]
cases = []
for name, values in logits.items():
    for o in options:
        if name == "ties" and "top_p" in o:
            continue  # which of equal ones PyTorch's sort puts first is not defined
        scores, probs = left(values, prompt, generated, o)
        case = {"logits": name, "options": o}
        if probs is None:
            case["greedy"] = int(scores.argmax())
        else:
            case["ids"] = [int(i) for i in torch.nonzero(probs[0] > 0).flatten()]
            case["probs"] = [round(float(p), 7) for p in probs[0][case["ids"]]]
        cases.append(case)
print(json.dumps({
    "logits": {n: [None if v == float("-inf") else round(v, 2) for v in t.tolist()] for n, t in logits.items()},
    "prompt": prompt, "generated": generated}, separators=(",", ":"))[:-1] + ',"cases":[\n'
    + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}")
