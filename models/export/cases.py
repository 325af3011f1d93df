"""Inputs and expected outputs: the wrapped forward pass, its sample inputs and its recorded outputs."""

import numpy as np
import torch
from transformers import DynamicCache

import margins
from architectures import HEAD_DIM, KV_HEADS, LAYERS, VOCABULARY
from layers import HIDDEN

PREFILL = [(2, 7), (1, 5), (3, 11)]  # batch, sequence; the first one is the exporter's sample
LAYER = [(2, 7), (1, 1), (3, 5)]
DECODE = [(2, 3, 5), (1, 2, 9), (3, 4, 2)]  # batch, sequence, past


class Prefill(torch.nn.Module):
    """logits of a whole prompt."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class First(torch.nn.Module):
    """logits of a whole prompt, and its keys and values."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.run(input_ids, attention_mask, [])

    def run(self, input_ids, attention_mask, past):
        cache = DynamicCache(config=self.model.config)
        for layer, (key, value) in enumerate(past):
            cache.update(key, value, layer)
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return (out.logits, *present)


class Decode(First):
    """logits of the next tokens, given the keys and values of the past, which come out longer."""

    def forward(self, input_ids, attention_mask, past_k0, past_v0, past_k1, past_v1):
        return self.run(input_ids, attention_mask, [(past_k0, past_v0), (past_k1, past_v1)])

    @torch.no_grad()
    def empty(self, batch):
        """The keys and values of no tokens."""
        one = torch.ones(batch, 1, dtype=torch.long)
        return [t[:, :, :0] for t in self.run(one, one, [])[1:]]


class Merged(First):
    """Decode if use_cache_branch holds, else First: the past is a dummy then."""

    def forward(self, input_ids, attention_mask, past_k0, past_v0, past_k1, past_v1, use_cache_branch):
        past = [(past_k0, past_v0), (past_k1, past_v1)] if bool(use_cache_branch) else []
        return self.run(input_ids, attention_mask, past)


def cache_names(prefix):
    """past_k0, past_v0, past_k1, …"""
    return [f"{prefix}_{part}{layer}" for layer in range(LAYERS) for part in "kv"]


def output_names(cached):
    return ["logits"] + (cache_names("present") if cached else [])


def prompt(batch, sequence, generator):
    """Random tokens, and a mask."""
    mask = torch.ones(batch, sequence, dtype=torch.long)
    if batch > 1:
        mask[-1, -2:] = 0  # padded on the right: no row is without a token to look at
    return dict(input_ids=torch.randint(3, VOCABULARY, (batch, sequence), generator=generator), attention_mask=mask)


def clear_prompts(module):
    """Prompts of every case for which the module's choices of experts are clear."""
    return [
        margins.clearest(module, lambda seed: prompt(batch, sequence, torch.Generator().manual_seed(seed)))
        for batch, sequence in PREFILL
    ]


def inputs(cached, dtype, seed=7, merged=False):
    """The inputs of every case, as a list of dictionaries. With merged, the second case starts without a past."""
    generator = torch.Generator().manual_seed(seed)

    if not cached:
        return [prompt(batch, sequence, generator) for batch, sequence in PREFILL]
    cases = []
    for i, (batch, sequence, past) in enumerate(DECODE):
        seen = 0 if merged and i == 1 else past
        case = dict(
            input_ids=torch.randint(3, VOCABULARY, (batch, sequence), generator=generator),
            attention_mask=torch.ones(batch, seen + sequence, dtype=torch.long),
        )
        for name in cache_names("past"):
            case[name] = torch.randn(batch, KV_HEADS, past, HEAD_DIM, generator=generator).mul(0.5).to(dtype)
        if merged:
            case["use_cache_branch"] = torch.tensor([seen > 0])
        cases.append(case)
    return cases


@torch.no_grad()
def conversations(module, seed=7):
    """Inputs of a decoder whose past must be one that it gave itself, as a list of dictionaries: a prompt and two
    tokens behind it, then prompts that are padded on the left, and a few tokens."""
    generator = torch.Generator().manual_seed(seed)
    cases = []
    for batch, padding, steps in [(1, [0], [3, 1, 1]), (2, [2, 0], [4, 2])]:
        past, mask = module.empty(batch), torch.ones(batch, 0, dtype=torch.long)
        for step in steps:
            added = torch.ones(batch, step, dtype=torch.long)
            if mask.shape[1] == 0:
                for row, count in zip(added, padding):
                    row[:count] = 0
            mask = torch.cat([mask, added], 1)
            ids = torch.randint(3, VOCABULARY, (batch, step), generator=generator)
            cases.append(dict(input_ids=ids, attention_mask=mask, **dict(zip(cache_names("past"), past))))
            past = module(**cases[-1])[1:]
    return cases


def sample(cases):
    """The case that an exporter sees: the first without a length of 0 or 1, which it would take for a constant."""

    def varies(name, value):
        return all(n > 1 for n in (value.shape[2:3] if name.startswith("past") else value.shape))

    return next((c for c in cases if all(varies(*item) for item in c.items())), cases[0])


def layer_inputs(shapes, dtype, seed=7):
    """The inputs of a layer of experts, of these batches and sequences, as a list of dictionaries."""
    generator = torch.Generator().manual_seed(seed)
    return [dict(x=torch.randn(*shape, HIDDEN, generator=generator).to(dtype)) for shape in shapes]


def _array(tensor):
    # NumPy has no bfloat16; float32 holds each of its values exactly.
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@torch.no_grad()
def record(path, module, cases, names):
    """Runs every case in PyTorch and saves N.in.NAME and N.out.NAME, inputs and outputs, and n, the number of cases."""
    arrays = {"n": np.array(len(cases))}
    for i, case in enumerate(cases):
        outputs = module(**case)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        arrays.update({f"{i}.in.{k}": _array(v) for k, v in case.items()})
        arrays.update({f"{i}.out.{k}": _array(v) for k, v in zip(names, outputs, strict=True)})
    np.savez_compressed(path, **arrays)
