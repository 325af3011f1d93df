"""Models of one node in sessions of onnxruntime's CUDA provider, on memory and a stream of torch."""
import onnxruntime as ort
import torch
from onnx import helper

ELEMENT = {torch.bfloat16: 16, torch.float32: 1, torch.int64: 7, torch.int32: 6, torch.float16: 10, torch.uint8: 2,
           torch.float8_e4m3fn: 17, torch.float8_e8m0fnu: 24}  # onnx.TensorProto's


def model(node, feeds, outputs, weights):
    """Takes the feeds and returns the outputs, both by name. Weights are in the model, so onnxruntime repacks them."""
    info = lambda tensors: [helper.make_tensor_value_info(n, ELEMENT[t.dtype], t.shape) for n, t in tensors.items()]
    stored = [helper.make_tensor(n, ELEMENT[t.dtype], t.shape, t.contiguous().view(torch.uint8).cpu().numpy().tobytes(),
                                 raw=True) for n, t in weights.items()]
    graph = helper.make_graph([node], "g", info(feeds), info(outputs), stored)
    domains = [helper.make_opsetid(d, v) for d, v in (("", 18), ("mojo", 1), ("com.microsoft", 1))]
    return helper.make_model(graph, ir_version=10, opset_imports=domains).SerializeToString()


def session(node, feeds, outputs, stream, library=None, weights=None):
    """A call that runs the node on the stream: a CUDA graph, recorded here, that is replayed without a wait."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if library:
        options.register_custom_ops_library(library)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = {"user_compute_stream": str(stream.cuda_stream), "enable_cuda_graph": "1"}
    made = ort.InferenceSession(model(node, feeds, outputs, weights or {}), options,
                                providers=[("CUDAExecutionProvider", provider)])
    binding = made.io_binding()
    for bind, tensors in ((binding.bind_input, feeds), (binding.bind_output, outputs)):
        for name, t in tensors.items():
            bind(name, t.device.type, 0, ELEMENT[t.dtype], list(t.shape), t.data_ptr())
    run = ort.RunOptions()
    run.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def call():
        made.run_with_iobinding(binding, run)
    for _ in range(3):  # the first ones choose kernels and record
        call()
    torch.cuda.synchronize()
    return call
