"""Compares the Engine's tokens with the model as exported, and its bits alone and in company. Needs no Ray.

usage: engine_test.py MODEL   (a decoder with a cache, such as models/llama-kv-dynamo-fp32.onnx)
"""

import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import mojo_patch

from engine import Engine

MODEL = sys.argv[1]
NEW = 9
ROOM = 96


class Recorder(Engine):
    """Keeps the bits of the logits of each sequence."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.bits = {}

    def choose(self, i, logits):
        self.bits.setdefault(self.running[i], []).append(logits.tobytes())
        return super().choose(i, logits)


def serve(engine, jobs, arrivals=None):
    """Generates for jobs (ids, number of new tokens, further arguments of start) in their order; None as number: the
    client leaves after 3 steps. A job arrives in the step that arrivals names. Returns a Row for each job."""
    waiting, rows, steps = list(range(len(jobs))), [None] * len(jobs), 0
    places, began, most = [], {}, 0
    while waiting or places:
        while waiting and (not arrivals or arrivals[waiting[0]] <= steps) and \
                engine.fits(jobs[waiting[0]][0], jobs[waiting[0]][1] or NEW):
            job = waiting.pop(0)
            engine.start(jobs[job][0], jobs[job][1] or NEW, *jobs[job][2:])
            rows[job] = engine.running[-1]
            places.append(job)
            began[job] = steps
        most = max(most, len(places))
        engine.step()
        steps += 1
        for i in reversed(range(len(places))):
            ids, new = jobs[places[i]][:2]
            if len(rows[places[i]].tokens) == len(ids) + (new or NEW) or not new and steps - began[places[i]] >= 3:
                engine.stop(i)
                places[i] = places[-1]
                places.pop()
    return rows, most


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.model = str(pathlib.Path(temp.name) / "paged.onnx")
        mojo_patch.apply(MODEL, cls.model, last_logits=True, cache="paged=4")

    def jobs(self, count, seed):
        """Prompts of 1 to 60 tokens, half of which begin alike."""
        draw = random.Random(seed)
        common = [draw.randrange(160) for _ in range(60)]
        jobs = []
        for _ in range(count):
            ids = common[: draw.randrange(60)] if draw.random() < 0.5 else []
            jobs.append((ids + [draw.randrange(160) for _ in range(draw.randrange(1, 61 - len(ids)))],
                         None if draw.random() < 0.1 else draw.randrange(1, NEW + 1)))
        return jobs

    def test_tokens(self):
        prompts = [[5, 9, 17, 3], [60], list(range(7, 47)), list(range(7, 49))]
        rows, _ = serve(Engine(self.model, 4, ROOM, chunk=8), [(ids, NEW) for ids in prompts])
        for ids, row in zip(prompts, rows):
            self.assertEqual(row.tokens[len(ids):], self.generate(ids))

    def generate(self, ids, *options):
        """The tokens of mojo-patch generate with the model as exported."""
        command = [pathlib.Path(mojo_patch.__file__).parents[1] / "bin" / "mojo-patch", "generate", MODEL, "--ids",
                   ",".join(map(str, ids)), "-n", str(NEW), *options]
        return [int(x) for x in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]

    def test_sampled(self):
        """The model chooses each sequence's tokens by its own options and seed, beside prompts and greedy sequences: as
        generate does on the host, also if the sequence is continued. The logits do not leave the session."""
        names = "temperature", "top-k", "top-p", "min-p", "repetition-penalty", "frequency-penalty", "presence-penalty"
        every = [[0.75, 50, 0.9375, 0.015625, 1.25, 0.5, -0.5], [1.5, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 2, 1, 0], None]
        jobs, want = [], []
        for seed, (ids, _) in enumerate(self.jobs(24, 3), 2**63):
            controls = every[seed % 4]
            options = [f"--{name}={value}" for name, value in zip(names, controls or ()) if value]
            want.append(self.generate(ids, *options, *[f"--seed={seed}"] * (options[:1] > ["--t"])))
            jobs.append((ids, NEW, controls, seed))
        jobs += [(ids + tokens[:4], NEW - 4, *options, 4) for (ids, _, *options), tokens in zip(jobs, want)]
        want += [tokens[4:] for tokens in want]
        for last in True, False:
            model = self.model.replace("paged", f"sample-{last}")
            mojo_patch.apply(MODEL, model, last_logits=last, cache="paged=4", sample=True)
            engine = Engine(model, 16, ROOM, chunk=8, prompt_tokens=40)
            engine.logits = "not fetched"
            rows, most = serve(engine, jobs, [i // 3 for i in range(len(jobs))])
            self.assertGreaterEqual(most, 9)
            self.check_empty(engine)
            for (ids, *options), row, tokens in zip(jobs, rows, want):
                self.assertEqual(row.tokens[len(ids):], tokens, options)
        engine.start([1, 2], NEW, [1e-42] + [0] * 6)  # a logit divided by it is infinite
        engine.start([1, 2], NEW, every[0])
        failed, token = engine.step()
        self.assertRegex(str(failed), "no token can be chosen")
        self.assertGreaterEqual(token, 0)
        with self.assertRaisesRegex(ValueError, "patch it with --sample"):
            Engine(self.model, 2, ROOM).start([1], NEW, every[0])

    def test_bits(self):
        """Alone, in company that comes and goes, and in a full pool, a sequence has the same bits."""
        self.compare_bits(self.model, 60)

    def test_codes(self):
        """The same with pools of codes, whose scales depend on the tokens of their own sequence."""
        for codes in "int8", "fp8":
            model = self.model.replace("paged", codes)
            mojo_patch.apply(MODEL, model, last_logits=True, cache="paged=4", cache_type=codes)
            self.compare_bits(model, 40)

    def compare_bits(self, model, count):
        jobs = self.jobs(count, 1)
        alone = []
        for job in jobs:
            engine = Recorder(model, 1, ROOM, chunk=8)
            [row], _ = serve(engine, [job])
            alone.append(engine.bits.get(row, []))
        self.assertGreater(sum(map(len, alone)), 3 * count)
        draw = random.Random(2)
        for pool, company in (None, 9), (200, 3):
            engine = Recorder(model, 16, ROOM, chunk=8, prompt_tokens=40, pool=pool)
            rows, most = serve(engine, jobs, sorted(draw.randrange(20) for _ in jobs))
            with self.subTest(f"{model}, {pool}"):
                self.assertGreaterEqual(most, company)
                self.check_empty(engine)
                for i, row in enumerate(rows):
                    bits = engine.bits.get(row, [])
                    if jobs[i][1]:
                        self.assertEqual(len(bits), jobs[i][1])
                    for got, want in zip(bits, alone[i]):  # a client that leaves has some of them
                        self.assertEqual(got, want, f"job {i}")

    def check_empty(self, engine):
        self.assertEqual(engine.running, [])
        self.assertEqual(len(engine.blocks.free), len(engine.blocks.holders))
        self.assertEqual(set(engine.blocks.holders), {0})

    def test_prefixes(self):
        """A second prompt computes only what the first one does not have, beside it and after it."""
        ids = list(range(3, 60))
        engine = Engine(self.model, 4, ROOM, chunk=8)
        serve(engine, [(ids, 3)])
        computed = []
        run = engine._run
        engine._run = lambda parts: computed.append(sum(n for _, _, n in parts)) or run(parts)
        serve(engine, [(ids[:50], 1)])
        self.assertEqual(sum(computed), 2)
        computed.clear()
        other = [x + 1 for x in ids]
        serve(engine, [(other, 1), (other, 1)])
        self.assertEqual(sum(computed), 57 + 1)

    def test_full(self):
        """Sequences wait for blocks in their order, and one that cannot fit is refused."""
        engine = Engine(self.model, 16, ROOM, chunk=8, pool=64)
        rows, most = serve(engine, [([i + 1] * 20, 8) for i in range(12)])
        self.assertEqual(most, 2)
        self.assertTrue(all(len(row.tokens) == 28 for row in rows))
        self.check_empty(engine)
        with self.assertRaisesRegex(ValueError, "40 tokens and 40 more: the pools have 16 blocks of 4"):
            engine.fits([1] * 40, 40)
        with self.assertRaisesRegex(ValueError, "id 160: the model has 160"):
            engine.fits([160], 1)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "has no input block_table: patch it with --cache paged"):
            Engine(MODEL, 2, 32)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
