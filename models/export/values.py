"""Shorter names for the values inside a model: an exporter's, paths of modules, take as much of a file as the rest."""

import onnx


def graphs(graph):
    """The graph, and the graphs of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def number(model):
    """Names the results of nodes v0, v1, ..., one name everywhere the same. Outputs and weights keep theirs.

    The names of nodes lose the path of the module that export.py wraps a model in, constants their own, which nothing
    reads, and weights their declarations of types and shapes, which they have themselves.
    """
    names, every = {}, list(graphs(model.graph))
    kept = {value.name for value in model.graph.output}
    kept |= {value.name for g in every for value in (*g.input, *g.initializer)}
    for graph in every:
        for node in graph.node:
            for name in node.output:
                names[name] = name if name in kept or not name else f"v{len(names)}"
    if lost := kept & {new for old, new in names.items() if new != old}:
        raise ValueError(f"{sorted(lost)} are names of inputs, outputs or weights")
    for graph in every:
        for node in graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names[name] for name in node.output]
            node.name = "" if node.op_type == "Constant" else node.name.replace("/model/model/", "/", 1)
        weights = {tensor.name for tensor in graph.initializer}
        declared = [value for value in graph.value_info if value.name not in weights]
        del graph.value_info[:]
        graph.value_info.extend(declared)
        for value in (*graph.output, *graph.value_info):
            value.name = names.get(value.name, value.name)
