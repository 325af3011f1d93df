"""Routed experts in forms that people write, unlike transformers' own blocks (architectures.py)."""

import torch
from torch.nn import functional as F

from layers import EXPERTS, HIDDEN, INTERMEDIATE, Block, ChosenFirst, Corrected, First, Gated, Plain, Stacked


class Masks(Block):
    """Every expert on every token, times the sum of the weights of the choices of it."""

    def mix(self, x, weights, ids):
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            y = y + expert(x) * (weights * (ids == e)).sum(-1, keepdim=True)
        return y


class Where(Block):
    """Every expert on every token; for each of the k choices a chain of Where finds the output."""

    def mix(self, x, weights, ids):
        outputs, y = [expert(x) for expert in self.experts], torch.zeros_like(x)
        for j in range(ids.shape[1]):
            chosen = outputs[0]
            for e in range(1, EXPERTS):
                chosen = torch.where((ids[:, j] == e)[:, None], outputs[e], chosen)
            y = y + weights[:, j : j + 1] * chosen
        return y


class Gates(Block):
    """Weights scattered to a row with a column for each expert; outputs stacked."""

    def mix(self, x, weights, ids):
        gates = torch.zeros(x.shape[0], EXPERTS, dtype=weights.dtype).scatter(1, ids, weights)
        return (torch.stack([expert(x) for expert in self.experts], dim=1) * gates.unsqueeze(-1)).sum(1)


class Chosen(Block):
    """Every expert on every token, stacked; then the k chosen are gathered."""

    def mix(self, x, weights, ids):
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        chosen = torch.gather(outputs, 1, ids.unsqueeze(-1).expand(-1, -1, HIDDEN))
        return (chosen * weights.unsqueeze(-1)).sum(1)


class OneHot(Block):
    """A mask by one_hot and index_add, as Mixtral was written in transformers 4.36 to 4.56, over all experts."""

    def mix(self, x, weights, ids):
        y, mask = torch.zeros_like(x), F.one_hot(ids, EXPERTS).permute(2, 1, 0)
        for e, expert in enumerate(self.experts):
            place, token = torch.where(mask[e])
            y.index_add_(0, token, expert(x[None, token].reshape(-1, HIDDEN)) * weights[token, place, None])
        return y


class Put(Block):
    """y[tokens] += …"""

    def mix(self, x, weights, ids):
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, place = (ids == e).nonzero(as_tuple=True)
            y[token] += expert(x[token]) * weights[token, place].unsqueeze(-1)
        return y


class Flattened(Block):
    """Weights of all experts below one another, as in DBRX."""

    def __init__(self):
        super().__init__(expert=None)
        self.gate, self.up, self.down = [
            torch.nn.Parameter(torch.zeros(EXPERTS * INTERMEDIATE, HIDDEN)) for _ in range(3)
        ]

    def mix(self, x, weights, ids):
        gate, up, down = [w.view(EXPERTS, INTERMEDIATE, HIDDEN) for w in (self.gate, self.up, self.down)]
        y = torch.zeros_like(x)
        for e in range(EXPERTS):
            token, place = torch.where(ids == e)
            chosen = x[token]
            h = F.silu(chosen @ gate[e].t()) * (chosen @ up[e].t())
            y.index_add_(0, token, h @ down[e] * weights[token, place, None])
        return y


class Einsum(Stacked):
    """gpt-fast: gathered weights, every product an einsum."""

    def mix(self, x, weights, ids):
        gate, up = self.gate_up[ids].chunk(2, dim=2)
        h = F.silu(torch.einsum("ti,taoi->tao", x, gate)) * torch.einsum("ti,taoi->tao", x, up)
        return torch.einsum("tai,ta->ti", torch.einsum("tao,taio->tai", h, self.down[ids]), weights)


