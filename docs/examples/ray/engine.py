"""Continuous batching in pools of blocks that all sequences share: a Decoder for models of
    mojo-patch apply MODEL -o PATCHED --cache paged=16 --last-logits [--sample] [--cache-type int8]

Prompts are computed in chunks beside the decode steps of other sequences. Sequences that begin alike share the blocks
of the chunks that they have in common. A sequence gets the same bits whatever else is in the batch: its chunks begin
at the same tokens, computed or shared. With --sample the model chooses the tokens, by the options of each sequence, and
the logits stay in it.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import onnxruntime as ort

from decoder import open_session

FLOAT8E4M3FN = 17  # the number of the type in ONNX: numpy does not have it
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8,
         "tensor(float8e4m3fn)": FLOAT8E4M3FN}
HELD = {"tensor(float8e4m3fn)": np.uint8}  # the array for such a pool


class Blocks:
    """Hands out blocks. One that nothing holds keeps its content, so it can be shared, until it is taken again."""

    def __init__(self, count):
        self.holders = [0] * count
        self.free = dict.fromkeys(range(count))  # the one that was freed first is taken first
        self.names, self.named = [None] * count, {}

    def take(self):
        block = next(iter(self.free))
        self.named.pop(self.names[block], None)
        self.names[block] = None
        self.hold(block)
        return block

    def hold(self, block):
        self.free.pop(block, None)
        self.holders[block] += 1

    def release(self, block):
        self.holders[block] -= 1
        if not self.holders[block]:
            self.free[block] = None

    def name(self, block, name):
        """Names a block by the hash of all tokens up to its end, unless another block has the same ones."""
        if self.named.setdefault(name, block) == block:
            self.names[block] = name


class Randoms:
    """The random numbers of mojo-patch generate with a seed, below 2^53: Go's math/rand/v2.PCG."""

    def __init__(self, seed):
        self.state = seed << 64

    def draw(self):
        self.state = (self.state * 0x2360ed051fc65da44385df649fccf645 + 0x5851f42d4c957f2d14057b7ef767814f) % 2**128
        high = self.state >> 64
        high = (high ^ high >> 32) * 0xda942042e4dd58b5 % 2**64
        return (high ^ high >> 48) * (self.state % 2**64 | 1) % 2**64 >> 11


@dataclass(eq=False)
class Row:
    tokens: list  # the prompt and the generated ones
    prompt: int  # tokens of the prompt
    most: int  # blocks at its end
    names: list  # of the blocks of whole chunks of the prompt
    blocks: list = field(default_factory=list)
    past: int = 0  # tokens in the pools
    controls: tuple = (0,) * 7  # temperature, top-k, top-p, min-p, repetition, frequency and presence penalty
    made: int = 0  # tokens of the prompt that were generated before
    randoms: Randoms = None


