"""Models of one node in sessions of onnxruntime's CUDA provider, on memory and a stream of torch: for moe_peers.py."""
import onnxruntime as ort
import torch
from onnx import helper

ELEMENT = {torch.bfloat16: 16, torch.float32: 1, torch.int64: 7}  # onnx.TensorProto's


def model(node, feeds, y):
    """Takes the feeds, by name, and gives y."""
    info = lambda name, t: helper.make_tensor_value_info(name, ELEMENT[t.dtype], t.shape)
    graph = helper.make_graph([node], "g", [info(n, t) for n, t in feeds.items()], [info("y", y)])
    domains = [helper.make_opsetid(d, v) for d, v in (("", 18), ("mojo", 1), ("com.microsoft", 1))]
    return helper.make_model(graph, ir_version=10, opset_imports=domains).SerializeToString()


def session(node, feeds, y, stream, library=None):
    """A call that runs the node on the stream: a CUDA graph, recorded here, that is replayed and not waited for."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if library:
        options.register_custom_ops_library(library)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = {"user_compute_stream": str(stream.cuda_stream), "enable_cuda_graph": "1"}
    made = ort.InferenceSession(model(node, feeds, y), options, providers=[("CUDAExecutionProvider", provider)])
    binding = made.io_binding()
    for name, t in feeds.items():
        binding.bind_input(name, "cuda", 0, ELEMENT[t.dtype], list(t.shape), t.data_ptr())
    binding.bind_output("y", "cuda", 0, ELEMENT[y.dtype], list(y.shape), y.data_ptr())
    run = ort.RunOptions()
    run.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def call():
        made.run_with_iobinding(binding, run)
    for _ in range(3):  # the first ones choose kernels and record
        call()
    torch.cuda.synchronize()
    return call


def ours(packing, alpha, limit, up_offset):
    """The node of mojo.MoE of x, weights, ids, gate_up and down."""
    return helper.make_node("MoE", ["x", "weights", "ids", "gate_up", "down"], ["y"], domain="mojo", activation="silu",
                            alpha=alpha, limit=limit, up_offset=up_offset, packing=packing, gate_up_layout="out_in",
                            down_layout="out_in")


def theirs(shape, alpha, limit, up_offset):
    """The node of com.microsoft.MoE of x, logits, gate_up with gate and up by turns, and down."""
    clamp = {"swiglu_limit": limit} if limit else {}
    return helper.make_node("MoE", ["x", "logits", "gate_up", "", "down"], ["y"], domain="com.microsoft", k=shape.k,
                            activation_type="swiglu", swiglu_fusion=1, activation_alpha=alpha,
                            activation_beta=up_offset, normalize_routing_weights=1, **clamp)
