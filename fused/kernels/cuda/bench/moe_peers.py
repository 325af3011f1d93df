"""The kernels of MoE beside those that people use today, in one run.

    nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC -shared -I.. moe*.cu device.cu \
        -o libmoe.so    (in fused/kernels/cuda)
    python moe_peers.py ours=./libmoe.so [NAME=LIBRARY ...] [--shapes qwen3-30b,mixtral] [--tokens 1,64] [--rounds 5]
        [--without deepgemm] [--sessions ours=libmojo_ops_cuda.so] [--json FILE]

Each LIBRARY is one of ours: variants are compared. x (bfloat16), weights (float32) and ids are inputs of every one.
In its time are sorting by expert, both products, the activation, the weights and the sum over a token's experts. Gate
and up lie as halves, in gpt-oss by turns; contenders that want them otherwise have copies.

  triton          triton_moe.py, with the fastest of its configs for each row
  triton_kernels  OpenAI's matmul_ogs, where installed, with the activation fused
  grouped_mm      torch's, between torch operations, as transformers uses it
  deepgemm        the two grouped products of DeepGEMM alone, where installed, from 64 tokens on: of sorted tokens,
                  without activation, weights and sum, and so not among "the best". It compiles with nvcc:
                  DG_JIT_USE_NVRTC=0 and CUDA_HOME=/usr/local/cuda

A time is that of a CUDA graph of n times [read of 192 MiB that empties L2, call], less that of the reads alone, over n.
Every round times each contender, one after the other; the number is the median of the rounds. All are first checked
against float32. Compiling goes before, in processes side by side.

--sessions compares in onnxruntime (sessions.py) our op, of each NAME=LIBRARY of ops, and com.microsoft.MoE, which
takes logits: its softmax and top k are in its time. A time is then that between events around a run, after L2 was
emptied.
"""
import argparse
import ctypes
import dataclasses
import json
import multiprocessing
import os
import statistics
import time

import torch
import torch.nn.functional as F
import triton
import triton_moe
from memory_bound_peers import graph_of, launch, read_kernel, replay

BF16, HALVES, INTERLEAVED = 2, 0, 1
V, Z, I, R = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float
ALPHA, LIMIT = 1.702, 7.0
PEERS = ["triton", "triton_kernels", "grouped_mm", "deepgemm"]
PRODUCTS_FROM = 64  # tokens


class MoEArgs(ctypes.Structure):
    _fields_ = [("x", V), ("weights", V), ("ids", V), ("gate_up", V), ("down", V), ("gate_up_bias", V),
                ("down_bias", V), ("y", V), ("scratch", V), ("tokens", Z), ("top_k", Z), ("experts", Z), ("hidden", Z),
                ("inner", Z),
                ("x_type", I), ("weights_type", I), ("expert_type", I), ("packing", I), ("gate_up_in_out", I),
                ("down_in_out", I), ("activation", I), ("alpha", R), ("limit", R), ("up_offset", R), ("kernel", I),
                ("tile", I), ("split", I)]


@dataclasses.dataclass(frozen=True)
class Shape:
    experts: int
    k: int
    hidden: int
    inner: int
    clamped: bool = False

    def __str__(self):
        return f"{self.experts}, {self.k}, {self.hidden}, {self.inner}" + (", clamped" if self.clamped else "")

    def activation(self):
        """alpha, limit and offset of up."""
        return (ALPHA, LIMIT, 1.0) if self.clamped else (1.0, 0.0, 0.0)


SHAPES = {"qwen3-30b": Shape(128, 8, 2048, 768), "deepseek-v3": Shape(256, 8, 7168, 256),
          "gpt-oss-20b": Shape(32, 4, 2880, 2880, True), "mixtral": Shape(8, 2, 4096, 14336)}
TOKENS = [1, 8, 64, 512, 4096]


class Weights:
    """gate_up as halves, the same by turns, and down."""

    def __init__(self, shape):
        e, h, i = shape.experts, shape.hidden, shape.inner
        make = lambda *size: torch.empty(*size, device="cuda", dtype=torch.bfloat16).normal_(0, size[-1]**-0.5)
        self.halves, self.down = make(e, 2 * i, h), make(e, h, i)
        self.turns = self.halves.view(e, 2, i, h).transpose(1, 2).reshape(e, 2 * i, h)

    def ours(self, shape):
        return (self.turns, INTERLEAVED) if shape.clamped else (self.halves, HALVES)


