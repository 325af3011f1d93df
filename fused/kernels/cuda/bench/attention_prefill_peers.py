"""Times torch's attention of prompts beside attention_prefill_bench: cuDNN and flash, bfloat16, batch 1.

python attention_prefill_peers.py [--flex]    --flex adds flex_attention, compiled, where there is a window or softcap
"""

import argparse
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# name, heads, heads of keys, width of keys, width of values, window, softcap
SHAPES = [
    ("llama-8b", 32, 8, 128, 128, 0, 0),
    ("qwen3-30b", 32, 4, 128, 128, 0, 0),
    ("gpt-oss", 64, 8, 64, 64, 0, 0),
    ("gpt-oss-window", 64, 8, 64, 64, 128, 0),
    ("gemma2-9b", 16, 8, 256, 256, 0, 50),
    ("gemma2-9b-plain", 16, 8, 256, 256, 0, 0),
    ("deepseek", 16, 16, 192, 128, 0, 0),
]
LENGTHS = [512, 4096, 16384]


def microseconds(call, calls):
    """The median of seven runs of so many calls."""
    times = []
    for run in range(8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        if run > 0:
            times.append(begin.elapsed_time(end) * 1000 / calls)
    return statistics.median(times)


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flex", action="store_true")
    args = parser.parse_args()
    for name, heads, key_heads, width, value_width, window, softcap in SHAPES:
        contenders = {}
        if not window and not softcap:
            contenders = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
        elif args.flex:
            contenders = {"flex": flex(window, softcap)}
        for length in LENGTHS:
            # As a model has them: [batch, length, heads, width], seen as [batch, heads, length, width].
            q, k, v = (
                torch.randn(1, length, h, w, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
                for h, w in ((heads, width), (key_heads, width), (key_heads, value_width))
            )
            wide = min(window, length) if window else length
            operations = 2 * (wide * (wide + 1) / 2 + (length - wide) * wide) * (width + value_width) * heads
            calls = int(max(3, min(50, 3e12 / operations)))
            for contender, how in contenders.items():
                try:
                    if isinstance(how, SDPBackend):
                        with sdpa_kernel(how):
                            attention = torch.nn.functional.scaled_dot_product_attention
                            us = microseconds(lambda: attention(q, k, v, is_causal=True, enable_gqa=True), calls)
                    else:
                        us = microseconds(how(q, k, v), calls)
                except RuntimeError as error:
                    print(f"{name:16} {length:6} {contender:6} {str(error).splitlines()[0][:60]}")
                    continue
                print(
                    f"{name:16} {length:6} {contender:6} {us:10.1f} us {operations / us * 1e-6:7.1f} TFLOP/s",
                    flush=True,
                )


main()
