"""LinearAttention beside the Triton kernels of flash-linear-attention and mamba-ssm, in one run.

In fused/kernels/cuda:

    nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC -shared -I.. -I../.. \
        ../../linearattention/cuda/linear_*.cu device.cu -o liblinear.so
    PYTHONPATH=SITE python linear_attention_peers.py ./liblinear.so [--json FILE] [--rounds 5] [--only decode]

SITE has fla (of fla-core) and mamba_ssm/ops/triton (of mamba-ssm's sources). Missing packages are skipped.
States are float32, the rest is bfloat16. A time is the time of a CUDA graph of n times [read of 192 MiB that empties
L2, call], minus the time of the reads, over n. Every round times each contender once, in turn; the number is the
median of the rounds. The floor of a decode step is the bytes of its states over the bandwidth of that read. Every
contender is checked against ours, and tests/state_test.cu and linear_chunks_test.cu check ours.
"""
import argparse
import ctypes
import json
import statistics

import torch
from memory_bound_peers import graph_of, launch, read_kernel, replay

V, Z, I, R, B = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float, ctypes.c_bool
BF16 = 2


class Args(ctypes.Structure):
    _fields_ = [("q", V), ("k", V), ("v", V), ("past", V), ("decay", V), ("beta", V), ("y", V), ("present", V),
                ("batch", Z), ("tokens", Z), ("key", Z), ("value", Z), ("q_heads", Z), ("k_heads", Z), ("heads", Z),
                ("y_heads", Z), ("beta_heads", Z), ("channels", Z), ("scale", R), ("l2_norm", B), ("epsilon", R),
                ("type", I), ("scratch", V)]


# name: heads of q and k, heads of v, widths of keys and values, delta rule, decay by channel
MODELS = {
    "qwen3-next": (16, 32, 128, 128, True, False),
    "kimi-linear": (32, 32, 128, 128, True, True),
    "mamba2-2.7b": (1, 80, 128, 64, False, False),
}