class Inputs:
    """x, and random routing."""

    def __init__(self, shape, tokens):
        self.x = torch.randn(tokens, shape.hidden, device="cuda", dtype=torch.bfloat16)
        if shape.clamped:
            self.x *= 4  # so that one gate in twelve is beyond the limit
        logits, self.ids = torch.randn(tokens, shape.experts, device="cuda").topk(shape.k)
        self.weights = logits.softmax(-1)
        self.ids32 = self.ids.int()

    def logits(self, shape):
        """The logits from which a router makes these weights and ids."""
        out = torch.full((len(self.x), shape.experts), -1e4, device="cuda")
        return out.scatter_(1, self.ids, self.weights.log()).to(torch.bfloat16)


def activated(gate, up, clamped):
    if clamped:
        gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
        return gate * torch.sigmoid(ALPHA * gate) * (up + 1)
    return F.silu(gate) * up


def reference(shape, w, inputs):
    """In float32, expert by expert."""
    x, y = inputs.x.float(), torch.zeros(inputs.x.shape, device="cuda")
    for e in inputs.ids.unique().tolist():
        token, slot = torch.where(inputs.ids == e)
        gate, up = F.linear(x[token], w.halves[e].float()).chunk(2, -1)
        out = F.linear(activated(gate, up, shape.clamped), w.down[e].float())
        y.index_add_(0, token, out * inputs.weights[token, slot, None])
    return y


def check(got, want, most=1.5e-2):
    off = ((got.float() - want).norm() / want.norm()).item()
    if not off < most:
        raise RuntimeError(f"wrong: relative error {off:.2g}")


def ours(library, shape, w, inputs):
    y = torch.full_like(inputs.x, float("nan"))
    gate_up, packing = w.ours(shape)
    args = MoEArgs(x=inputs.x.data_ptr(), weights=inputs.weights.data_ptr(), ids=inputs.ids.data_ptr(),
                   gate_up=gate_up.data_ptr(), down=w.down.data_ptr(), y=y.data_ptr(), tokens=len(y), top_k=shape.k,
                   experts=shape.experts, hidden=shape.hidden, inner=shape.inner, x_type=BF16, expert_type=BF16,
                   packing=packing)
    args.alpha, args.limit, args.up_offset = shape.activation()
    scratch = torch.empty(max(library.MojoMoEScratch(ctypes.byref(args)), 1), device="cuda", dtype=torch.uint8)
    args.scratch = scratch.data_ptr()

    def call(kept=scratch):
        launch(library.MojoCudaMoE, ctypes.byref(args))
        return y
    return call


def with_triton(config, shape, w, inputs):
    return lambda: triton_moe.moe(inputs.x, inputs.weights, inputs.ids32, w.halves, w.down, config, shape.clamped)