class Repeated(Stacked):
    """gpt-oss outside training: tokens repeated for all experts, gate and up in turn, clamped, biases."""

    def __init__(self):
        super().__init__(ChosenFirst(), in_out=True, bias=True)

    def mix(self, x, weights, ids):
        gates = torch.zeros(x.shape[0], EXPERTS, dtype=weights.dtype).scatter_(1, ids, weights)
        h = torch.bmm(x.repeat(EXPERTS, 1).view(EXPERTS, -1, HIDDEN), self.gate_up) + self.gate_up_bias[:, None, :]
        gate, up = h[..., ::2].clamp(max=7.0), h[..., 1::2].clamp(-7.0, 7.0)
        y = torch.bmm((up + 1) * gate * torch.sigmoid(gate * 1.702), self.down) + self.down_bias[:, None, :]
        return (y * gates.transpose(0, 1).unsqueeze(-1)).sum(0)


class Gelu(Stacked):
    """Gathered weights, GELU without a gate, biases."""

    def __init__(self, router=None):
        super().__init__(router, gated=False, bias=True)

    def mix(self, x, weights, ids):
        h = torch.matmul(self.gate_up[ids], x[:, None, :, None]).squeeze(-1) + self.gate_up_bias[ids]
        y = torch.matmul(self.down[ids], F.gelu(h).unsqueeze(-1)).squeeze(-1) + self.down_bias[ids]
        return (y * weights.unsqueeze(-1)).sum(1)


# Loop and If come only from scripted functions.


@torch.jit.script
def loop_over_hits(
    x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    y = torch.zeros_like(x)
    mask = torch.nn.functional.one_hot(ids, 6).permute(2, 1, 0)
    hits = torch.greater(mask.sum((-1, -2)), 0).nonzero()
    for i in range(hits.size(0)):
        e = hits[i, 0]
        where = mask[e].nonzero()
        token = where[:, 1]
        gate, up = torch.matmul(x[token], gate_up[e].t()).chunk(2, -1)
        h = torch.matmul(gate * torch.sigmoid(gate) * up, down[e].t())
        y = y.index_add(0, token, h * weights[token, where[:, 0]].unsqueeze(-1))
    return y


@torch.jit.script
def loop_over_experts(
    x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    y = torch.zeros_like(x)
    for e in range(gate_up.size(0)):
        gate, up = torch.matmul(x, gate_up[e].t()).chunk(2, -1)
        chosen = (weights * (ids == e).to(weights.dtype)).sum(-1, keepdim=True)
        y = y + torch.matmul(gate * torch.sigmoid(gate) * up, down[e].t()) * chosen
    return y


@torch.jit.script
def add_if_chosen(
    y: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    mask: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    if bool(mask.any()):
        where = mask.nonzero()
        token = where[:, 0]
        g = torch.matmul(x[token], gate.t())
        h = torch.matmul(g * torch.sigmoid(g) * torch.matmul(x[token], up.t()), down.t())
        y = y.index_add(0, token, h * weights[token, where[:, 1]].unsqueeze(-1))
    return y


class Loop(Stacked):
    """A loop over the experts that are hit, or over all."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def mix(self, x, weights, ids):
        return self.function(x, weights, ids, self.gate_up, self.down)


class If(Block):
    """For each expert a test whether a token chose it."""

    def mix(self, x, weights, ids):
        y = torch.zeros_like(x)
        for e, m in enumerate(self.experts):
            y = add_if_chosen(y, x, weights, ids == e, m.gate.weight, m.up.weight, m.down.weight)
        return y


def _tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


FORMS = {
    "masks": Masks,
    "where": lambda: Where(expert=Plain),
    "gates": lambda: Gates(Corrected(), lambda: Gated(_tanh_gelu)),
    "chosen": Chosen,
    "onehot": OneHot,
    "switch": lambda: Put(First(), lambda: Plain(F.relu, bias=False)),
    "put": lambda: Put(ChosenFirst(), lambda: Gated(bias=True)),
    "flattened": Flattened,
    "einsum": Einsum,
    "repeated": Repeated,
    "gelu": Gelu,
    "hits": lambda: Loop(loop_over_hits),
    "loop": lambda: Loop(loop_over_experts),
    "if": If,
}
