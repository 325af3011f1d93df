"""Generates with onnxruntime-genai from a folder of export genai:  genai.py FOLDER TOKENS BATCH IDS...

Each IDS is a prompt, 1,2,3. BATCH is one, or any for all prompts together. Prints the tokens of each prompt in a line.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime_genai as og

folder, tokens, batch = sys.argv[1], int(sys.argv[2]), sys.argv[3]
prompts = [[int(i) for i in p.split(",")] for p in sys.argv[4:]]
path = pathlib.Path(folder) / "genai_config.json"
config = json.loads(path.read_text())
pad = config["model"]["pad_token_id"]
config["model"]["eos_token_id"] = [config["model"]["vocab_size"] - 1]  # none that comes
path.write_text(json.dumps(config))
model = og.Model(folder)
for group in [prompts] if batch == "any" else [[p] for p in prompts]:
    longest = max(map(len, group))
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, batch_size=len(group), max_length=longest + tokens)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([p + [pad] * (longest - len(p)) for p in group], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    for i in range(len(group)):
        print(*generator.get_sequence(i)[longest:], sep=",")
