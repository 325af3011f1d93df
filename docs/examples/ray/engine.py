"""Continuous batching in pools of blocks that all sequences share: a Decoder for models of
    mojo-patch apply MODEL -o PATCHED --cache paged=16 --last-logits [--cache-type int8]

Prompts are computed in chunks beside the decode steps of other sequences. Sequences that begin alike share the blocks
of the chunks that they have in common. A sequence gets the same bits whatever else is in the batch: its chunks begin
at the same tokens, computed or shared.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

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


@dataclass(eq=False)
class Row:
    tokens: list  # the prompt and the generated ones
    prompt: int  # tokens of the prompt
    most: int  # blocks at its end
    names: list  # of the blocks of whole chunks of the prompt
    blocks: list = field(default_factory=list)
    past: int = 0  # tokens in the pools


class Engine:
    """start adds a sequence, step runs the model once, stop takes a sequence away. Rows are as the Decoder's."""

    def __init__(self, model, rows, room, threads=0, pool=None, chunk=64, prompt_tokens=256):
        """A run has up to prompt_tokens tokens of prompts, in chunks. The pools have room for pool tokens."""
        self.session = open_session(model, threads)
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        if "block_table" not in {x.name for x in inputs}:
            raise ValueError(f"{model} has no input block_table: patch it with --cache paged")
        self.logits, [_, self.vocabulary] = next((x.name, x.shape) for x in outputs if len(x.shape) == 2)
        # Pools [blocks, block, heads, width] and, of apply --cache-type, the scales [blocks, heads] of their codes.
        pasts = [x for x in inputs if len(x.shape) == 4 or len(x.shape) == 2 and x.name != "block_table"]
        presents = [x for x in outputs if x.name != self.logits]
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

    def start(self, ids, max_tokens):
        """Adds a sequence. Its first token comes with a later step."""
        ids, names, name = list(ids), [], b""
        whole = (len(ids) - 1) // self.chunk * self.chunk  # the last token is always computed: its logits are needed
        for begin in range(0, whole, self.block):
            name = hashlib.sha256(name + np.array(ids[begin : begin + self.block], np.int64).tobytes()).digest()
            names.append(name)
        self.running.append(Row(ids, len(ids), self.needs(len(ids) + max_tokens), names))

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
        """Runs the model once. Returns for each sequence its next token, or None while its prompt is computed."""
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
                    tokens[i] = self.choose(i, logits)
                    row.tokens.append(tokens[i])
        return tokens

    def choose(self, i, logits):
        return int(logits.argmax())

    def _run(self, parts):
        """Runs the model on the next tokens of some rows, and returns the logits after each."""
        counts = np.array([added for _, _, added in parts])
        cumulative = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
        table = np.full([len(parts), max(len(row.blocks) for _, row, _ in parts)], -1, np.int32)
        for line, (_, row, _) in zip(table, parts):
            line[: len(row.blocks)] = row.blocks
        binding = self.session.io_binding()
        for name, values in {
            "input_ids": np.array([t for _, r, n in parts for t in r.tokens[r.past : r.past + n]], np.int64),
            "cumulative_sequence_lengths": cumulative,
            "past_sequence_lengths": np.array([row.past for _, row, _ in parts], np.int32),
            "block_table": table,
        }.items():
            binding.bind_cpu_input(name, values)
        binding.bind_output(self.logits)
        for past, present, element, pool in self.pools:
            where = ("cpu", 0, element, pool.shape, pool.ctypes.data)
            binding.bind_input(past, *where)
            binding.bind_output(present, *where)
        self.session.run_with_iobinding(binding)
        logits = binding.get_outputs()[0].numpy()
        return logits if len(logits) == len(parts) else logits[cumulative[1:] - 1]
