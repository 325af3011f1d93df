package quantized

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

func isMixture(n *onnx.Node) bool { return n.Domain == fused.Domain && n.OpType == fused.MoEName }

// readsExperts returns an error unless a MoE reads a weight of this layout as one of its matrices.
func (q *quantizer) readsExperts(n *onnx.Node, input int, inOut bool) error {
	layout := fused.ExpertLayout(input)
	if layout == "" || inOut != (n.AttrString(layout, "") == "in_out") {
		return fmt.Errorf("node %q (mojo.MoE) does not read it as a matrix of this layout", n.Label())
	}
	for _, i := range []int{fused.MoEX, fused.MoEWeights} {
		if q.typeOf(n.Input(i)) == onnx.Undefined {
			return fmt.Errorf("node %q (mojo.MoE) reads %q, whose type is not known", n.Label(),
				n.Input(i).Name)
		}
	}
	return nil
}

// pair returns an error unless every MoE that reads a weight can use the quantized forms of both its matrices.
func (q *quantizer) pair(w *Weight) error {
	for _, s := range w.nodes {
		if !isMixture(s.node) {
			continue
		}
		up, down := q.matrices(s.node)
		for i, x := range []*Weight{up, down} {
			v := s.node.Input([]int{fused.MoEGateUp, fused.MoEDown}[i])
			if x == nil {
				return fmt.Errorf("node %q (mojo.MoE) also reads %q, which has no quantized form", s.node.Label(),
					v.Name)
			}
			if err := q.report.Refuse[x]; err != nil {
				return fmt.Errorf("node %q (mojo.MoE) also reads %q, which stays: %w", s.node.Label(), v.Name, err)
			}
		}
		if up.Matrix.K != down.Matrix.N || up.Matrix.Experts != down.Matrix.Experts {
			return fmt.Errorf("node %q (mojo.MoE) has %d experts of [%d, %d] and %d of [%d, %d], which do not fit",
				s.node.Label(), up.Matrix.Experts, up.Matrix.N, up.Matrix.K, down.Matrix.Experts, down.Matrix.N,
				down.Matrix.K)
		}
	}
	return nil
}

// matrices returns the weights that a MoE reads.
func (q *quantizer) matrices(n *onnx.Node) (up, down *Weight) {
	return q.weights[n.Input(fused.MoEGateUp)], q.weights[n.Input(fused.MoEDown)]
}

// mixtureInputs returns the inputs of a QMoE: the first three, the arrays of its matrices, and their biases.
func mixtureInputs(first []*onnx.Value, up, down []*onnx.Value) []*onnx.Value {
	inputs := make([]*onnx.Value, fused.QMoEDownBias+1)
	copy(inputs, first)
	for i, v := range up {
		inputs[fused.QMoEGateUp[i]] = v
	}
	for i, v := range down {
		inputs[fused.QMoEDown[i]] = v
	}
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	return inputs
}

// biasNames are the suffixes of the nodes that widen a mixture's biases.
var biasNames = [2]string{"gate_up_bias", "down_bias"}

// placeMixture replaces a MoE by a QMoE. It is called for both weights and acts on the first.
func (q *quantizer) placeMixture(w *Weight, s reader) error {
	n, g := s.node, s.node.Graph
	up, down := q.matrices(n)
	if w != up {
		return nil
	}
	var made []*onnx.Node
	add := func(node *onnx.Node, name string) {
		node.Name = name
		node.Metadata = append(slices.Clone(n.Metadata), q.run.Origin(rule, n)...)
		made = append(made, node)
	}
	arrays := [2][]*onnx.Value{q.initializers(up), q.initializers(down)}
	for i, at := range []int{fused.MoEGateUpBias, fused.MoEDownBias} {
		bias := n.Input(at)
		if bias != nil && s.typ != onnx.Float {
			wide := g.NewValue(bias.Name + "_float")
			wide.SetType(onnx.Type{DataType: onnx.Float})
			add(q.edit.NewNode(g, "Cast", []*onnx.Value{bias}, []*onnx.Value{wide},
				onnx.IntAttr("to", int64(onnx.Float))), n.Label()+"_"+biasNames[i])
			bias = wide
		}
		arrays[i] = append(arrays[i], bias)
	}
	op := fused.Lookup(fused.QMoEName)
	node := q.edit.NewNode(g, op.Name, mixtureInputs(n.Inputs[:3], arrays[0], arrays[1]), nil,
		fused.QMoEAttributes(n.Attributes, up.Matrix, down.Matrix,
			q.activationsOf(up.Matrix, down.Matrix))...)
	node.Domain = fused.Domain
	add(node, n.Label()+"_"+op.Name)
	q.edit.TakeOutput(node, 0, n.Outputs[0])
	format := up.Matrix.Format
	if down.Matrix.Format != format {
		format += " " + down.Matrix.Format
	}
	node.Metadata = append(node.Metadata, onnx.Entry{Key: edit.MetaFormat, Value: format})
	f, err := op.Function(typedSite(node, q.typeOf, q.typeOf(node.Input(0)), q.run.Model.Opset("")))
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Label(), err)
	}
	node.Overload = f.Overload
	q.functions[edit.FunctionName(f)] = f
	q.replace(s, made)
	return nil
}