def grouped_mm(shape, w, inputs):
    product = getattr(F, "grouped_mm", None) or torch._grouped_mm
    up, down = w.halves.transpose(1, 2), w.down.transpose(1, 2)

    def call():
        order, perm = torch.sort(inputs.ids32.reshape(-1))
        experts = torch.arange(shape.experts, device="cuda", dtype=torch.int32)
        ends = torch.searchsorted(order, experts, right=True).int()
        gate_up = product(inputs.x[perm // shape.k], up, offs=ends)
        out = product(activated(*gate_up.chunk(2, -1), shape.clamped), down, offs=ends)
        out = out * inputs.weights.reshape(-1)[perm].to(out.dtype).unsqueeze(-1)
        back = torch.empty_like(perm)
        back[perm] = torch.arange(perm.numel(), device="cuda")
        return out[back].view(len(inputs.x), shape.k, -1).sum(1)
    return call


def triton_kernels(shape, w, inputs):
    from triton_kernels import matmul_ogs as ogs
    from triton_kernels.swiglu import swiglu_fn
    from triton_kernels.tensor import make_ragged_tensor_metadata
    from triton_kernels.topk import topk
    if shape.clamped:
        swiglu = ogs.FnSpecs("swiglu", swiglu_fn, ("alpha", "limit"), reduction_n=2)
        activation = ogs.FusedActivation(swiglu, (ALPHA, LIMIT))
    else:
        activation = ogs.FusedActivation(ogs.FnSpecs("silu", triton_moe.silu_of_turns, (), reduction_n=2), ())
    up, down, precision = w.turns.transpose(1, 2), w.down.transpose(1, 2), ogs.PrecisionConfig()
    unused = torch.zeros(len(inputs.x), shape.experts, device="cuda", dtype=torch.bfloat16)

    def call():
        # Its sort of ids by expert. The values gathered from the first argument are unused.
        found = topk(unused, shape.k, apply_softmax=False, y_indx=inputs.ids32).mask_metadata
        dispatch, combine = found.row_sorted_indx, found.col_sorted_indx
        ragged = make_ragged_tensor_metadata(found.col_sum, dispatch.shape[0])
        gammas = inputs.weights.view(-1)[combine]
        routing = ogs.RoutingData(gammas, ragged.slice_sizes, shape.experts, shape.k, ragged)
        inner = ogs.matmul_ogs(inputs.x, up, None, routing, gather_indx=ogs.GatherIndx(combine, dispatch),
                               precision_config=precision, fused_activation=activation)
        return ogs.matmul_ogs(inner, down, None, routing, scatter_indx=ogs.ScatterIndx(dispatch, combine),
                              precision_config=precision, gammas=gammas)
    return call


def deepgemm(shape, w, inputs):
    import deep_gemm
    counts = torch.bincount(inputs.ids.view(-1), minlength=shape.experts).tolist()
    tiles = [(e, min(128, n - i)) for e, n in enumerate(counts) for i in range(0, n, 128)]  # each of one expert's rows
    rows = torch.tensor([e if i < n else -1 for e, n in tiles for i in range(128)], device="cuda").int()
    x = torch.randn(len(rows), shape.hidden, device="cuda", dtype=torch.bfloat16)
    inner = torch.randn(len(rows), shape.inner, device="cuda", dtype=torch.bfloat16)
    gate_up, y = x.new_empty(len(rows), 2 * shape.inner), torch.empty_like(x)

    def call():
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(x, w.halves, gate_up, rows)
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(inner, w.down, y, rows)
    call()
    first = slice(0, 512, 128)  # of the first four tiles
    for got, a, b in ((gate_up, x, w.halves), (y, inner, w.down)):
        check(got[first], torch.einsum("nk,nok->no", a[first].float(), b[rows[first].long()].float()))
    return call


OTHERS = {"triton_kernels": triton_kernels, "grouped_mm": grouped_mm, "deepgemm": deepgemm}


def compile_ahead(task):
    """Fills the compilers' caches, in a separate process."""
    kind, *rest = task
    try:
        if kind == "triton":  # its kernels depend on the sizes' divisors, not on the sizes
            config, clamped = rest
            for shape in SHAPES.values():
                small = dataclasses.replace(shape, hidden=320 if clamped else 512, inner=192 if clamped else 256)
                tokens = [t for t in TOKENS if config in triton_moe.configs(t * shape.k, shape.experts)]
                if shape.clamped == clamped and tokens:
                    w = Weights(small)
                    for t in tokens:
                        with_triton(config, small, w, Inputs(small, t))()
        else:
            name, tokens = rest
            OTHERS[kind](SHAPES[name], Weights(SHAPES[name]), Inputs(SHAPES[name], tokens))()
        torch.cuda.synchronize()
    except Exception:  # the run itself reports the failure
        pass
    finally:
        torch.cuda.empty_cache()


def compile_all(options):
    tasks = [(kind, name, tokens) for kind in ("deepgemm", "triton_kernels") if kind in options.peers
             for name in sorted(options.shapes, key=lambda n: n != "mixtral")
             for tokens in options.tokens if kind == "triton_kernels" or tokens >= PRODUCTS_FROM]
    if "triton" in options.peers:
        every = {c for configs in triton_moe.CONFIGS.values() for c in configs}
        tasks += [("triton", c, clamped) for clamped in {SHAPES[n].clamped for n in options.shapes} for c in every]
    if tasks:
        with multiprocessing.get_context("spawn").Pool(min(options.jobs, len(tasks))) as pool:
            list(pool.imap_unordered(compile_ahead, tasks))


def difference(pairs):
    """Median of the second minus median of the first."""
    first, second = zip(*pairs)
    return statistics.median(second) - statistics.median(first)


class Clock:
    """Times calls with L2 empty."""

    def __init__(self):
        self.memory, self.out = torch.randn(48 * 2**20, device="cuda"), torch.zeros(1, device="cuda")
        self.reads = {}

    def flush(self):
        read_kernel[(self.memory.numel() // 8192,)](self.memory, self.out, BLOCK=1024, TIMES=8, num_warps=8)

    def graph(self, call, n):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(), call()
        torch.cuda.current_stream().wait_stream(side)
        graph = graph_of(call, self.flush, n)
        replay(graph)
        return graph

    def once(self, call, stream):
        """Microseconds of one call on the stream."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            for _ in range(4):  # long enough for the host to launch the rest
                self.flush()
            begin.record()
            call()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def times(self, graphs, n, rounds, replays=3):
        """Microseconds of each call of graphs of n, all of them in each round."""
        if n not in self.reads:
            self.reads[n] = graph_of(None, self.flush, n)
            replay(self.reads[n])
        us = {name: [] for name in graphs}
        for _ in range(rounds):
            for name, graph in graphs.items():
                us[name].append(difference([(replay(self.reads[n]), replay(graph)) for _ in range(replays)]) / n)
        return {name: statistics.median(t) for name, t in us.items()}


class Row:
    """One shape and number of tokens."""

    def __init__(self, name, w, tokens, said):
        self.name, self.shape, self.w, self.tokens, self.said = name, SHAPES[name], w, tokens, said
        torch.manual_seed(tokens)
        self.inputs = Inputs(self.shape, tokens)
        self.want = reference(self.shape, w, self.inputs)

    def attempt(self, name, make):
        """The result of make(), or None and a note."""
        try:
            return make()
        except Exception as error:
            torch.cuda.synchronize()
            self.said.append(f"{self.name}, {self.tokens} tokens, {name}: {type(error).__name__}: {str(error)[:200]}")
            return None

    def contender(self, clock, n, call, checked=True):
        if checked:
            check(call(), self.want)
        return clock.graph(call, n)

    def kernels(self, libraries, options, clock):
        """Microseconds by contender, and Triton's config."""
        shape, w, inputs = self.shape, self.w, self.inputs
        calls = {name: ours(library, shape, w, inputs) for name, library in libraries.items()}
        guess = calls or {"": grouped_mm(shape, w, inputs)}
        us = clock.once(next(iter(guess.values())), torch.cuda.current_stream())
        n = int(min(10, max(2, 5000 / us)))
        graphs = {name: self.contender(clock, n, call) for name, call in calls.items()}
        config = None
        if "triton" in options.peers:
            sweep = {}
            for c in triton_moe.configs(inputs.ids.numel(), shape.experts):
                graph = self.attempt(f"triton {c}", lambda: self.contender(clock, n, with_triton(c, shape, w, inputs)))
                if graph:
                    sweep[c] = graph
            if us := clock.times(sweep, n, 3, 1):
                config = min(us, key=us.get)
                graphs["triton"] = sweep[config]
            sweep.clear()
        for name in PEERS[1:]:
            if name in options.peers and (name != "deepgemm" or self.tokens >= PRODUCTS_FROM):
                make = lambda: self.contender(clock, n, OTHERS[name](shape, w, inputs), name != "deepgemm")
                if graph := self.attempt(name, make):
                    graphs[name] = graph
        return clock.times(graphs, n, options.rounds), config

    def sessions(self, libraries, options, clock):
        """Microseconds of our op and com.microsoft.MoE in sessions."""
        import moe_sessions
        import sessions
        inputs, (gate_up, packing) = self.inputs, self.w.ours(self.shape)
        stream = torch.cuda.Stream()
        activation = self.shape.activation()
        feeds = {"x": inputs.x, "weights": inputs.weights, "ids": inputs.ids, "gate_up": gate_up, "down": self.w.down}
        node = moe_sessions.ours(["halves", "interleaved"][packing], *activation)
        nodes = {name: (node, feeds, library) for name, library in libraries.items()}
        feeds = {"x": inputs.x, "logits": inputs.logits(self.shape), "gate_up": self.w.turns, "down": self.w.down}
        nodes["com.microsoft.MoE"] = moe_sessions.theirs(self.shape, *activation), feeds, None

        def make(node, feeds, library):
            y = torch.full_like(inputs.x, float("nan"))
            call = sessions.session(node, feeds, {"y": y}, stream, library)
            check(y, self.want, 1.5e-2 if library else 3e-2)  # theirs has its weights from logits of bfloat16
            return call, y
        made = {name: self.attempt(name, lambda: make(*node)) for name, node in nodes.items()}
        calls = {name: m[0] for name, m in made.items() if m}
        us = {name: [] for name in calls}
        for _ in range(3 * options.rounds):
            for name, call in calls.items():
                us[name].append(clock.once(call, stream))
        return {name: statistics.median(t) for name, t in us.items()}


def rows(options, said):
    for name in options.shapes:
        torch.manual_seed(0)
        w = Weights(SHAPES[name])
        for tokens in options.tokens:
            yield Row(name, w, tokens, said), str(SHAPES[name]) if tokens == options.tokens[0] else ""
            torch.cuda.empty_cache()
        del w


def table(head):
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))


def cells(names, us):
    return [f"{us[n]:.1f}" if n in us else "-" for n in names]


def print_row(*values):
    print("| " + " | ".join(map(str, values)) + " |", flush=True)


def libraries_of(entries):
    named = dict(e.partition("=")[::2] for e in entries)
    if not all(named.values()):
        raise SystemExit("a library is given as NAME=FILE")
    return {name: os.path.abspath(path) for name, path in named.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="NAME=LIBRARY")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without", default="", help="peers to leave out")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="processes that compile")
    parser.add_argument("--sessions", action="append", default=[], metavar="NAME=LIBRARY")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.shapes, options.tokens = options.shapes.split(","), [int(t) for t in options.tokens.split(",")]
    options.peers = [p for p in PEERS if p not in options.without.split(",")]
    libraries = {name: ctypes.CDLL(path) for name, path in libraries_of(options.libraries).items()}
    for library in libraries.values():
        library.MojoMoEScratch.restype = Z
    began, said = time.time(), []
    for peer, module in (("triton_kernels", "triton_kernels"), ("deepgemm", "deep_gemm")):
        try:
            if peer in options.peers:
                __import__(module)
        except Exception as error:
            options.peers.remove(peer)
            print(f"without {peer}: {error}")
    compile_all(options)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}; bfloat16, "
          f"microseconds; compiled in {time.time() - began:.0f} s\n")
    clock, measured, in_sessions = Clock(), [], []
    with torch.no_grad():
        names = [*libraries, *options.peers]
        table(["experts, k, H, I", "T", "experts hit", *names, *(f"{n} over the best" for n in libraries),
               "Triton's tiles"])
        for row, head in rows(options, said):
            us, config = row.kernels(libraries, options, clock)
            hit = row.inputs.ids.unique().numel()
            best = min((t for n, t in us.items() if n in PEERS and n != "deepgemm"), default=float("nan"))
            print_row(head, row.tokens, hit, *cells(names, us), *(f"{us[n] / best:.2f}" for n in libraries), config)
            measured.append({"shape": row.name, "tokens": row.tokens, "hit": hit, "us": us, "triton": str(config)})
        if options.sessions:
            import onnxruntime
            libraries = libraries_of(options.sessions)
            names = [*libraries, "com.microsoft.MoE"]
            print(f"\nIn sessions of onnxruntime {onnxruntime.__version__}:\n")
            table(["experts, k, H, I", "T", *names, *(f"{n} over theirs" for n in libraries)])
            for row, head in rows(options, said):
                us = row.sessions(libraries, options, clock)
                over = [f"{us[n] / us[names[-1]]:.2f}" if n in us and names[-1] in us else "-" for n in libraries]
                print_row(head, row.tokens, *cells(names, us), *over)
                in_sessions.append({"shape": row.name, "tokens": row.tokens, "us": us})
    print(f"\n{time.time() - began:.0f} s")
    print("\n".join(said))
    if options.json:
        with open(options.json, "w") as file:
            device = torch.cuda.get_device_name()
            json.dump({"device": device, "rows": measured, "sessions": in_sessions}, file, indent=1)


if __name__ == "__main__":
    main()
