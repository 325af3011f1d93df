"""Near misses: layers that look like routed experts and are not, or not wholly."""

import torch
from torch import nn
from torch.nn import functional as F

from forms import Einsum, Masks, OneHot
from layers import CHOSEN, EXPERTS, HIDDEN, Block, First, Plain, Stacked


class Capacity(Block):
    """Switch: a token that comes after `capacity` others to an expert is dropped. No recorded case has so many."""

    def __init__(self, capacity=64):
        super().__init__(First(), lambda: Plain(F.relu, bias=False))
        self.capacity = capacity

    def mix(self, x, weights, ids):
        mask = F.one_hot(ids.squeeze(-1), EXPERTS)
        mask = mask * (torch.cumsum(mask, 0) <= self.capacity)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            y = y + expert(x) * (mask[:, e : e + 1].to(weights.dtype) * weights)
        return y


class WeightsBefore(Stacked):
    """The weights are applied before the down product, so that its bias is added as it is."""

    def __init__(self):
        super().__init__(bias=True)

    def mix(self, x, weights, ids):
        gate, up = (torch.matmul(self.gate_up[ids], x[:, None, :, None]).squeeze(-1) + self.gate_up_bias[ids]).chunk(
            2, -1
        )
        h = F.silu(gate) * up * weights.unsqueeze(-1)
        return (torch.matmul(self.down[ids], h.unsqueeze(-1)).squeeze(-1) + self.down_bias[ids]).sum(1)


class Different(Masks):
    """The last expert has another activation."""

    def __init__(self):
        super().__init__()
        self.experts[-1].act = F.gelu


class TwoScales(nn.Module):
    """One choice for two sets of experts; the weights add up to 1 for one and are scaled for the other."""

    def __init__(self):
        super().__init__()
        self.gate, self.a, self.b = nn.Linear(HIDDEN, EXPERTS, bias=False), Masks(nn.Identity()), Einsum(nn.Identity())

    def forward(self, x):
        tokens = x.reshape(-1, HIDDEN)
        weights, ids = torch.topk(F.softmax(self.gate(tokens), dim=-1), CHOSEN, dim=-1)
        y = self.a.mix(tokens, weights / weights.sum(-1, keepdim=True), ids) + self.b.mix(tokens, 2.5 * weights, ids)
        return y.reshape(x.shape)


class Absent(OneHot):
    """Experts that the exporter's sample does not choose are not in the graph: a tracer goes round them."""

    shapes = [(1, 2)]

    def mix(self, x, weights, ids):
        y, mask = torch.zeros_like(x), F.one_hot(ids, EXPERTS).permute(2, 1, 0)
        for e, expert in enumerate(self.experts):
            place, token = torch.where(mask[e])
            if token.shape[0] == 0:
                continue
            y.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return y


NEAR = {  # the most that may be fused, if other blocks run; the MLPs of remaining experts may be gated ones
    "capacity": (Capacity, dict(router=1, moe=0)),
    "before": (WeightsBefore, dict(router=1, moe=0)),
    "different": (Different, dict(router=1, moe=0, glu=EXPERTS)),
    "absent": (Absent, dict(router=1, moe=0)),
    "scales": (TwoScales, dict(router=1, moe=2)),
}