class Engine:
    """start adds a sequence, step runs the model once, stop takes a sequence away. Rows are as the Decoder's."""

    def __init__(self, model, rows, room, threads=0, pool=None, chunk=64, prompt_tokens=256):
        """A run has up to prompt_tokens tokens of prompts, in chunks. The pools have room for pool tokens."""
        self.session = open_session(model, threads)
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        self.tables = [x.name for x in inputs if x.name.startswith("block_table")]  # windowed layers have one
        if not self.tables:
            raise ValueError(f"{model} has no input block_table: patch it with --cache paged")
        self.logits, [number, self.vocabulary] = next((x.name, x.shape) for x in outputs if len(x.shape) == 2)
        self.last_only = number != next(x.shape[0] for x in inputs if x.name == "input_ids")
        # Pools [blocks, block, heads, width] and, of apply --cache-type, the scales [blocks, heads] of their codes.
        pasts = [x for x in inputs if len(x.shape) == 4 or len(x.shape) == 2 and x.name not in self.tables]
        self.samples = "sample_controls" in {x.name for x in self.session.get_overridable_initializers()}
        presents = [x for x in outputs if len(x.shape) > 1 and x.name != self.logits]
        self.block, self.rows, self.room = next(x.shape[1] for x in pasts if len(x.shape) == 4), rows, room
        count = -(-(pool or rows * room) // self.block)
        self.pools = [(past.name, present.name, TYPES[past.type], np.zeros([count, *past.shape[1:]], HELD.get(
            past.type, TYPES[past.type]))) for past, present in zip(pasts, presents)]
        self.chunk = -(-chunk // self.block) * self.block
        self.prompt_tokens = max(prompt_tokens, self.chunk)
        self.blocks, self.running = Blocks(count), []

    def fits(self, ids, max_tokens):
        """Whether there are blocks for a sequence to its end, beside those that the others will take."""
        if max(ids) >= self.vocabulary:
            raise ValueError(f"id {max(ids)}: the model has {self.vocabulary}")
        most = self.needs(len(ids) + max_tokens)
        if most > len(self.blocks.holders):
            raise ValueError(f"{len(ids)} tokens and {max_tokens} more: the pools have {len(self.blocks.holders)} "
                             f"blocks of {self.block}")
        return len(self.running) < self.rows and most <= len(self.blocks.free) - self.owed()

    def owed(self):
        return sum(row.most - len(row.blocks) for row in self.running)

    def needs(self, tokens):
        return -(-tokens // self.block)

    def start(self, ids, max_tokens, controls=None, seed=0, made=0):
        """Adds a sequence. Its first token comes with a later step. controls: see Row."""
        if controls and not self.samples:
            raise ValueError("the model has no input sample_controls: patch it with --sample")
        ids, names, name = list(ids), [], b""
        whole = (len(ids) - 1) // self.chunk * self.chunk  # the last token is always computed: its logits are needed
        for begin in range(0, whole, self.block):
            name = hashlib.sha256(name + np.array(ids[begin : begin + self.block], np.int64).tobytes()).digest()
            names.append(name)
        row = Row(ids, len(ids), self.needs(len(ids) + max_tokens), names, made=made)
        if controls:
            row.controls, row.randoms = controls, Randoms(seed)
            for _ in range(made if controls[0] else 0):
                row.randoms.draw()
        self.running.append(row)

    def stop(self, i):
        """Takes a sequence away; the last one moves into its place."""
        for block in reversed(self.running[i].blocks):
            self.blocks.release(block)
        self.running[i] = self.running[-1]
        self.running.pop()

    def share(self, row):
        """Takes the chunks of a prompt whose blocks exist, as far as they follow each other."""
        while row.past < len(row.names) * self.block:
            begin = row.past // self.block
            found = [self.blocks.named.get(name) for name in row.names[begin : begin + self.chunk // self.block]]
            if None in found:
                return
            for block in found:
                self.blocks.hold(block)
            row.blocks += found
            row.past += self.chunk

    def step(self):
        """Runs the model once. Returns for each sequence its next token, None while its prompt is computed, or an
        exception."""
        parts, room = [], self.prompt_tokens
        for i, row in enumerate(self.running):
            self.share(row)
            added = 1
            if row.past < row.prompt:
                added = min(self.chunk, row.prompt - row.past)
                if added > room:
                    continue
                room -= added
            while len(row.blocks) < self.needs(row.past + added):
                row.blocks.append(self.blocks.take())
            for k in range(row.past // self.block, min((row.past + added) // self.block, len(row.names))):
                self.blocks.name(row.blocks[k], row.names[k])
            parts.append((i, row, added))
        tokens = [None] * len(self.running)
        if parts:
            for (i, row, added), logits in zip(parts, self._run(parts)):
                row.past += added
                if row.past == len(row.tokens):
                    row.tokens.append(self.choose(i, logits))
                    tokens[i] = row.tokens[-1]
                    if tokens[i] < 0:
                        tokens[i] = ValueError("no token can be chosen: a logit is NaN or infinite")
        return tokens

    def choose(self, i, logits):
        """Returns the token for the logits of a sequence, or what the model has chosen."""
        return int(logits if self.samples else logits.argmax())

    def _sample(self, parts, at, rows):
        """Returns the inputs of Sample. The token of part i is chosen from row at[i]; all other rows are greedy."""
        controls, random = np.zeros([rows, 7], np.float32), np.zeros(rows, np.int64)
        ends = [(k, row) for k, (_, row, added) in zip(at, parts) if row.past + added == len(row.tokens)]
        for k, row in ends:
            controls[k] = row.controls
            random[k] = row.randoms.draw() if row.controls[0] else 0
        inputs = {"sample_controls": controls, "sample_random": random}
        ends = [(k, row) for k, row in ends if any(row.controls[4:])]
        if ends:
            tokens = np.full([rows, max(len(row.tokens) for _, row in ends)], -1, np.int64)
            prompt = np.zeros(rows, np.int64)
            for k, row in ends:
                tokens[k, : len(row.tokens)], prompt[k] = row.tokens, row.prompt - row.made
            inputs |= {"sample_tokens": tokens, "sample_prompt": prompt}
        return inputs

    def _run(self, parts):
        """Runs the model on the next tokens of some rows, and returns the logits after each, or the chosen tokens."""
        counts = np.array([added for _, _, added in parts])
        cumulative = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
        table = np.full([len(parts), max(len(row.blocks) for _, row, _ in parts)], -1, np.int32)
        for line, (_, row, _) in zip(table, parts):
            line[: len(row.blocks)] = row.blocks
        last = np.arange(len(parts)) if self.last_only else cumulative[1:] - 1
        output, sample = self.logits, {}
        if self.samples:
            output, sample = "sample_ids", self._sample(parts, last, last[-1] + 1)
        binding = self.session.io_binding()
        for name, values in {
            "input_ids": np.array([t for _, r, n in parts for t in r.tokens[r.past : r.past + n]], np.int64),
            "cumulative_sequence_lengths": cumulative,
            "past_sequence_lengths": np.array([row.past for _, row, _ in parts], np.int32),
            **dict.fromkeys(self.tables, table),
        }.items():
            binding.bind_cpu_input(name, values)
        for name, values in sample.items():  # with defaults, which bind_cpu_input does not find
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(values))
        binding.bind_output(output)
        for past, present, element, pool in self.pools:
            where = ("cpu", 0, element, pool.shape, pool.ctypes.data)
            binding.bind_input(past, *where)
            binding.bind_output(present, *where)
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()[last]
