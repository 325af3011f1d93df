"""Tokens per second of ORTModelForCausalLM with a model as exported and patched, in turns, for one prompt.

usage: optimum_rates.py EXPORTED PATCHED GOLDEN.npz [--rounds 5]        (folders as from_pretrained takes them)

GOLDEN has promptN and greedyN, tokens that both have to generate.
"""

import argparse
import collections
import statistics
import sys
import time

import mojo_patch
import numpy as np
import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForCausalLM


def load(folder, kernels):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if kernels:
        options.register_custom_ops_library(mojo_patch.get_library_path())
    return ORTModelForCausalLM.from_pretrained(folder, session_options=options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "exported", "patched", "golden":
        parser.add_argument(name)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    models = {"exported": load(options.exported, False), "patched": load(options.patched, True)}
    golden = np.load(options.golden)
    rates = collections.defaultdict(list)
    for turn in range(options.rounds + 1):  # the first one warms up, and compares
        for name, model in models.items():
            for n in range(3) if turn == 0 else [0]:
                ids, want = torch.tensor(golden[f"prompt{n}"][None]), golden[f"greedy{n}"]
                begin = time.monotonic()
                got = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=None,
                                     max_new_tokens=len(want))
                seconds = time.monotonic() - begin
                if got[0, ids.shape[1]:].tolist() != want.tolist():
                    sys.exit(f"{name}: prompt {n} has other tokens than the recorded ones")
                if turn:
                    rates[name].append(len(want) / seconds)
    for name, values in rates.items():
        print(f"optimum, {name}: {statistics.median(values):.1f} tokens/s ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
