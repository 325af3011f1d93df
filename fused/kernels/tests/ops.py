"""The fused ops as the catalogue declares them: ops.json, which `go generate ./fused` writes."""
import json
import os


class Op:
    """One op: the names of its inputs, outputs and attributes, its combinations of types, and forms to try."""

    def __init__(self, declared, names):
        self.name, self.family, self.devices = declared["name"], declared["family"], declared["devices"]
        self.partial = declared.get("partial", [])
        self.inputs = [p["name"] for p in declared["inputs"]]
        self.outputs = [p["name"] for p in declared["outputs"]]
        self.optional_outputs = sum(p.get("optional", False) for p in declared["outputs"])
        self.attributes = {a["name"]: a["type"] for a in declared["attributes"]}
        self.values = {a["name"]: a.get("values", []) for a in declared["attributes"]}
        self.types = [[[names[t] for t in of] for of in c] for c in declared["types"]]
        self.first_types = list(dict.fromkeys(inputs[0] for inputs, _ in self.types))
        self._forms = declared["forms"]

    def on_every(self, device, attributes):
        """Whether all devices of the kind that run the op's kernels run them with the attributes."""
        return not any(p["device"] == device and attributes[p["attribute"]] == p["value"] for p in self.partial)

    def typed(self, values):
        """Attributes as Python's types; JSON has whole numbers for floats, and words for infinities."""
        return {name: float(v) if typ == "float" else v for (name, typ), v in zip(self.attributes.items(), values)}

    def cases(self):
        """(attributes, shapes of inputs, shapes of outputs, types of inputs, types of outputs) of all forms and types.
        A shape is None for an omitted input. In the file, 0 stands for what the form above has.
        """
        above = []
        for form in self._forms:
            values, inputs, outputs, types = above = [b if f == 0 else f for f, b in zip(form, above or form)]
            shapes = inputs + [None] * (len(self.inputs) - len(inputs))
            for at in types:
                yield self.typed(values), shapes, outputs, *self.types[at]


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.json")) as file:
    DECLARED = json.load(file)
OPS = {declared["name"]: Op(declared, DECLARED["types"]) for declared in DECLARED["ops"]}
