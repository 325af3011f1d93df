"""Generates with onnxruntime-genai from folders of export genai:  genai.py TOKENS PROMPTS FOLDER=BATCH...

PROMPTS are ids, 1,2,3/4,5. BATCH is one, or any for all prompts together. Prints the tokens of each prompt of each
folder in a line.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime_genai as og


def generate(model, prompts, tokens, pad):
    longest = max(map(len, prompts))
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, batch_size=len(prompts), max_length=longest + tokens)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array([p + [pad] * (longest - len(p)) for p in prompts], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    for i in range(len(prompts)):
        print(*generator.get_sequence(i)[longest:], sep=",")


tokens = int(sys.argv[1])
prompts = [[int(i) for i in p.split(",")] for p in sys.argv[2].split("/")]
for argument in sys.argv[3:]:
    folder, batch = argument.rsplit("=", 1)
    path = pathlib.Path(folder) / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["eos_token_id"] = [1]  # a token that is not generated
    path.write_text(json.dumps(config))
    model = og.Model(folder)
    for group in [prompts] if batch == "any" else [[p] for p in prompts]:
        generate(model, group, tokens, config["model"]["pad_token_id"])
