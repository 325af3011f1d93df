"""Times torch's scaled_dot_product_attention on steps of decoding, as attention_bench times ours.

    python attention_peers.py

A CUDA graph of flushes of L2, each followed by the call, less the flushes alone; the median of five. Keys and values
lie there; nothing is appended.
"""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

MODELS = {"llama-8b": (32, 8, 128), "qwen3-30b": (32, 4, 128)}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
CALLS = 10


class Timer:
    """Takes the time of calls after flushes."""

    def __init__(self):
        self.flushed = torch.randn(48 << 20, device="cuda")  # three times as much as L2 holds
        self.sum = torch.zeros((), device="cuda")

    def flush(self):
        torch.sum(self.flushed, dim=0, out=self.sum)

    def graph(self, call):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                self.flush()
                call()
        return graph

    def microseconds(self, call):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        both, flushes = self.graph(call), self.graph(lambda: None)
        replay(both)
        replay(flushes)
        middle = lambda graph: sorted(replay(graph) for _ in range(5))[2]
        return (middle(both) - middle(flushes)) * 1000 / CALLS


def replay(graph):
    """Milliseconds of a replay."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def main():
    timer = Timer()
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    for name, (heads, key_heads, width) in MODELS.items():
        for batch in (1, 8, 64):
            for keys in (512, 4096, 32768):
                random = lambda n, length: torch.randn(batch, n, length, width, device="cuda", dtype=torch.bfloat16)
                q, k, v = random(heads, 1), random(key_heads, keys), random(key_heads, keys)
                times = []
                for backend, kind in BACKENDS.items():
                    with sdpa_kernel(kind), torch.no_grad():
                        us = timer.microseconds(lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True))
                    times.append(f"{backend} {us:9.2f} us")
                print(f"{name:10} batch {batch:2} keys {keys:5}  {'  '.join(times)}", flush=True)


if __name__ == "__main__":
    main()
