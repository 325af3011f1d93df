"""Puts two exports of one decoder into one file, as optimum does: an If takes the branch with or without a past.

The main graph has one copy of the weights of both; the branches read them as outer values.
"""

import onnx
from onnx import TensorProto, helper


def merge(first, decode):
    """A model with the inputs of decode and use_cache_branch, and the outputs that both models have."""
    weights = {}
    branches = [_branch(model.graph, name, weights) for model, name in [(first, "first"), (decode, "decode")]]
    names = [output.name for output in decode.graph.output]
    choose = helper.make_node(
        "If", ["use_cache_branch"], names, name="choose", else_branch=branches[0], then_branch=branches[1]
    )
    use_cache = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    inputs, outputs = [*decode.graph.input, use_cache], list(decode.graph.output)
    graph = helper.make_graph([choose], "merged", inputs, outputs, initializer=list(weights.values()))
    return helper.make_model(
        graph, ir_version=decode.ir_version, opset_imports=decode.opset_import, producer_name=decode.producer_name
    )


def _branch(graph, prefix, weights):
    """The graph without inputs; its values are numbered, its weights go to weights, equal ones once."""
    names = {value.name: value.name for value in graph.input}
    for tensor in graph.initializer:
        key = (tensor.data_type, tuple(tensor.dims), tensor.raw_data or tensor.SerializeToString())
        if key not in weights:
            stored = TensorProto()
            stored.CopyFrom(tensor)
            stored.name = f"weight_{len(weights)}"
            weights[key] = stored
        names[tensor.name] = weights[key].name
    nodes = []
    made = 0
    for old in graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(old)
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            raise ValueError(f"{node.name}: a graph within a branch is not handled here")
        node.name = prefix + node.name.replace("/model/model/layers.", "/layers.", 1)
        node.input[:] = [names[name] if name else "" for name in node.input]
        for name in node.output:
            names[name] = f"{prefix}/{made}" if name else ""
            made += 1
        node.output[:] = [names[name] for name in node.output]
        nodes.append(node)
    outputs = []
    for old in graph.output:
        value = onnx.ValueInfoProto()
        value.CopyFrom(old)
        value.name = names[old.name]
        outputs.append(value)
    return helper.make_graph(nodes, prefix, [], outputs)
