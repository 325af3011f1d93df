"""Layers of routed experts or of a gated norm: x + block(norm(x)).

Even tiny whole models are large; a layer shows the same subgraph in some ten kilobytes. forms.py has the forms in which
people write the experts, near.py has near misses.
"""

import importlib

import torch
from torch import nn
from torch.nn import functional as F

HIDDEN, INTERMEDIATE, EXPERTS, CHOSEN = 16, 12, 6, 2
WIDTH = 32  # of a gated norm's rows


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Layer(nn.Module):
    """The second half of a decoder layer."""

    def __init__(self, block):
        super().__init__()
        self.norm, self.block = RMSNorm(), block

    def forward(self, x):
        return x + self.block(self.norm(x))


class GatedNorm(nn.Module):
    """The end of a mixer of transformers: the output of its scan or linear attention, a gate, and the norm of both."""

    def __init__(self, module, name, *args, wide=False, head=None, **options):
        super().__init__()
        source = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
        self.norm, self.wide, self.head = getattr(source, name)(head or WIDTH, *args, **options), wide, head
        self.into, self.out = nn.Linear(HIDDEN, 2 * WIDTH, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x):
        y, gate = self.into(x).chunk(2, dim=-1)
        if self.wide:  # as a scan returns it
            y = y.float()
        if self.head:  # of linear attention
            y = self.norm(y.reshape(-1, self.head), gate.reshape(-1, self.head)).reshape(gate.shape)
        else:
            y = self.norm(y, gate)
        return self.out(y.to(x.dtype))


GATED_NORMS = {
    "qwen3next": lambda: GatedNorm("qwen3_next", "Qwen3NextRMSNormGated", head=8),
    "olmohybrid": lambda: GatedNorm("olmo_hybrid", "OlmoHybridRMSNormGated", head=8),
    "mamba2": lambda: GatedNorm("mamba2", "MambaRMSNormGated", WIDTH // 4, wide=True),
    "zamba2": lambda: GatedNorm("zamba2", "Zamba2RMSNormGated", WIDTH),
    "falconh1": lambda: GatedNorm("falcon_h1", "FalconH1RMSNormGated", n_groups=2, norm_before_gate=False, wide=True),
}

# Routers: x [T, H] to weights [T, k] and ids [T, k].


class Softmax(nn.Module):
    """The k greatest probabilities, made to add up to 1."""

    def __init__(self, chosen=CHOSEN):
        super().__init__()
        self.gate, self.chosen = nn.Linear(HIDDEN, EXPERTS, bias=False), chosen

    def forward(self, x):
        weights, ids = torch.topk(F.softmax(self.gate(x), dim=-1, dtype=torch.float32), self.chosen, dim=-1)
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype), ids


class ChosenFirst(Softmax):
    """Softmax over the k greatest logits."""

    def forward(self, x):
        logits, ids = torch.topk(self.gate(x), self.chosen, dim=-1)
        return F.softmax(logits.float(), dim=-1).to(x.dtype), ids


class First(Softmax):
    """The one greatest probability, as in Switch."""

    def forward(self, x):
        p = F.softmax(self.gate(x), dim=-1)
        return p.max(-1, keepdim=True)[0], p.argmax(-1, keepdim=True)


class Corrected(Softmax):
    """Sigmoids with a bias that counts only for the choice, as in DeepSeek-V3 without its groups."""

    def __init__(self):
        super().__init__()
        self.correction = nn.Parameter(torch.zeros(EXPERTS))

    def forward(self, x):
        scores = self.gate(x).float().sigmoid()
        ids = torch.topk(scores + self.correction, self.chosen, dim=-1, sorted=False)[1]
        weights = scores.gather(1, ids)
        return (weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5).to(x.dtype), ids


# Experts with separate weights.


class Gated(nn.Module):
    def __init__(self, act=F.silu, bias=False):
        super().__init__()
        self.gate, self.up = nn.Linear(HIDDEN, INTERMEDIATE, bias=bias), nn.Linear(HIDDEN, INTERMEDIATE, bias=bias)
        self.down, self.act = nn.Linear(INTERMEDIATE, HIDDEN, bias=bias), act

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class Plain(nn.Module):
    """Without a gate."""

    def __init__(self, act=F.gelu, bias=True):
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, INTERMEDIATE, bias=bias), nn.Linear(INTERMEDIATE, HIDDEN, bias=bias)
        self.act = act

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    """Tokens in a row, a router, and mix(x, weights, ids), which every form writes in its way."""

    def __init__(self, router=None, expert=Gated):
        super().__init__()
        self.router = router or Softmax()
        if expert:
            self.experts = nn.ModuleList([expert() for _ in range(EXPERTS)])

    def forward(self, x):
        tokens = x.reshape(-1, HIDDEN)
        return self.mix(tokens, *self.router(tokens)).reshape(x.shape)


class Stacked(Block):
    """Weights [E, 2I, H] and [E, H, I], or with in_out [E, H, 2I] and [E, I, H]; gated or not."""

    def __init__(self, router=None, in_out=False, gated=True, bias=False):
        super().__init__(router, expert=None)
        rows = 2 * INTERMEDIATE if gated else INTERMEDIATE
        up, down = (rows, HIDDEN), (HIDDEN, INTERMEDIATE)
        self.gate_up = nn.Parameter(torch.zeros(EXPERTS, *(up[::-1] if in_out else up)))
        self.down = nn.Parameter(torch.zeros(EXPERTS, *(down[::-1] if in_out else down)))
        if bias:
            self.gate_up_bias = nn.Parameter(torch.zeros(EXPERTS, rows))
            self.down_bias = nn.Parameter(torch.zeros(EXPERTS, HIDDEN))
