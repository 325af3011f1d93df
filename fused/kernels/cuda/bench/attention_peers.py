"""Times torch's attention, cuDNN and flash in bfloat16, as attention_bench (steps) and attention_prefill_bench
(prompts) time ours.

    python attention_peers.py [--prompts [--flex]]

Steps: a CUDA graph of L2 flushes, each followed by the call, minus the time of only the flushes; the median of five.
Nothing is appended to keys and values. Prompts: the median of seven runs of calls in a row, without a flush, batch 1;
--flex adds flex_attention, compiled, if there is a window or softcap.
"""

import argparse
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}

# name: heads, heads of keys, width
STEPS = {"llama-8b": (32, 8, 128), "qwen3-30b": (32, 4, 128)}

# name: heads, heads of keys, width of keys, width of values, window, softcap
PROMPTS = {
    "llama-8b": (32, 8, 128, 128, 0, 0),
    "qwen3-30b": (32, 4, 128, 128, 0, 0),
    "gpt-oss": (64, 8, 64, 64, 0, 0),
    "gpt-oss-window": (64, 8, 64, 64, 128, 0),
    "gemma2-9b": (16, 8, 256, 256, 0, 50),
    "gemma2-9b-plain": (16, 8, 256, 256, 0, 0),
    "deepseek": (16, 16, 192, 128, 0, 0),
}


def milliseconds(work):
    """Time of work on the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def in_a_row(call, calls):
    """Microseconds of a call among several in a row."""

    def run():
        for _ in range(calls):
            call()

    run()
    return statistics.median(milliseconds(run) for _ in range(7)) * 1000 / calls


class Flushed:
    """Times calls after flushes, in microseconds."""

    CALLS = 10

    def __init__(self):
        self.flushed = torch.randn(48 << 20, device="cuda")  # three times the size of L2
        self.sum = torch.zeros((), device="cuda")

    def graph(self, call):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(self.CALLS):
                torch.sum(self.flushed, dim=0, out=self.sum)
                call()
        graph.replay()
        return graph

    def __call__(self, call):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        times = [
            statistics.median(milliseconds(graph.replay) for _ in range(5))
            for graph in (self.graph(call), self.graph(lambda: None))
        ]
        return (times[0] - times[1]) * 1000 / self.CALLS


def random(batch, heads, length, width):
    return torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16)


def steps():
    time = Flushed()
    for name, (heads, key_heads, width) in STEPS.items():
        for batch in (1, 8, 64):
            for keys in (512, 4096, 32768):
                q, k, v = (random(batch, n, rows, width) for n, rows in [(heads, 1)] + [(key_heads, keys)] * 2)
                times = []
                for backend, kind in BACKENDS.items():
                    with sdpa_kernel(kind), torch.no_grad():
                        us = time(lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True))
                    times.append(f"{backend} {us:9.2f} us")
                print(f"{name:10} batch {batch:2} keys {keys:5}  {'  '.join(times)}", flush=True)


def flex(window, softcap):
    """flex_attention with a causal mask, a window and a softcap, compiled."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)

    def seen(_batch, _head, query, key):
        return (key <= query) & (key > query - window) if window else key <= query

    def capped(score, _batch, _head, _query, _key):
        return softcap * torch.tanh(score / softcap)

    def call(q, k, v):
        mask = create_block_mask(seen, None, None, q.shape[2], k.shape[2])
        return lambda: compiled(q, k, v, block_mask=mask, score_mod=capped if softcap else None, enable_gqa=True)

    return call


def prompts(with_flex):
    for name, (heads, key_heads, width, value_width, window, softcap) in PROMPTS.items():
        contenders = {}
        if not window and not softcap:
            contenders = BACKENDS
        elif with_flex:
            contenders = {"flex": flex(window, softcap)}
        for length in (512, 4096, 16384):
            # As a model has them: [batch, length, heads, width], seen as [batch, heads, length, width].
            q, k, v = (
                random(1, length, h, w).transpose(1, 2)
                for h, w in ((heads, width), (key_heads, width), (key_heads, value_width))
            )
            wide = min(window, length) if window else length
            operations = 2 * (wide * (wide + 1) / 2 + (length - wide) * wide) * (width + value_width) * heads
            calls = int(max(3, min(50, 3e12 / operations)))
            for contender, how in contenders.items():
                try:
                    if isinstance(how, SDPBackend):
                        with sdpa_kernel(how):
                            us = in_a_row(
                                lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), calls
                            )
                    else:
                        us = in_a_row(how(q, k, v), calls)
                except RuntimeError as error:
                    print(f"{name:16} {length:6} {contender:6} {str(error).splitlines()[0][:60]}")
                    continue
                print(
                    f"{name:16} {length:6} {contender:6} {us:10.1f} us {operations / us * 1e-6:7.1f} TFLOP/s",
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", action="store_true")
    parser.add_argument("--flex", action="store_true")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    if args.prompts:
        prompts(args.flex)
    else:
        steps()


if __name__ == "__main__":
    main()
