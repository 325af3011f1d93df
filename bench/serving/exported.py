"""A deployment for models as exported, instead of docs/examples/ray/serve.py's: batches of @serve.batch.

Requests that come together are a batch, with padding on the left, until the last one ends: a graph that counts
positions from the length of its past cannot take another one in between.
"""

import asyncio

import mojo_patch
import numpy as np
import onnxruntime as ort
from ray import serve


class Decoder:
    """Each step joins past and new tokens into presents, which are bound as the next step's past without a copy."""

    def __init__(self, model, threads):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        self.session = mojo_patch.session(model, options, ["CPUExecutionProvider"])
        self.pasts = [x for x in self.session.get_inputs() if len(x.shape) == 4]
        self.presents = [x.name for x in self.session.get_outputs() if len(x.shape) == 4]
        self.logits = next(x.name for x in self.session.get_outputs() if len(x.shape) == 3)

    def start(self, prompts):
        width = max(map(len, prompts))
        ids = np.array([[0] * (width - len(x)) + x for x in prompts], np.int64)
        self.mask = np.array([[0] * (width - len(x)) + [1] * len(x) for x in prompts], np.int64)
        empty = [np.zeros([len(prompts), int(x.shape[1]), 0, int(x.shape[3])], np.float32) for x in self.pasts]
        self.caches = [ort.OrtValue.ortvalue_from_numpy(x) for x in empty]
        return self.run(ids)

    def step(self, last):
        self.mask = np.concatenate([self.mask, np.ones([len(last), 1], np.int64)], 1)
        return self.run(np.array(last, np.int64)[:, None])

    def keep(self, rows):
        self.mask = self.mask[rows]
        self.caches = [ort.OrtValue.ortvalue_from_numpy(x.numpy()[rows]) for x in self.caches]

    def run(self, ids):
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", self.mask)
        binding.bind_output(self.logits)
        for past, value in zip(self.pasts, self.caches):
            binding.bind_ortvalue_input(past.name, value)
        for name in self.presents:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        logits, *self.caches = binding.get_outputs()
        return logits.numpy()[:, -1].argmax(-1).tolist()


@serve.deployment
class Batches:
    def __init__(self, model, rows, threads):
        self.decoder = Decoder(model, threads)
        self.batch.set_max_batch_size(rows)

    async def generate(self, ids, max_tokens, stop):
        async for token in self.batch((ids, max_tokens, stop)):
            yield token

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.05)
    async def batch(self, requests):
        rows, counts = list(range(len(requests))), [0] * len(requests)
        tokens = await asyncio.to_thread(self.decoder.start, [ids for ids, _, _ in requests])
        while rows:
            answer = [StopIteration] * len(requests)
            for row, token in zip(rows, tokens):
                answer[row] = token
                counts[row] += 1
            yield answer
            goes_on = [n < most and token not in stop for n, (_, most, stop), token in zip(counts, requests, answer)]
            kept = [i for i, row in enumerate(rows) if goes_on[row]]
            if len(kept) < len(rows):
                rows, tokens = [rows[i] for i in kept], [tokens[i] for i in kept]
                self.decoder.keep(kept)
            if rows:
                tokens = await asyncio.to_thread(self.decoder.step, tokens)