// sampleExperts is the number of experts in the check of a MoE. sampleWidth returns the number of columns of their
// matrices: a block, or a super block.
const sampleExperts = 2

func sampleWidth(q *fused.Quantized) int64 {
	if q.SuperScale != nil {
		return 256
	}
	return max(q.Block, 32)
}

// checkMixture evaluates each kind of MoE that reads the weight, with two experts made of its first rows.
func (q *quantizer) checkMixture(w *Weight, s reader) error {
	up, down := q.matrices(s.node)
	s.typ = q.typeOf(s.node.Input(0))
	key := fmt.Sprint(fused.MoEName, s.typ, up.Matrix.Format, down.Matrix.Format, s.node.Overload,
		up.Matrix.K, down.Matrix.K)
	if tried, err := q.kinds.Settled("", key); tried || w != up {
		return err
	}
	return q.once(key, func() error { return q.tryMixture(up, down, s) })
}

// tryMixture tries two experts with the smallest sample matrices, and then with each of the two products in turn as
// long as in the site.
func (q *quantizer) tryMixture(up, down *Weight, s reader) error {
	width := max(sampleWidth(up.Matrix), sampleWidth(down.Matrix))
	sizes := []expertWidths{{width, width}, {up.Matrix.K, width}, {width, down.Matrix.K}}
	for _, size := range slices.Compact(sizes) {
		if up.Matrix.K < size.hidden || down.Matrix.K < size.inner {
			return fmt.Errorf("cannot be checked: experts of [%d, %d] and [%d, %d] are smaller than a sample",
				up.Matrix.N, up.Matrix.K, down.Matrix.N, down.Matrix.K)
		}
		if err := q.tryMixtureOf(up, down, s, size, width); err != nil {
			return err
		}
	}
	return nil
}

// sampleMatrix returns experts with n rows and the first columns of a weight, quantized and as floats. Each expert has
// rows different rows, repeated up to n.
func sampleMatrix(w *Weight, experts, rows, n, columns int64) (*fused.Quantized, []float32, error) {
	if rows = min(rows, n); w.Matrix.Experts*w.Matrix.N < experts*rows {
		return nil, nil, fmt.Errorf("cannot be checked: %d experts of [%d, %d] are smaller than a sample",
			w.Matrix.Experts, w.Matrix.N, w.Matrix.K)
	}
	matrix, values, err := w.Sample(experts * rows)
	if err != nil {
		return nil, nil, err
	}
	if matrix, err = firstColumns(matrix, experts, rows, n, columns); err != nil {
		return nil, nil, err
	}
	kept := make([]float32, 0, experts*n*columns)
	for e := range experts {
		for row := range n {
			at := (e*rows + row%rows) * w.Matrix.K
			kept = append(kept, values[at:at+columns]...)
		}
	}
	return matrix, kept, nil
}

// expertWidths are the widths of tokens and of the experts' activations.
type expertWidths struct{ hidden, inner int64 }

