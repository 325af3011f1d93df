"""Generates with genai's Engine from folders of export genai --engine:  engine.py TOKENS PROMPTS FOLDER...

PROMPTS are ids, 1,2,3/4,5. The first prompt begins alone, and each step adds the next one, so that prompts run beside
tokens of other sequences. A sequence leaves when it has TOKENS tokens. Prints the tokens of each prompt of each folder
in a line.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime_genai as og


def generate(folder, prompts, tokens):
    engine = og.Engine(og.Model(folder))
    events = engine.create_event_buffer(64)
    waiting, texts, requests = list(enumerate(prompts)), {}, []
    while waiting or engine.has_pending_requests():
        if waiting:
            i, prompt = waiting.pop(0)
            request = engine.create_request()
            options = og.TurnOptions(request)
            options.set_do_sample(False)
            options.set_max_generated_tokens(tokens)
            request.begin_turn(np.array(prompt, np.int32), options)
            requests.append(request)
            texts[i] = []
        engine.run(events)
        for k in range(len(events)):
            event = events[k]
            i = requests.index(event.request)
            if event.flags & og.EngineEventFlags.FAILED:
                sys.exit(f"{folder}, prompt {i}: {event.error_code}")
            if event.flags & og.EngineEventFlags.TOKEN:
                texts[i].append(event.token)
            if event.flags & og.EngineEventFlags.TURN_FINISHED:
                event.request.close()
    for i in range(len(prompts)):
        print(*texts[i], sep=",")


prompts = [[int(i) for i in p.split(",")] for p in sys.argv[2].split("/")]
for folder in sys.argv[3:]:
    path = pathlib.Path(folder) / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"]["eos_token_id"] = [1]  # a token that is not generated
    path.write_text(json.dumps(config))
    generate(folder, prompts, int(sys.argv[1]))
