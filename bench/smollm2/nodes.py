"""The time by kind of node: onnxruntime's profile of a prefill and of some tokens."""

import collections
import json
import pathlib
import tempfile

from decoder import Decoder

PRODUCTS = ("MatMul", "FusedMatMul", "Gemm")


def kind(event, vocabulary):
    """The op of a node; products by their operands."""
    arguments = event["args"]
    name = arguments["op_name"]
    if name not in PRODUCTS:
        return name
    shapes = [next(iter(shape.values())) for shape in arguments["input_type_shape"]]
    outputs = [next(iter(shape.values())) for shape in arguments["output_type_shape"]]
    if outputs[0][-1] == vocabulary:
        return "product: logits"
    weights = len(shapes) < 2 or len(shapes[1]) < 3  # a weight that onnxruntime packed is not an input
    return "product: weights" if weights else "product: attention"


def profile(arguments, prompt, tokens):
    """{"prefill": …, "decode": …}: the milliseconds of a run, and of each kind of node the number and milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        decoder = Decoder(**arguments, profile=pathlib.Path(folder) / "profile")
        best = decoder.step(prompt)  # once for the first touch of memory
        decoder.reset()
        best = decoder.step(prompt)
        for _ in range(tokens):
            best = decoder.step([best])
        events = json.loads(pathlib.Path(decoder.session.end_profiling()).read_text())
    vocabulary = decoder.session.get_outputs()[0].shape[-1]
    runs = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])[1:]
    nodes = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("kernel_time")]
    parts = {}
    for part, chosen in (("prefill", runs[:1]), ("decode", runs[1:])):
        begin, end = chosen[0]["ts"], chosen[-1]["ts"] + chosen[-1]["dur"]
        kinds = collections.defaultdict(lambda: [0, 0.0])
        for event in nodes:
            if begin <= event["ts"] < end:
                entry = kinds[kind(event, vocabulary)]
                entry[0] += 1 / len(chosen)
                entry[1] += event["dur"] / 1000 / len(chosen)
        parts[part] = {
            "run": sum(e["dur"] for e in chosen) / 1000 / len(chosen),
            "kinds": {k: tuple(v) for k, v in kinds.items()},
        }
    return parts
