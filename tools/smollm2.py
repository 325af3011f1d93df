#!/usr/bin/env python3
"""Compares what `mojo-patch generate --json` printed with a recorded generation of PyTorch:  smollm2.py PRINTED
GOLDEN.npz

The ids of the prompts must be equal. Where a token differs, its margin over the second best must be that of a near tie.
Needs no numpy.
"""

import array
import json
import sys
import zipfile

NEAR_TIE = 1e-2  # in logits

printed, golden = sys.argv[1:]
with open(printed) as file:
    text = file.read()
sequences = json.JSONDecoder().raw_decode(text[text.index("\n{") + 1 :])[0]["sequences"]
recorded = zipfile.ZipFile(golden)


def read(name, kind):
    """A vector of an .npz file, little-endian: format 1.0 has the length of its header in two bytes."""
    data = recorded.read(name + ".npy")
    vector = array.array(kind, data[10 + int.from_bytes(data[8:10], "little") :])
    if sys.byteorder == "big":
        vector.byteswap()
    return list(vector)


failed = False
for i, sequence in enumerate(sequences):
    want, margins = read(f"greedy{i}", "q"), read(f"top2gap{i}", "f")
    prompt = sequence["prompt_ids"] == read(f"prompt{i}", "q")
    first = next((k for k, (a, b) in enumerate(zip(sequence["ids"], want, strict=True)) if a != b), None)
    near = first is not None and margins[first] < NEAR_TIE
    failed |= not prompt or first is not None and not near
    tokens = f"all {len(want)} tokens are equal, the least margin is {min(margins):.2g}"
    if first is not None:
        tokens = f"token {first} is {sequence['ids'][first]} in place of {want[first]}, margin {margins[first]:.2g}"
        tokens += ": a near tie" if near else ""
    same = f"{'are' if prompt else 'are NOT'} those of Hugging Face's tokenizer"
    print(f"prompt {i}: {len(sequence['prompt_ids'])} ids {same}; {tokens}")
sys.exit(failed)
