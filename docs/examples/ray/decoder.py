"""Greedy decoding of several sequences at once, each of its own length, in buffers that onnxruntime writes in place.

The model is one of
    mojo-patch apply MODEL -o PATCHED --for cpu
or the model.onnx in the folder that mojo-patch export genai makes of it.
"""

import pathlib

import mojo_patch
import numpy as np
import onnxruntime as ort

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def open_session(model, threads):
    """Opens a model with its kernels, for as many threads as there are cores if threads is 0."""
    options = ort.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = threads
    return mojo_patch.session(model, options, ["CPUExecutionProvider"])


class Decoder:
    """Rows 0 to len(lengths) hold a sequence each. start adds a row, step a token to each, stop takes a row away."""

    def __init__(self, model, rows, room, threads=0):
        self.session = open_session(model, threads)
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        names = {x.name for x in inputs}
        self.has_positions = "position_ids" in names
        # A model of export genai counts the tokens of each row in the mask.
        self.has_lengths = "past_length" in names
        for_genai = (pathlib.Path(model).parent / "genai_config.json").exists()
        if not self.has_lengths and not for_genai:
            raise ValueError(f"{model} has no input past_length: patch it with --cache static --past-length=rows")
        ids = next(x for x in inputs if x.name == "input_ids")
        self.alone = ids.shape[0] in (1, "1")  # the model takes one sequence
        # [rows, heads, room, width], where some exporters have numbers as text
        pasts = [x for x in inputs if len(x.shape) == 4]
        presents = [x for x in outputs if len(x.shape) == 4]
        if not pasts or [x.shape for x in pasts] != [x.shape for x in presents]:
            raise ValueError(f"{model} has no cache in place: patch it with --cache static --past-length=rows")
        presents = [x.name for x in presents]
        self.logits = next(x.name for x in outputs if len(x.shape) == 3)
        self.caches = [
            (past.name, present, np.zeros([rows, int(past.shape[1]), room, int(past.shape[3])], TYPES[past.type]))
            for past, present in zip(pasts, presents)
        ]
        self.rows, self.room = rows, room
        self.lengths, self.last = [], []  # of each sequence: how many tokens are in the cache, and the one behind them

    def fits(self, ids, max_tokens):
        """Whether a row is free for a sequence."""
        return len(self.last) < self.rows

    def start(self, ids, max_tokens=None):
        """Adds a sequence and returns the first token behind it."""
        self.lengths.append(0)
        try:
            [token] = self._run([ids], len(self.last))
        except Exception:
            self.lengths.pop()
            raise
        self.last.append(token)
        return token

    def step(self):
        """Returns the next token of each sequence."""
        self.last = self._run([[token] for token in self.last], 0)
        return self.last

    def stop(self, row):
        """Takes a sequence away; the last one moves into its place."""
        for _, _, buffer in self.caches:
            buffer[row, :, : self.lengths[-1]] = buffer[len(self.lengths) - 1, :, : self.lengths[-1]]
        for values in self.lengths, self.last:
            values[row] = values[-1]
            values.pop()

    def _run(self, ids, first):
        """Feeds the rows from first on one list of ids each, and returns the likeliest token behind each."""
        if self.alone and len(ids) > 1:
            return [token for i in range(len(ids)) for token in self._run(ids[i : i + 1], first + i)]
        ids = np.array(ids, np.int64)
        rows = slice(first, first + len(ids))
        past = np.array(self.lengths[rows], np.int64)
        total = past + ids.shape[1]
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        if self.has_lengths:
            binding.bind_cpu_input("past_length", past)
        columns = self.room if self.has_lengths else total.max()
        binding.bind_cpu_input("attention_mask", (np.arange(columns) < total[:, None]).astype(np.int64))
        if self.has_positions:
            binding.bind_cpu_input("position_ids", past[:, None] + np.arange(ids.shape[1]))
        binding.bind_output(self.logits)
        for past_name, present_name, buffer in self.caches:
            view = buffer[rows]
            where = ("cpu", 0, view.dtype, view.shape, view.ctypes.data)
            binding.bind_input(past_name, *where)
            binding.bind_output(present_name, *where)
        self.session.run_with_iobinding(binding)
        self.lengths[rows] = total.tolist()
        return binding.get_outputs()[0].numpy()[:, -1].argmax(-1).tolist()
