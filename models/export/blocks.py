"""Counts the blocks that one forward pass executes in PyTorch: the blocks to find in the export."""

import collections
import sys

import torch

import layers


def _kinds(module):
    """rmsnorm, layernorm, moe or glu, or several; empty for others. A block of experts counts as one moe and no glu."""
    name = type(module).__name__
    if name.endswith("RMSNormGated"):
        return ["rmsnorm", "glu"]
    if name.endswith("RMSNorm"):
        return ["rmsnorm"]
    if name.endswith("LayerNorm"):
        return ["layernorm"]
    if hasattr(module, "experts") or isinstance(module, layers.Block):
        return ["moe"]
    if _has_linears(module, "gate_proj", "up_proj", "down_proj") or _has_linears(module, "gate_up_proj", "down_proj"):
        return ["glu"]
    return []


def _has_linears(module, *names):
    return all(isinstance(getattr(module, name, None), torch.nn.Linear) for name in names)


class _Rotations:
    """Counts the tensors that come out of the functions apply_rotary… of a module's source file, while it is active."""

    def __init__(self, source, found):
        self.source, self.found, self.nested = source, found, False
        self.functions = {name: f for name, f in vars(source).items() if name.startswith("apply_rotary")}

    def __enter__(self):
        for name, function in self.functions.items():
            setattr(self.source, name, self._counted(function))

    def __exit__(self, *_):
        for name, function in self.functions.items():
            setattr(self.source, name, function)

    def _counted(self, function):
        def call(*args, **kwargs):
            if self.nested:  # one of these functions may be made of another
                return function(*args, **kwargs)
            self.nested = True
            rotated = function(*args, **kwargs)
            self.nested = False
            self.found["rope"] += len(rotated) if isinstance(rotated, tuple) else 1  # queries and keys, or one of them
            return rotated

        return call


@torch.no_grad()
def count(module, case):
    """{"rmsnorm": …, "layernorm": …, "rope": …, "glu": …, "moe": …} of one run over the inputs in case."""
    found = collections.Counter(rmsnorm=0, layernorm=0, rope=0, glu=0, moe=0)
    hooks = []
    for part in module.modules():
        if kinds := _kinds(part):
            hooks.append(part.register_forward_hook(lambda *_, kinds=kinds: found.update(kinds)))
    try:
        with _Rotations(sys.modules[type(getattr(module, "model", module)).__module__], found):
            module(**case)
    finally:
        for hook in hooks:
            hook.remove()
    return dict(found)
