"""Times decode steps in onnxruntime sessions: mojo.Attention and com.microsoft.GroupQueryAttention.

    python attention_sessions.py libmojo_ops_cuda.so

Both append to the cache in place. A time is the median of 30 between events around a run, a CUDA graph,
after L2 was emptied. ORT_ENABLE_XQA, ORT_ENABLE_CUDNN_FLASH_ATTENTION and ORT_DISABLE_FLASH_ATTENTION choose
GroupQueryAttention's kernels.
"""
import statistics
import sys

import torch
from onnx import helper
from sessions import session

# name: heads, heads of keys, width, window, softcap, sinks
MODELS = {
    "llama-8b": (32, 8, 128, 0, 0, False),
    "qwen3-30b": (32, 4, 128, 0, 0, False),
    "gpt-oss": (64, 8, 64, 128, 0, True),
    "gpt-oss-full": (64, 8, 64, 0, 0, True),
    "gemma2": (8, 4, 256, 0, 50, False),
}
ROUNDS = 30


def ours(model, inputs, cache):
    """The node and its feeds."""
    _, _, width, window, softcap, sinks = model
    names = ["q", "k", "v", "", "past_key", "past_value", "past_length", "", "sink" if sinks else ""]
    node = helper.make_node("Attention", names, ["y", "present_key", "present_value"], domain="mojo",
                            scale=width**-0.5, causal=1, window=window, softcap=float(softcap), empty="zero",
                            head_order="blocked", q_layout="bsnh", k_layout="bsnh", v_layout="bsnh", y_layout="bsnh")
    lengths = torch.tensor([cache[0].shape[2] - 1], dtype=torch.int64, device="cuda")
    feeds = dict(inputs, past_key=cache[0], past_value=cache[1], past_length=lengths)
    if sinks:
        feeds["sink"] = torch.zeros(model[0], device="cuda")
    return node, feeds


def theirs(model, inputs, cache):
    heads, key_heads, width, window, softcap, sinks = model
    names = ["q", "k", "v", "past_key", "past_value", "seqlens", "total", "", "", "", ""] + ["sink"] * sinks
    node = helper.make_node("GroupQueryAttention", names, ["y", "present_key", "present_value"], domain="com.microsoft",
                            num_heads=heads, kv_num_heads=key_heads, scale=width**-0.5, softcap=float(softcap),
                            local_window_size=window or -1)
    batch, keys = cache[0].shape[0], cache[0].shape[2]
    flat = {name: t.flatten(2) for name, t in inputs.items()}
    feeds = dict(flat, past_key=cache[0], past_value=cache[1],
                 seqlens=torch.full((batch,), keys - 1, dtype=torch.int32, device="cuda"),
                 total=torch.tensor(keys, dtype=torch.int32))
    if sinks:
        feeds["sink"] = torch.zeros(heads, device="cuda", dtype=torch.bfloat16)
    return node, feeds


def main():
    library, flushed = sys.argv[1], torch.randn(48 << 20, device="cuda")
    total = torch.zeros((), device="cuda")
    stream = torch.cuda.Stream()

    def microseconds(call):
        times = []
        with torch.cuda.stream(stream):
            for _ in range(ROUNDS):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                for _ in range(4):  # long enough for the host to be ahead
                    torch.sum(flushed, dim=0, out=total)
                begin.record()
                call()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1000)
        return statistics.median(times)

    for name, model in MODELS.items():
        heads, key_heads, width = model[:3]
        for batch, keys in [(b, k) for b in (1, 8, 64) for k in (512, 4096, 32768) if b * k <= 1 << 18]:
            random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
            inputs = {"q": random(batch, 1, heads, width)} | {n: random(batch, 1, key_heads, width) for n in "kv"}
            cache = [random(batch, key_heads, keys, width) for _ in range(2)]
            times, results = [], []
            for make, ops in ((ours, library), (theirs, None)):
                node, feeds = make(model, inputs, cache)
                y = torch.empty_like(feeds["q"])
                outputs = {"y": y, "present_key": cache[0], "present_value": cache[1]}
                try:
                    times.append(microseconds(session(node, feeds, outputs, stream, ops)))
                    results.append(y.flatten().float())
                except Exception as error:
                    print(name, batch, keys, node.op_type, str(error).splitlines()[0][:150])
            if len(times) < 2:
                continue
            off = ((results[0] - results[1]).norm() / results[0].norm()).item()
            print(f"{name:13} batch {batch:2} keys {keys:5}  ours {times[0]:8.2f} us  theirs {times[1]:8.2f} us"
                  f"  ratio {times[0] / times[1]:.2f}  results differ by {off:.1e}", flush=True)


main()
