"""Tokens per second of folders in onnxruntime-genai's Engine on a GPU: 1, 8, 32 and 64 requests that begin together.

usage: genai_engine.py FOLDER... [--turns 2]

The folders are of mojo-patch export genai --engine --max-batch-size 64, and of genai's own builder with the extra
options use_paged_attention=true max_batch_size=64 prune_lm_head=true. Prompts have 16 to 500 tokens, and 128 follow.
Each folder runs without and with CUDA graphs, in a process of its own, and all folders in turns. Each number of
requests runs three times, the first for warming up.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import onnxruntime as ort
import onnxruntime_genai as og

NEW = 128


def serve(engine, prompts):
    """Returns the seconds until each prompt has NEW tokens."""
    events = engine.create_event_buffer(256)
    start = time.perf_counter()
    requests = [engine.create_request() for _ in prompts]  # a request that nothing refers to ends
    for request, prompt in zip(requests, prompts):
        options = og.TurnOptions(request)
        options.set_do_sample(False)
        options.set_max_generated_tokens(NEW)
        request.begin_turn(prompt, options)
    tokens = 0
    while engine.has_pending_requests():
        engine.run(events)
        for event in (events[i] for i in range(len(events))):
            if event.flags & og.EngineEventFlags.FAILED:
                raise RuntimeError(f"a request failed: {event.error_code}")
            tokens += bool(event.flags & og.EngineEventFlags.TOKEN)
            if event.flags & og.EngineEventFlags.TURN_FINISHED:
                event.request.close()
    if tokens != NEW * len(prompts):
        raise RuntimeError(f"{tokens} tokens of {len(prompts)} requests")
    return time.perf_counter() - start


def measure(folder, graph):
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    vocabulary = config["model"]["vocab_size"]
    config["model"]["eos_token_id"] = [vocabulary - 1]  # hardly ever generated
    for provider in config["model"]["decoder"]["session_options"]["provider_options"]:
        provider["cuda"]["enable_cuda_graph"] = graph
    path.write_text(json.dumps(config))
    engine = og.Engine(og.Model(str(folder)))
    random = np.random.default_rng(5)
    for count in (1, 8, 32, 64):
        lengths = random.integers(16, 501, count)
        for turn in range(3):
            took = serve(engine, [random.integers(0, vocabulary, n, np.int32) for n in lengths])
            if turn > 0:
                print(f"  {count:2} requests: {NEW * count / took:7.0f} tokens/s", flush=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folders", nargs="+", type=pathlib.Path)
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--graph", help=argparse.SUPPRESS)
args = parser.parse_args()
if args.graph:
    measure(args.folders[0], args.graph)
    sys.exit()
print("onnxruntime", ort.__version__, "genai", og.__version__)
for turn in range(args.turns):
    for graph in ("0", "1"):
        for folder in args.folders:
            print(f"{folder.name}, CUDA graphs {graph}, turn {turn}", flush=True)
            subprocess.run([sys.executable, __file__, str(folder), "--graph", graph], check=True)
