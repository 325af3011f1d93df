package runson

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// rule is the name in the metadata of new nodes (edit.MetaRule).
const rule = "RunsOn"

// lower changes a node. It first proves the new form on a model with only that node.
func (l *lowering) lower(n *onnx.Node, w *way) error {
	types := l.types(n)
	if err := l.prove(n, w, types); err != nil {
		return l.refuse(fmt.Errorf("node %q (%s) is not proven to stay the same: %w", n.Label(), n.OpType, err))
	}
	var c edit.Change
	change(&c, l.Origin(rule, n), n, w, types, func(v *onnx.Value) onnx.DataType { return l.facts.DataType(v) })
	l.report.count(n.OpType, types, w.String())
	return c.Finish()
}

// String names a way for reports.
func (w *way) String() string {
	if w.body != nil {
		return "body"
	}
	var names []string
	for _, t := range w.widening {
		if !slices.Contains(names, t.String()) {
			names = append(names, t.String())
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// change changes a node in the given way. Its outputs stay the same values.
func change(c *edit.Change, origin []onnx.Entry, n *onnx.Node, w *way, types []onnx.DataType,
	typeOf func(*onnx.Value) onnx.DataType) {
	to := &writer{edit: c, origin: origin, of: n, floats: types[0]}
	under := types
	if w.widening != nil {
		under = wide(n, types, w.widening)
		to.floats = under[0]
	}
	inputs := slices.Clone(n.Inputs)
	casts := map[*onnx.Value]*onnx.Value{}
	for i, v := range inputs {
		if v == nil || under[i] == types[i] {
			continue
		}
		if casts[v] == nil {
			casts[v] = to.with("Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(under[i])))
		}
		inputs[i] = casts[v]
	}
	back := func(v, computed *onnx.Value) {
		cast := c.AddNode(n.Graph, "Cast", []*onnx.Value{computed}, []*onnx.Value{v},
			onnx.IntAttr("to", int64(typeOf(v))))
		cast.Name, cast.Metadata = computed.Name+"_back", origin
	}
	if w.body != nil {
		out := n.OutputValue(0)
		y := w.body(to, n, inputs)
		if w.widening != nil {
			back(out, y)
		} else {
			c.TakeOutput(y.Producer, 0, out)
		}
		c.Drop(n)
		return
	}
	c.SetInputs(n, inputs...)
	for i, v := range slices.Clone(n.Outputs) {
		if v == nil {
			continue
		}
		if _, narrow := w.widening[typeOf(v)]; narrow && !plain(n) {
			computed := n.Graph.NewValue(n.Label() + "_wide")
			c.TakeOutput(n, i, computed)
			back(v, computed)
		}
	}
}

// plain reports whether a node returns booleans or positions whatever the type of its inputs.
func plain(n *onnx.Node) bool {
	switch n.OpType {
	case "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf", "Not", "And", "Or", "Xor":
		return true
	}
	return false
}

// mostElements bounds the elements of a trial's inputs. For nodes that accept any sizes, the inputs are cut to fewRows
// rows and columns.
const (
	mostElements = 1 << 22
	fewRows      = 24
)

// prove tries a way on a model with only the node: without rounding its results stay the same bit for bit, and
// otherwise they are rounded like the node's own type.
func (l *lowering) prove(n *onnx.Node, w *way, types []onnx.DataType) error {
	key := fmt.Sprint(n.OpType, " ", onnx.AttributesKey(n.Attributes), types, w, len(n.Outputs))
	for i, v := range n.Inputs {
		if v != nil {
			shape, known := l.facts.Shape(v, 0)
			key += fmt.Sprint(i, shape, known, v.Constant() != nil)
		}
	}
	what := fmt.Sprintf("node %q (%s) in %s", n.Label(), n.OpType, w)
	if settled, err := l.prover.Settled(what, key); settled {
		return err
	}
	trial, err := l.alone(n)
	if err != nil {
		l.prover.Assume(what) // its sizes are unknown
		return nil
	}
	lowered, err := trial.Clone()
	if err != nil {
		return err
	}
	var c edit.Change
	node := lowered.Graph.Nodes[len(lowered.Graph.Nodes)-1]
	outputs := map[string]onnx.DataType{}
	for i, v := range node.Outputs {
		if v != nil {
			outputs[v.Name] = l.facts.DataType(n.Outputs[i])
		}
	}
	change(&c, nil, node, w, types, func(v *onnx.Value) onnx.DataType { return outputs[v.Name] })
	if err := c.Finish(); err != nil {
		return err
	}
	exact := prove.Bound(prove.BitForBit)
	if w.body != nil {
		exact = prove.Structural
	}
	return l.prover.Prove(&prove.Claim{What: what, Key: key, By: "the lowered node", Exact: exact,
		Typed: prove.SumOf(1), Before: prove.Model(trial), After: prove.Model(lowered),
		Trials: func(yield func(prove.Trial, error) bool) {
			for k, kind := range []prove.Kind{prove.Normal, prove.Small, prove.Large} {
				t := prove.Trial{Name: kind.Name + " numbers"}
				for i, v := range trial.Graph.Inputs {
					typ, _ := v.Type()
					shape := make([]int64, len(typ.Dims))
					for j, d := range typ.Dims {
						shape[j] = d.Value
					}
					x, err := prove.MakeInput(kind, k*len(trial.Graph.Inputs)+i, typ.DataType, shape)
					if err != nil {
						yield(t, err)
						return
					}
					t.Inputs = append(t.Inputs, x)
				}
				if !yield(t, nil) {
					return
				}
			}
		}})
}

// fewNumbers bounds the floats that keep their values in trials: they may be scales of a Resize.
const fewNumbers = 8

// alone returns a model with one node, whose inputs have the sizes of the first world. Integers known there and a few
// floats are constants, and so are those of the model.
func (l *lowering) alone(n *onnx.Node) (*onnx.Model, error) {
	var ports []onnx.Port
	elements := int64(0)
	have := map[*onnx.Value]bool{}
	known := map[string]*reference.Tensor{}
	for _, v := range n.Inputs {
		if v == nil || have[v] || v.Constant() != nil && (!l.facts.DataType(v).IsFloat() ||
			v.Constant().Len() <= fewNumbers) {
			continue
		}
		have[v] = true
		shape, ok := l.facts.Shape(v, 0)
		if !ok {
			return nil, errors.New("its sizes are not known")
		}
		if x, is := l.facts.Known(v, 0); is && (!x.IsFloat() || x.Len() <= fewNumbers) {
			known[v.Name] = x
		}
		elements += prove.Elements([][]int64{shape})
		ports = append(ports, onnx.Port{Value: v, Type: onnx.TensorType(l.facts.DataType(v), shape)})
	}
	if elements > mostElements {
		if moves[n.OpType] || n.Is("Conv") {
			return nil, errors.New("it is too large")
		}
		for i := range ports {
			for j, d := range ports[i].Type.Dims {
				ports[i].Type.Dims[j].Value = min(d.Value, fewRows)
			}
		}
	}
	var outputs []*onnx.Value
	for _, v := range n.Outputs {
		if v != nil {
			outputs = append(outputs, v)
		}
	}
	part, err := l.Model.Part([]*onnx.Node{n}, ports, outputs)
	if err != nil {
		return nil, err
	}
	if part, err = part.Clone(); err != nil {
		return nil, err
	}
	var c edit.Change
	for _, v := range slices.Clone(part.Graph.Inputs) {
		x := known[v.Name]
		if x == nil {
			continue
		}
		t, err := x.ToONNX(v.Name)
		if err != nil {
			return nil, err
		}
		c.Reread(v, c.AddInitializer(part.Graph, t))
		c.RemovePort(part.Graph, v)
	}
	return part, c.Finish()
}
