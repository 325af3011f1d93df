"""A mixture of experts in Triton, tuned: one of the peers of moe_peers.py.

Choices (token, slot) are sorted by expert, those of each expert padded to whole tiles. One grouped product computes
gate and up, with the activation fused or in a separate kernel, a second one down, times the routing weights, and a
last kernel sums the slots of each token. Weights are [experts, 2 inner, hidden] with gate in the first half, and
[experts, hidden, inner].
"""
import dataclasses

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit(do_not_specialize=["choices"])
def align_small_kernel(ids, sorted_ids, tile_experts, padded, choices, BM: tl.constexpr, P: tl.constexpr,
                       E: tl.constexpr):
    """Count, scan and scatter, in one block."""
    i = tl.arange(0, P)
    e = tl.arange(0, E)
    mine = tl.load(ids + i, mask=i < choices, other=E)
    other = tl.load(ids + i, mask=i < choices, other=E)
    rank = tl.sum(((mine[:, None] == other[None, :]) & (i[None, :] < i[:, None])).to(tl.int32), 1)
    count = tl.sum((mine[:, None] == e[None, :]).to(tl.int32), 0)
    room = (count + BM - 1) // BM * BM
    start = tl.cumsum(room, 0) - room
    first = tl.sum(tl.where(e[None, :] < mine[:, None], room[None, :], 0), 1)
    tl.store(sorted_ids + first + rank, i, mask=i < choices)
    tl.store(padded, tl.sum(room, 0))
    slot = room[:, None] - BM + tl.arange(0, BM)[None, :]
    tl.store(sorted_ids + start[:, None] + slot, tl.full((E, BM), 0, tl.int32) + choices,
             mask=(room[:, None] > 0) & (slot >= count[:, None]))
    for j in tl.static_range((P + BM - 1) // BM):
        tl.store(tile_experts + start // BM + j, e, mask=j * BM < room)


@triton.jit(do_not_specialize=["choices"])
def count_kernel(ids, counts, choices, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < choices
    tl.atomic_add(counts + tl.load(ids + i, mask=m, other=0), 1, mask=m)


@triton.jit(do_not_specialize=["choices"])
def scan_kernel(counts, starts, sorted_ids, tile_experts, padded, choices, experts, BM: tl.constexpr, E: tl.constexpr):
    x = tl.program_id(0)
    e = tl.arange(0, E)
    count = tl.load(counts + e, mask=e < experts, other=0)
    room = (count + BM - 1) // BM * BM
    start = tl.sum(tl.where(e < x, room, 0), 0)
    mine = tl.sum(tl.where(e == x, count, 0), 0)
    space = tl.sum(tl.where(e == x, room, 0), 0)
    tl.store(starts + x, start)
    if x == 0:
        tl.store(padded, tl.sum(room, 0))
    slot = space - BM + tl.arange(0, BM)
    tl.store(sorted_ids + start + slot, tl.full((BM,), 0, tl.int32) + choices, mask=slot >= mine)
    for j in range(0, space // BM):
        tl.store(tile_experts + start // BM + j, x)


@triton.jit(do_not_specialize=["choices"])
def scatter_kernel(ids, starts, cursors, sorted_ids, choices, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < choices
    x = tl.load(ids + i, mask=m, other=0)
    p = tl.atomic_add(cursors + x, 1, mask=m)
    tl.store(sorted_ids + tl.load(starts + x, mask=m, other=0) + p, i, mask=m)


@triton.jit
def gated(g, u, alpha, limit, CLAMPED: tl.constexpr):
    if CLAMPED:
        g = tl.minimum(g, limit)
        u = tl.minimum(tl.maximum(u, -limit), limit) + 1.0
        g *= tl.sigmoid(alpha * g)
    else:
        g *= tl.sigmoid(g)
    return g * u


@triton.jit(do_not_specialize=["choices", "slots"])
def product_kernel(a, b, b_tiles, c, weights, sorted_ids, tile_experts, padded, N, K, rows, half, choices, slots, alpha,
                   limit, FUSE: tl.constexpr, CLAMPED: tl.constexpr, WEIGH: tl.constexpr, SWAP: tl.constexpr,
                   TMA: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                   GROUP: tl.constexpr):
    """c[choice] = a[choice / slots] @ b[expert].T. FUSE: rows n (gate) and half + n (up) at once, and activation."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(tl.load(padded), BM)
    tiles_n = tl.cdiv(N, BN)
    if pid >= tiles_m * tiles_n:
        return
    group = GROUP * tiles_n
    first = (pid // group) * GROUP
    size = tl.minimum(tiles_m - first, GROUP)
    pm = first + (pid % group) % size
    pn = (pid % group) // size
    choice = tl.load(sorted_ids + pm * BM + tl.arange(0, BM))
    mask = choice < choices
    e = tl.load(tile_experts + pm)
    n = pn * BN + tl.arange(0, BN)
    k0 = tl.arange(0, BK)
    at = a + (choice // slots).to(tl.int64)[:, None] * K + k0[None, :]
    row = e * rows + pn * BN
    bt = b + (e.to(tl.int64) * rows + (n % N))[:, None] * K + k0[None, :]
    if SWAP:
        acc = tl.zeros((BN, BM), tl.float32)
        acc2 = tl.zeros((BN, BM), tl.float32)
    else:
        acc = tl.zeros((BM, BN), tl.float32)
        acc2 = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        if EVEN:
            x = tl.load(at + k * BK, mask=mask[:, None], other=0.0)
        else:
            x = tl.load(at + k * BK, mask=mask[:, None] & (k0[None, :] < K - k * BK), other=0.0)
        if TMA:
            w = b_tiles.load([row, k * BK])
        elif EVEN:
            w = tl.load(bt + k * BK)
        else:
            w = tl.load(bt + k * BK, mask=k0[None, :] < K - k * BK, other=0.0)
        if FUSE:
            if TMA:
                v = b_tiles.load([row + half, k * BK])
            elif EVEN:
                v = tl.load(bt + half * K + k * BK)
            else:
                v = tl.load(bt + half * K + k * BK, mask=k0[None, :] < K - k * BK, other=0.0)
        if SWAP:
            acc = tl.dot(w, x.T, acc)
            if FUSE:
                acc2 = tl.dot(v, x.T, acc2)
        else:
            acc = tl.dot(x, w.T, acc)
            if FUSE:
                acc2 = tl.dot(x, v.T, acc2)
    if FUSE:
        acc = gated(acc, acc2, alpha, limit, CLAMPED)
    if SWAP:
        acc = tl.trans(acc)
    if WEIGH:
        acc *= tl.load(weights + choice, mask=mask, other=0.0)[:, None]
    tl.store(c + choice.to(tl.int64)[:, None] * N + n[None, :], acc.to(c.dtype.element_ty),
             mask=mask[:, None] & (n[None, :] < N))


@triton.jit
def activation_kernel(packed, y, inner, alpha, limit, CLAMPED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = c < inner
    g = tl.load(packed + row * 2 * inner + c, mask=m, other=0.0).to(tl.float32)
    u = tl.load(packed + row * 2 * inner + inner + c, mask=m, other=0.0).to(tl.float32)
    tl.store(y + row * inner + c, gated(g, u, alpha, limit, CLAMPED).to(y.dtype.element_ty), mask=m)


@triton.jit
def sum_kernel(c, y, hidden, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = i < hidden
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in tl.static_range(SLOTS):
        acc += tl.load(c + (t * SLOTS + s) * hidden + i, mask=m, other=0.0).to(tl.float32)
    tl.store(y + t * hidden + i, acc.to(y.dtype.element_ty), mask=m)


@triton.jit(repr=lambda _: "_silu_of_turns")
def silu_of_turns(input):
    """The activation that triton_kernels fuses."""
    gate, up = tl.split(tl.reshape(input, (input.shape[0], input.shape[1] // 2, 2)))
    gate = gate.to(tl.float32)
    return gate / (1 + tl.exp(-gate)) * up.to(tl.float32)


@dataclasses.dataclass(frozen=True)
class Tile:
    """Of a product: columns, depth, warps and stages."""
    n: int
    k: int
    warps: int
    stages: int


@dataclasses.dataclass(frozen=True)
class Config:
    """Rows of a tile, the tiles of the two products, and how: see product_kernel."""
    m: int
    up: Tile
    down: Tile
    group: int = 1
    fuse: bool = False
    tma: bool = False
    swap: bool = False

    def __str__(self):
        how = "".join(f" {n}" for n in ("fuse", "tma", "swap") if getattr(self, n))
        return f"{self.m}x{self.up.n}x{self.up.k}, {self.m}x{self.down.n}x{self.down.k}{how}"


def config(m, up, down, group=1, how=""):
    return Config(m, Tile(*up), Tile(*down), group, *(n in how for n in ("fuse", "tma", "swap")))


# By an expert's average number of choices, up to and including the key: the fastest in the sweep of moe_peers.py.
CONFIGS = {
    3: [config(16, (64, 128, 4, 4), (64, 128, 4, 4)),
        config(16, (128, 128, 4, 4), (128, 128, 4, 4)),
        config(16, (64, 128, 4, 3), (64, 128, 4, 4), how="fuse"),
        config(16, (64, 128, 4, 3), (64, 128, 4, 4), how="fuse tma"),
        config(16, (32, 256, 4, 3), (32, 256, 4, 3), how="fuse tma"),
        config(16, (64, 64, 4, 5), (64, 64, 4, 6), how="fuse tma swap"),
        config(16, (64, 128, 4, 3), (64, 128, 4, 5), how="fuse tma swap"),
        config(16, (32, 128, 4, 5), (32, 128, 4, 7), how="fuse tma")],
    47: [config(16, (128, 128, 4, 3), (128, 128, 4, 4), 16),
         config(16, (64, 128, 4, 3), (128, 128, 4, 4), how="fuse tma"),
         config(32, (128, 128, 4, 3), (128, 128, 4, 3), 16),
         config(64, (128, 64, 4, 4), (128, 64, 4, 4), 16, "tma"),
         config(64, (128, 64, 8, 3), (256, 64, 8, 4), 8, "fuse tma"),
         config(32, (64, 64, 4, 4), (128, 64, 4, 5), 8, "fuse tma swap"),
         config(16, (64, 64, 4, 5), (64, 64, 4, 6), 8, "fuse tma swap"),
         config(64, (64, 64, 4, 4), (128, 64, 4, 4), 8, "fuse tma swap")],
    2**31: [config(64, (128, 64, 4, 4), (128, 64, 4, 4), 16),
            config(128, (256, 64, 8, 4), (256, 64, 8, 4), 16),
            config(128, (256, 64, 8, 4), (256, 64, 8, 4), 8, "tma"),
            config(128, (128, 64, 8, 4), (256, 64, 8, 4), 8, "fuse tma"),
            config(64, (128, 64, 8, 4), (256, 64, 8, 4), 8, "fuse tma"),
            config(64, (128, 64, 4, 4), (128, 64, 4, 5), 16, "fuse tma"),
            config(128, (128, 64, 8, 3), (128, 128, 8, 3), 16, "fuse tma"),
            config(128, (128, 128, 8, 3), (128, 128, 8, 3), 8, "tma")],
}


def configs(choices, experts):
    """The configs to try."""
    return next(c for most, c in CONFIGS.items() if choices / experts <= most)


def align(ids, experts, m):
    """Sorts choices by expert: returns their numbers (the number of all choices as padding), each tile's expert,
    the length and its bound."""
    n = ids.numel()
    most = -(-min(n * m, n + experts * (m - 1)) // m) * m
    make = lambda size: torch.empty(size, dtype=torch.int32, device=ids.device)
    sorted_ids, tile_experts, padded = make(most), make(most // m), make(1)
    wide = triton.next_power_of_2(experts)
    if n <= 128:
        align_small_kernel[(1,)](ids, sorted_ids, tile_experts, padded, n, BM=m, P=triton.next_power_of_2(n), E=wide,
                                 num_warps=8)
    else:
        counts = torch.zeros(2 * experts, dtype=torch.int32, device=ids.device)
        starts = make(experts)
        grid = (triton.cdiv(n, 256),)
        count_kernel[grid](ids, counts, n, BLOCK=256)
        scan_kernel[(experts,)](counts, starts, sorted_ids, tile_experts, padded, n, experts, BM=m, E=wide, num_warps=4)
        scatter_kernel[grid](ids, starts, counts[experts:], sorted_ids, n, BLOCK=256)
    return sorted_ids, tile_experts, padded, most


def moe(x, weights, ids, gate_up, down, c, clamped=False, alpha=1.702, limit=7.0):
    """weights float32 and ids int32 are [tokens, k]."""
    tokens, hidden = x.shape
    experts, _, inner = down.shape
    k, n = ids.shape[1], ids.numel()
    sorted_ids, tile_experts, padded, most = align(ids, experts, c.m)

    def product(a, b, out, tile, columns, half, slots, fuse, weigh):
        flat = b.view(-1, b.shape[-1])
        tiles = TensorDescriptor(flat, list(flat.shape), list(flat.stride()), [tile.n, tile.k]) if c.tma else None
        depth = b.shape[-1]
        product_kernel[(most // c.m * triton.cdiv(columns, tile.n),)](
            a, b, tiles, out, weights, sorted_ids, tile_experts, padded, columns, depth, b.shape[1], half, n, slots,
            alpha, limit, FUSE=fuse, CLAMPED=clamped, WEIGH=weigh, SWAP=c.swap, TMA=c.tma, EVEN=depth % tile.k == 0,
            BM=c.m, BN=tile.n, BK=tile.k, GROUP=c.group, num_warps=tile.warps, num_stages=tile.stages)
        return out

    inside = x.new_empty(n, inner)
    if c.fuse:
        product(x, gate_up, inside, c.up, inner, inner, k, True, False)
    else:
        packed = product(x, gate_up, x.new_empty(n, 2 * inner), c.up, 2 * inner, 0, k, False, False)
        activation_kernel[(n, triton.cdiv(inner, 512))](packed, inside, inner, alpha, limit, CLAMPED=clamped, BLOCK=512,
                                                        num_warps=4)
    each = product(inside, down, x.new_empty(n, hidden), c.down, hidden, 0, 1, False, True)
    y = torch.empty_like(x)
    sum_kernel[(tokens, triton.cdiv(hidden, 1024))](each, y, hidden, SLOTS=k, BLOCK=1024)
    return y