class Layer:
    """The tensors of a call, of tokens each sequence."""

    def __init__(self, name, batch, tokens):
        self.heads, self.value_heads, self.key, self.value, self.delta, self.by_channel = MODELS[name]
        self.batch, self.tokens = batch, tokens
        rows = (batch, tokens)
        self.q, self.k = (torch.randn(*rows, self.heads, self.key, device="cuda").bfloat16() for _ in range(2))
        self.v = torch.randn(*rows, self.value_heads, self.value, device="cuda").bfloat16()
        gates = (self.value_heads, self.key) if self.by_channel else (self.value_heads,)
        self.decay = -0.1 * torch.rand(*rows, *gates, device="cuda")
        self.beta = torch.rand(*rows, self.value_heads, device="cuda")
        self.state = torch.randn(batch, self.value_heads, self.key, self.value, device="cuda")
        if not self.delta:
            self.q, self.k = 0.1 * self.q, 0.1 * self.k
        self.scale = self.key**-0.5 if self.delta else 1.0

    def bytes(self):
        return 8 * self.state.numel()

    def ours(self, library):
        y, present = torch.empty_like(self.v), torch.empty_like(self.state)
        args = Args(self.q.data_ptr(), self.k.data_ptr(), self.v.data_ptr(), self.state.data_ptr(),
                    self.decay.data_ptr(), self.beta.data_ptr() if self.delta else None, y.data_ptr(),
                    present.data_ptr(), self.batch, self.tokens, self.key, self.value, self.heads, self.heads,
                    self.value_heads, self.value_heads, self.value_heads, self.key if self.by_channel else 1,
                    self.scale, self.delta, 1e-6, BF16, None)
        library.MojoLinearAttentionScratch.restype = Z
        scratch = torch.empty(library.MojoLinearAttentionScratch(ctypes.byref(args)), dtype=torch.uint8, device="cuda")
        args.scratch = scratch.data_ptr()

        def call():
            assert scratch is not None
            launch(library.MojoCudaLinearAttention, ctypes.byref(args))
            return y, present

        return call

    def fla(self, chunked):
        if self.by_channel:
            from fla.ops.kda import chunk_kda as chunk
            from fla.ops.kda import fused_recurrent_kda as recurrent
        else:
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule as chunk
            from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule as recurrent
        # The chunked kernels take fewer heads of keys than of values as they are.
        each = 1 if chunked else self.value_heads // self.heads
        q, k = (x.repeat_interleave(each, 2) for x in (self.q, self.k))
        beta = self.beta.bfloat16() if chunked else self.beta

        def call():
            with torch.no_grad():
                return (chunk if chunked else recurrent)(q, k, self.v, self.decay, beta, scale=self.scale,
                                                         initial_state=self.state, output_final_state=True,
                                                         use_qk_l2norm_in_kernel=True)

        return call

    def simple_gla(self):
        from fla.ops.simple_gla import chunk_simple_gla
        q, k = (x.repeat_interleave(self.value_heads // self.heads, 2) for x in (self.q, self.k))

        def call():
            with torch.no_grad():
                return chunk_simple_gla(q, k, self.v, self.decay, scale=self.scale, initial_state=self.state,
                                        output_final_state=True)

        return call

    def mamba(self, chunked):
        # dt is 1 for each token: decay and v include it. A token's decay is in dt and A, of which A is fixed.
        a = -torch.ones(self.value_heads, device="cuda")
        dt = -self.decay
        x = (self.v.float() / dt[..., None]).bfloat16()
        state = self.state.transpose(2, 3).contiguous()
        if chunked:
            from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

            def call():
                with torch.no_grad():
                    y, last = mamba_chunk_scan_combined(x, dt, a, self.k, self.q, 256, initial_states=state,
                                                        return_final_states=True)
                return y, last.transpose(2, 3)

            return call
        from mamba_ssm.ops.triton.selective_state_update import selective_state_update
        wide = dt[:, 0, :, None].expand(-1, -1, self.value)
        rows = a[:, None, None].expand(-1, self.value, self.key)
        place, none = state.clone(), torch.zeros_like(a)[:, None].expand(-1, self.value)

        def call():
            y = selective_state_update(place, x[:, 0], wide, rows, self.k[:, 0], self.q[:, 0], D=none, dt_bias=none)
            return y[:, None], place.transpose(2, 3)

        return call


def contenders(layer, library, chunked):
    calls = {"mojo": layer.ours(library)}
    want = [x.float().clone() for x in calls["mojo"]()]
    # A prompt's peers are chunked kernels, a step's recurrent ones.
    peers = {"fla chunk": lambda: layer.fla(True), "fla recurrent": lambda: layer.fla(False)} if layer.delta else {
        "mamba-ssm": lambda: layer.mamba(chunked), "fla chunk": layer.simple_gla}
    peers.pop("fla recurrent" if chunked else "fla chunk", None)
    for name, make in peers.items():
        try:
            call = make()
            got = [x.float().clone() for x in call()]
            off = [((a - b).norm() / b.norm()).item() for a, b in zip(got, want)]
            print(f"  {name}: relative difference of Y {off[0]:.1e}, of the state {off[1]:.1e}", flush=True)
            calls[name] = call
        except Exception as error:  # a missing peer, or one that refuses this shape
            print(f"  {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["decode", "prefill"])
    options = parser.parse_args()
    library = ctypes.CDLL(options.library)
    elements = 48 << 20
    buffer, out = torch.zeros(elements, device="cuda"), torch.zeros(1, device="cuda")

    def flush():
        read_kernel[(elements // 8192,)](buffer, out, BLOCK=1024, TIMES=8, num_warps=8)

    read = graph_of(lambda: None, flush, 20)
    replay(read)
    empty = statistics.median(replay(read) for _ in range(5)) / 20
    bandwidth = elements * 4 / empty
    print(f"{torch.cuda.get_device_name()}, memory is read at {bandwidth / 1e3:.0f} GB/s", flush=True)
    cases = [("decode", name, batch, 1) for name in MODELS for batch in (1, 8, 64)]
    cases += [("prefill", name, 1, tokens) for name in MODELS for tokens in (512, 4096, 16384)]
    rows = []
    for kind, name, batch, tokens in cases:
        if options.only not in (None, kind):
            continue
        print(f"{kind} {name} batch {batch} tokens {tokens}", flush=True)
        layer = Layer(name, batch, tokens)
        calls = contenders(layer, library, kind == "prefill")
        n = 20 if kind == "decode" else 3
        graphs = {}
        for contender, call in calls.items():
            for _ in range(3):
                call()
            graphs[contender] = graph_of(call, flush, n)
        base = graph_of(lambda: None, flush, n)
        times = {contender: [] for contender in graphs}
        for _ in range(options.rounds):
            for contender, graph in graphs.items():
                times[contender].append((replay(graph) - replay(base)) / n)
        row = {"kind": kind, "model": name, "batch": batch, "tokens": tokens}
        row |= {contender: statistics.median(t) for contender, t in times.items()}
        row["spread"] = {contender: [min(t), max(t)] for contender, t in times.items()}
        rows.append(row)
        text = ", ".join(f"{contender} {row[contender]:.1f} us" for contender in graphs)
        floor = f", {100 * layer.bytes() / bandwidth / row['mojo']:.0f} % of the bandwidth" if kind == "decode" else ""
        print(f"  {text}{floor}", flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
