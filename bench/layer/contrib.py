#!/usr/bin/env python3
"""Replaces the fused ops of a patched layer by onnxruntime's own, to be timed beside them.

    contrib.py PATCHED.onnx OUT.onnx

RMSNorm becomes SimplifiedLayerNormalization, AddRMSNorm com.microsoft's SkipSimplifiedLayerNormalization,
RotaryEmbedding com.microsoft's (which takes tables of all positions), NormRotary both, TopKRouter and MoE
com.microsoft's MoE, whose gate and up are interleaved: weights.py writes OUT.onnx.data so.
"""

import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

POSITIONS = 4096  # of the tables of cosines and sines
INVERSE_FREQUENCIES = "model.rotary_emb.inv_freq"


class Rewriter:
    def __init__(self, model):
        self.model, self.graph = model, model.graph
        self.made = {o: n for n in self.graph.node for o in n.output}
        self.nodes = []

    def constant(self, name, value):
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, outputs, domain="com.microsoft", **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))

    def tables(self, to):
        """Adds tables of all positions, and the positions of the words [batch, sequence]."""
        angles = next(n for n in self.graph.node if n.op_type == "Mul" and INVERSE_FREQUENCIES in n.input)
        words = self.made[self.made[angles.input[0]].input[0]].input[0]
        while len(self.made[words].input) == 2 and self.made[words].op_type == "Unsqueeze":
            words = self.made[words].input[0]
        zero = self.constant("table_start", np.int64(0))
        self.node(
            "Range",
            [zero, self.constant("table_end", np.int64(POSITIONS)), self.constant("table_step", np.int64(1))],
            ["table_positions"],
            "",
        )
        self.node("Unsqueeze", ["table_positions", self.constant("table_column", np.array([1]))], ["table_rows"], "")
        self.node("Cast", ["table_rows"], ["table_floats"], "", to=onnx.TensorProto.FLOAT)
        self.constant("table_frequencies", self.frequencies().reshape(1, -1))
        self.node("Mul", ["table_floats", "table_frequencies"], ["table_angles"], "")
        for op, out in (("Cos", "table_cos"), ("Sin", "table_sin")):
            self.node(op, ["table_angles"], [out + "_float"], "")
            self.node("Cast", [out + "_float"], [out], "", to=to)
        self.node("Shape", ["hidden_states"], ["word_shape"], "", start=0, end=2)
        self.node("Expand", [words, "word_shape"], ["word_positions"], "")

    def frequencies(self):
        return next(numpy_helper.to_array(t) for t in self.graph.initializer if t.name == INVERSE_FREQUENCIES)

    def norm(self, inputs, outputs, epsilon):
        self.node("SimplifiedLayerNormalization", inputs, outputs, "", axis=-1, epsilon=epsilon, stash_type=1)

    def rotary(self, x, outputs):
        if "table_cos" not in {o for n in self.nodes for o in n.output}:
            self.tables(self.graph.input[0].type.tensor_type.elem_type)
        self.node("RotaryEmbedding", [x, "word_positions", "table_cos", "table_sin"], outputs, interleaved=0)

    def replace(self, n):
        attributes = {a.name: helper.get_attribute_value(a) for a in n.attribute}
        match n.op_type:
            case "RMSNorm":
                self.norm(n.input, n.output, attributes["epsilon"])
            case "AddRMSNorm":
                outputs = [n.output[0], "", "", n.output[1]] if len(n.output) > 1 else n.output
                self.node("SkipSimplifiedLayerNormalization", n.input, outputs, epsilon=attributes["epsilon"])
            case "RotaryEmbedding":
                self.rotary(n.input[0], n.output)
            case "NormRotary":
                normed = n.output[0] + "_normed"
                self.norm(n.input[:2], [normed], attributes["epsilon"])
                self.rotary(normed, n.output)
            case "MoE":
                router = next(m for m in self.graph.node if m.op_type == "TopKRouter")
                k = next(a.i for a in router.attribute if a.name == "top_k")
                self.node(
                    "MoE",
                    [n.input[0], router.input[0], n.input[3], "", n.input[4]],
                    n.output,
                    k=k,
                    activation_type="swiglu",
                    swiglu_fusion=1,
                    activation_alpha=1.0,
                    activation_beta=0.0,
                    normalize_routing_weights=1,
                )
            case "TopKRouter":
                pass
            case op:
                sys.exit(f"contrib.py: onnxruntime has no form of {op} here")

    def run(self):
        outputs = {n.output[0] for n in self.graph.node if n.op_type == "TopKRouter"}
        for n in list(self.graph.node):
            if n.domain == "mojo":
                self.replace(n)
            elif not outputs & set(n.input):  # the cast of the router's weights goes with it
                self.nodes.append(n)
        used = {o.name for o in self.graph.output}
        kept = []
        for n in reversed(self.nodes):
            if used & set(n.output):
                kept.insert(0, n)
                used |= set(n.input)
        del self.graph.node[:]
        self.graph.node.extend(kept)
        keep = [t for t in self.graph.initializer if t.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(keep)
        del self.graph.value_info[:]
        del self.model.functions[:]
        opsets = [o for o in self.model.opset_import if o.domain != "mojo"] + [helper.make_opsetid("com.microsoft", 1)]
        del self.model.opset_import[:]
        self.model.opset_import.extend(opsets)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = sys.argv[1:]
    model = onnx.load(source, load_external_data=False)
    Rewriter(model).run()
    name = out.rsplit("/", 1)[-1] + ".data"
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
    helper.set_model_props(model, {"gate_up": "interleaved"})
    onnx.save(model, out)


if __name__ == "__main__":
    main()
