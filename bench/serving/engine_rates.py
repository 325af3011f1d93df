"""Tokens per second of the Engine over those of the Decoder (docs/examples/ray), 16 sequences at once, without Ray.

usage: engine_rates.py ROWS PAGED [--rounds 3]

ROWS is of mojo-patch apply --last-logits --cache static --past-length=rows, PAGED with --cache paged=16. Both serve the
same prompts in turns, and must generate the same tokens: of 1 to 40 tokens, and of as many after a common start of 256.
"""

import argparse
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples" / "ray"))
ROWS, ROOM, NEW = 16, 384, 32


def make_prompts(seed, common, count):
    draw = random.Random(seed)
    start = [draw.randrange(3, 49152) for _ in range(common)]
    return [start + [draw.randrange(3, 49152) for _ in range(draw.randint(1, 40))] for _ in range(count)]


def serve(decoder, prompts):
    """Returns the tokens after each prompt; a prompt starts when it fits."""
    waiting, running, tokens = list(enumerate(prompts)), [], [[] for _ in prompts]
    while waiting or running:
        if running:
            for i, token in zip(running, decoder.step()):
                tokens[i] += [] if token is None else [token]
        while waiting and decoder.fits(waiting[0][1], NEW):
            i, ids = waiting.pop(0)
            token = decoder.start(ids, NEW)
            tokens[i] += [] if token is None else [token]
            running.append(i)
        for row in reversed(range(len(running))):
            if len(tokens[running[row]]) == NEW:
                decoder.stop(row)
                running[row] = running[-1]
                running.pop()
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    parser.add_argument("paged")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    from decoder import Decoder
    from engine import Engine

    decoders = [Decoder(options.rows, ROWS, ROOM, 2), Engine(options.paged, ROWS, ROOM, 2)]
    for decoder in decoders:
        serve(decoder, make_prompts(0, 0, 4))
    for common in 0, 256:
        walls, works = [], []
        for turn in range(options.rounds):
            prompts, results = make_prompts(turn + 1, common, 2 * ROWS if not common else ROWS), {}
            for i in (0, 1) if turn % 2 else (1, 0):
                wall, work = time.perf_counter(), time.process_time()
                tokens = serve(decoders[i], prompts)
                results[i] = tokens, time.perf_counter() - wall, time.process_time() - work
            if results[0][0] != results[1][0]:
                sys.exit("the tokens differ")
            walls.append(results[0][1] / results[1][1])
            works.append(results[0][2] / results[1][2])
        for what, ratios in ("time", walls), ("processor time", works):
            print(f"common start of {common} tokens: {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
                  f"{max(ratios):.2f}) by {what}", flush=True)


if __name__ == "__main__":
    main()
