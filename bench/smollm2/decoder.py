"""A decoder in onnxruntime, its cache bound: a run's present is the next run's past, without a copy. If past and
present are buffers of one shape (apply --cache static), one value is bound to both.
"""

import ctypes

import numpy as np
import onnxruntime as ort

ELEMENTS = {"tensor(float)": (1, np.uint32), "tensor(float16)": (10, np.uint16), "tensor(bfloat16)": (16, np.uint16)}


class Decoder:
    """Greedy generation for a batch of one. Inputs: input_ids, attention_mask, position_ids if any, and keys and values
    of the past, which have four dimensions; outputs: logits, then keys and values in the same order. Buffers have room
    for so many tokens."""

    def __init__(self, path, library=None, threads=2, cuda=False, profile=None, room=256):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        if library:
            options.register_custom_ops_library(str(library))
        providers = [("CUDAExecutionProvider", {}), "CPUExecutionProvider"] if cuda else ["CPUExecutionProvider"]
        self.session = ort.InferenceSession(str(path), options, providers=providers)
        if cuda and "CUDAExecutionProvider" not in self.session.get_providers():
            raise RuntimeError("onnxruntime could not start its CUDA provider")
        self.device = "cuda" if cuda else "cpu"
        self.binding = self.session.io_binding()
        self.past = [i for i in self.session.get_inputs() if len(i.shape) == 4]
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.positions = any(i.name == "position_ids" for i in self.session.get_inputs())
        if len(self.outputs) != len(self.past) + 1:
            raise ValueError(f"{path}: {len(self.past)} past inputs, but {len(self.outputs)} outputs")
        presents = self.session.get_outputs()[1:]
        self.buffers = bool(self.past) and all(p.shape[2] == q.shape[2] for p, q in zip(self.past, presents))
        self.room = room
        self.reset()

    def reset(self):
        """Forgets all tokens."""
        self.length = 0
        if self.buffers:
            self.cache = [self.buffer(value) for value in self.past]
            return
        self.cache = []
        for value in self.past:
            element, bits = ELEMENTS[value.type]
            # Some exporters name a dimension "3".
            empty = np.zeros((1, int(value.shape[1]), 0, int(value.shape[3])), bits)
            self.cache.append(ort.OrtValue.ortvalue_from_numpy_with_onnx_type(empty, element))

    def buffer(self, value):
        """Room for the tokens of a cache."""
        shape = (1, int(value.shape[1]), self.room, int(value.shape[3]))
        return ort.OrtValue.ortvalue_from_shape_and_type(shape, ELEMENTS[value.type][0], self.device, 0)

    def step(self, ids):
        """Runs the graph on more tokens; the one that is then the most likely."""
        return int(self.logits(ids).argmax())

    def logits(self, ids):
        """Runs the graph on more tokens; the logits of the next one."""
        binding, total = self.binding, self.length + len(ids)
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        binding.bind_cpu_input("input_ids", np.array([ids], np.int64))
        binding.bind_cpu_input("attention_mask", np.ones((1, total), np.int64))
        if self.positions:
            binding.bind_cpu_input("position_ids", np.arange(self.length, total)[None])
        for value, past in zip(self.past, self.cache):
            binding.bind_ortvalue_input(value.name, past)
        binding.bind_output(self.outputs[0], "cpu")
        for name, past in zip(self.outputs[1:], self.cache):
            if self.buffers:
                binding.bind_ortvalue_output(name, past)
            else:
                binding.bind_output(name, self.device)
        self.session.run_with_iobinding(binding)
        logits, *presents = binding.get_outputs()
        if not self.buffers:
            self.cache = presents
        self.length = total
        return self.last(logits)

    @staticmethod
    def last(logits):
        """The last row of logits as float32. It is a view if possible: the logits of all positions are megabytes."""
        width, (_, bits) = logits.shape()[-1], ELEMENTS[logits.data_type()]
        size = width * np.dtype(bits).itemsize
        row = ctypes.string_at(logits.data_ptr() + logits.tensor_size_in_bytes() - size, size)
        if logits.data_type() == "tensor(bfloat16)":  # numpy lacks the type: widen to float32's upper half
            return (np.frombuffer(row, np.uint16).astype(np.uint32) << 16).view(np.float32)
        return np.frombuffer(row, np.float16 if bits == np.uint16 else np.float32).astype(np.float32)
