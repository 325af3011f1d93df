"""The nodes of experts in sessions of onnxruntime, for moe_peers.py."""
from onnx import helper


def ours(packing, alpha, limit, up_offset):
    """The node of mojo.MoE of x, weights, ids, gate_up and down."""
    return helper.make_node("MoE", ["x", "weights", "ids", "gate_up", "down"], ["y"], domain="mojo", activation="silu",
                            alpha=alpha, limit=limit, up_offset=up_offset, packing=packing, gate_up_layout="out_in",
                            down_layout="out_in")


def theirs(shape, alpha, limit, up_offset):
    """The node of com.microsoft.MoE of x, logits, gate_up with interleaved gate and up, and down."""
    clamp = {"swiglu_limit": limit} if limit else {}
    return helper.make_node("MoE", ["x", "logits", "gate_up", "", "down"], ["y"], domain="com.microsoft", k=shape.k,
                            activation_type="swiglu", swiglu_fusion=1, activation_alpha=alpha,
                            activation_beta=up_offset, normalize_routing_weights=1, **clamp)
