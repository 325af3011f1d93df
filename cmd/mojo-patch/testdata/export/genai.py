"""Generates with onnxruntime-genai from folders of export genai:  genai.py TOKENS PROMPTS FOLDER=BATCH...

PROMPTS are ids, 1,2,3/4,5. BATCH is one, any for all prompts together, or engine for genai's Engine. Prints the tokens
of each prompt of each folder in a line.
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


def serve(model, prompts, tokens):
    """Begins with the first prompt. Each step adds another prompt to the sequences that run."""
    engine = og.Engine(model)
    events = engine.create_event_buffer(64)
    requests, texts = [], []
    while len(requests) < len(prompts) or engine.has_pending_requests():
        if len(requests) < len(prompts):
            requests.append(engine.create_request())
            options = og.TurnOptions(requests[-1])
            options.set_do_sample(False)
            options.set_max_generated_tokens(tokens)
            requests[-1].begin_turn(np.array(prompts[len(texts)], np.int32), options)
            texts.append([])
        engine.run(events)
        for event in (events[i] for i in range(len(events))):
            if event.flags & og.EngineEventFlags.TOKEN:
                texts[requests.index(event.request)].append(event.token)
            if event.flags & og.EngineEventFlags.TURN_FINISHED:
                event.request.close()
    for text in texts:
        print(*text, sep=",")


tokens = int(sys.argv[1])
prompts = [[int(i) for i in p.split(",")] for p in sys.argv[2].split("/")]
for argument in sys.argv[3:]:
    folder, batch = argument.rsplit("=", 1)
    path = pathlib.Path(folder) / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["eos_token_id"] = [1]  # a token that is not generated
    path.write_text(json.dumps(config))
    model = og.Model(folder)
    if batch == "engine":
        serve(model, prompts, tokens)
        continue
    for group in [prompts] if batch == "any" else [[p] for p in prompts]:
        generate(model, group, tokens, config["model"]["pad_token_id"])