func (q *quantizer) tryMixtureOf(up, down *Weight, s reader, size expertWidths, few int64) error {
	packed, fewPacked := 2*size.inner, 2*few
	if s.node.AttrString(fused.AttrPacking, "") == "none" {
		packed, fewPacked = size.inner, few
	}
	count := min(sampleExperts, up.Matrix.Experts)
	var matrices [2]*fused.Quantized
	var rows [2]*onnx.Tensor
	for i, m := range []struct {
		w                *Weight
		name             string
		rows, n, columns int64
	}{{up, "gate_up", fewPacked, packed, size.hidden}, {down, "down", few, size.hidden, size.inner}} {
		matrix, floats, err := sampleMatrix(m.w, count, m.rows, m.n, m.columns)
		if err != nil {
			return err
		}
		matrices[i], rows[i] = matrix, onnx.NewFloat32s(m.name, []int64{count, m.n, m.columns}, floats)
	}
	b := &bench{q: q, site: s, x: onnx.Type{DataType: s.typ, HasShape: true,
		Dims: []onnx.Dim{{Value: 2}, {Value: 3}, {Value: size.hidden}}}, activations: fused.Activations(q.activations,
		matrices[:]...)}
	bias := func(g *onnx.Graph, input int, name string, n int64) *onnx.Value {
		if s.node.Input(input) == nil {
			return nil
		}
		values := make([]float32, count*n)
		for i := range values {
			values[i] = float32(i%7)/4 - 0.5
		}
		return b.constant(g, onnx.NewFloat32s(name, []int64{count, n}, values))
	}
	choices := func(g *onnx.Graph, x *onnx.Value) []*onnx.Value {
		shares, ids := make([]float32, 12), make([]int64, 12)
		for i := range ids {
			shares[i], ids[i] = float32(i%5+1)/4, int64(i/3+i%2)%count
		}
		chosen := onnx.NewInt64s("ids", ids)
		chosen.Dims = []int64{2, 3, 2}
		return []*onnx.Value{x, b.constant(g, onnx.NewFloat32s("shares", []int64{2, 3, 2}, shares)),
			b.constant(g, chosen)}
	}
	b.op = func(g *onnx.Graph, x *onnx.Value, activations string) *onnx.Node {
		var arrays [2][]*onnx.Value
		for i, m := range matrices {
			for _, t := range m.Tensors() {
				var v *onnx.Value
				if t != nil {
					v = b.constant(g, t)
				}
				arrays[i] = append(arrays[i], v)
			}
		}
		arrays[0] = append(arrays[0], bias(g, fused.MoEGateUpBias, "gate_up_bias", packed))
		arrays[1] = append(arrays[1], bias(g, fused.MoEDownBias, "down_bias", size.hidden))
		n := g.AddNode(fused.QMoEName, mixtureInputs(choices(g, x), arrays[0], arrays[1]),
			[]*onnx.Value{g.NewValue("made")},
			fused.QMoEAttributes(s.node.Attributes, matrices[0], matrices[1], activations)...)
		n.Domain = fused.Domain
		return n
	}
	return b.run(func(g *onnx.Graph, x *onnx.Value, _ string) (*onnx.Node, error) {
		inputs := append(choices(g, x), b.constant(g, rows[0]), b.constant(g, rows[1]),
			bias(g, fused.MoEGateUpBias, "gate_up_bias", packed), bias(g, fused.MoEDownBias, "down_bias", size.hidden))
		for inputs[len(inputs)-1] == nil {
			inputs = inputs[:len(inputs)-1]
		}
		var attrs []*onnx.Attribute
		for _, a := range s.node.Attributes {
			if a.Name == fused.AttrGateUpLayout || a.Name == fused.AttrDownLayout {
				a = onnx.StringAttr(a.Name, "out_in")
			}
			attrs = append(attrs, a)
		}
		n := g.AddNode(fused.MoEName, inputs, []*onnx.Value{g.NewValue("y")}, attrs...)
		n.Domain = fused.Domain
		return n, nil
	}, false)
}

// firstColumns returns experts with n rows and the first columns of a matrix with fewer rows of each expert, one expert
// below the other. The rows are repeated up to n.
func firstColumns(q *fused.Quantized, experts, rows, n, columns int64) (*fused.Quantized, error) {
	made := *q
	made.N, made.K, made.Experts = n, columns, experts
	for i, to := range []**onnx.Tensor{&made.Codes, &made.Scale, &made.Minus, &made.SuperScale, &made.SuperMinus} {
		t := q.Tensors()[i]
		if t == nil {
			continue
		}
		bytes, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		have, groups := t.Dims[0]/experts, t.Dims[1]
		panels, keep, size := have*n/rows, groups*columns/q.K, int64(len(bytes))/t.Dims[0]/groups
		var kept []byte
		for p := range experts * panels {
			at := (p/panels*have + p%panels%have) * groups * size
			kept = append(kept, bytes[at:at+keep*size]...)
		}
		dims := append([]int64{experts, panels, keep}, t.Dims[2:]...)
		if *to, err = onnx.NewTensor(t.Name, t.DataType, dims, kept); err != nil {
			return nil, err
		}
	}
	return &made, nil
}
