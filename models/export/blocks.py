"""Counts the blocks that one forward pass executes in PyTorch: what a recogniser ought to find in the export."""

import collections
import sys

import torch


def _kind(module):
    """rmsnorm, layernorm, moe or glu; None for other modules. A block of experts counts as one moe and no glu."""
    name = type(module).__name__
    if name.endswith("RMSNorm"):
        return "rmsnorm"
    if name.endswith("LayerNorm"):
        return "layernorm"
    if hasattr(module, "experts"):
        return "moe"
    if all(hasattr(module, part) for part in ("gate_proj", "up_proj", "down_proj")) and _is_linear(module.gate_proj):
        return "glu"
    return None


def _is_linear(module):
    return isinstance(module, torch.nn.Linear)


@torch.no_grad()
def count(module, case):
    """{"rmsnorm": …, "layernorm": …, "rope": …, "glu": …, "moe": …} of one run over the inputs in case."""
    found = collections.Counter(rmsnorm=0, layernorm=0, rope=0, glu=0, moe=0)
    hooks = []
    for part in module.modules():
        kind = _kind(part)
        if kind:
            hooks.append(part.register_forward_hook(lambda *_, kind=kind: found.update([kind])))
    code = sys.modules[type(module.model).__module__]
    rotate = code.apply_rotary_pos_emb

    def counted(*args, **kwargs):
        found["rope"] += 2  # queries and keys
        return rotate(*args, **kwargs)

    code.apply_rotary_pos_emb = counted
    try:
        module(**case)
    finally:
        code.apply_rotary_pos_emb = rotate
        for hook in hooks:
            hook.remove()
    return dict(found)
