#!/usr/bin/env python3
"""Runs a decoder layer of export.py from Python, with inputs and outputs bound to the device.

    bind.py MODEL.onnx ... [--library libmojo_ops_cuda.so] [--batch 1] [--sequence 1] [--past 512] [--runs 50]
        [--cuda-graph] [--cpu]

Prints the median time of a run. Then the layer decodes eight tokens, where the keys and values that a run gives are the
next run's past, without a copy; the last hidden states are compared with those of one run on all eight.
"""

import argparse
import statistics
import time

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort

HEADS, HEAD, HIDDEN = 4, 128, 2048
STEPS = 8
TYPES = {"tensor(float16)": (np.float16, 10), "tensor(bfloat16)": (ml_dtypes.bfloat16, 16)}


class Layer:
    def __init__(self, path, library, cpu=False, graph=None):
        """graph is the shapes of the inputs, if runs are to be replayed as a CUDA graph."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        for value in onnx.load(path, load_external_data=False).graph.input if graph else []:
            for dim, size in zip(value.type.tensor_type.shape.dim, graph[value.name], strict=True):
                if dim.dim_param:
                    options.add_free_dimension_override_by_name(dim.dim_param, size)
        if library:
            options.register_custom_ops_library(library)
        provider = (
            "CPUExecutionProvider" if cpu else ("CUDAExecutionProvider", {"enable_cuda_graph": "1" if graph else "0"})
        )
        self.session = ort.InferenceSession(path, options, providers=[provider])
        self.device = "cpu" if cpu else "cuda"
        self.dtype, self.element = TYPES[self.session.get_inputs()[0].type]
        self.binding = self.session.io_binding()

    def feed(self, name, value):
        """Copies an input to the device; numpy has no bfloat16."""
        if value.dtype == ml_dtypes.bfloat16:
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value.view(np.uint16), self.element)
        else:
            value = ort.OrtValue.ortvalue_from_numpy(value)
        self.binding.bind_ortvalue_input(name, value)

    def run(self, hidden=None, total=None, past=None):
        """Binds the given inputs, and the outputs to the device, and runs."""
        if hidden is not None:
            self.feed("hidden_states", hidden)
            self.feed("attention_mask", np.ones((hidden.shape[0], total), np.int64))
            for name, value in zip(("past_key", "past_value"), past, strict=True):
                if isinstance(value, np.ndarray):
                    self.feed(name, value)
                else:
                    self.binding.bind_ortvalue_input(name, value)
            for output in self.session.get_outputs():
                self.binding.bind_output(output.name, self.device)
        self.session.run_with_iobinding(self.binding)
        return self.binding.get_outputs()


def decode(layer, hidden, past):
    """Runs word by word; returns the hidden states of the last."""
    known = past[0].shape[2]
    for i in range(hidden.shape[1]):
        last, *past = layer.run(hidden[:, i : i + 1], known + i + 1, past)
    return last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--library")
    for name, value in (("batch", 1), ("sequence", 1), ("past", 512), ("runs", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--cuda-graph", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    shapes = {
        "hidden_states": (args.batch, args.sequence, HIDDEN),
        "attention_mask": (args.batch, args.past + args.sequence),
    }
    shapes["past_key"] = shapes["past_value"] = (args.batch, HEADS, args.past, HEAD)

    for path in args.models:
        layer = Layer(path, args.library, args.cpu, shapes if args.cuda_graph else None)

        def normal(*shape):
            return (0.5 * rng.standard_normal(shape, dtype=np.float32)).astype(layer.dtype)

        past = [normal(*shapes[name]) for name in ("past_key", "past_value")]
        layer.run(normal(*shapes["hidden_states"]), args.past + args.sequence, past)
        times = []
        for _ in range(args.runs + 3):
            start = time.perf_counter()
            layer.run()
            times.append(time.perf_counter() - start)
        print(f"{path}: {1000 * statistics.median(times[3:]):.4f} ms", flush=True)
        if args.cuda_graph or layer.dtype != np.float16:  # a graph has one shape; numpy has no bfloat16 to read
            continue
        words = normal(args.batch, STEPS, HIDDEN)
        want = layer.run(words, args.past + STEPS, past)[0].numpy().astype(np.float32)[:, -1:]
        got = decode(layer, words, past).numpy().astype(np.float32)
        apart = np.abs(got - want).max() / np.abs(want).max()
        print(f"  {STEPS} words one by one, against all at once: {apart:.1e} of the greatest magnitude")


if __name__ == "__main__":
    main()
