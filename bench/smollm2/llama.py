"""The same in llama.cpp, through the C API of llama-cpp-python; it computes only the logits of the last position."""

import ctypes

import llama_cpp
import numpy as np

TYPES = {"F32": 0, "F16": 1}  # ggml_type
# llama_ftype: all tensors, but norms stay F32, and tensors whose row length is not a multiple of 256 get Q5_0 or Q8_0
# instead of Q4_K and Q6_K.
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K": 15, "Q6_K": 18, "BF16": 32}

_quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))


def convert(source, target, dtype):
    """Writes a GGUF file with its weights in one of FILE_TYPES."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = FILE_TYPES[dtype], True, 2
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params))
    if status:
        raise RuntimeError(f"llama_model_quantize of {source} to {dtype}: status {status}")


class Llama:
    """Greedy generation for a batch of one; cache is the type of keys and values."""

    def __init__(self, path, cache="F16", threads=2, context=256):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = TYPES[cache]
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot make a context for {path}")
        self.width = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def reset(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def step(self, ids):
        return int(self.logits(ids).argmax())

    def logits(self, ids):
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        status = llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, len(ids)))
        if status:
            raise RuntimeError(f"llama_decode: status {status}")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, (self.width,))
