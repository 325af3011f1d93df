// Package products replaces several products of the same value by one.
package products

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ruleProducts is the pattern name in the metadata of merged products (MetaRule).
const ruleProducts = "MergedProducts"

// MergeReport counts the products that were merged.
type MergeReport struct {
	Products int `json:"products"` // original products
	Merged   int `json:"merged"`   // the products that replaced them
}

// Text returns the report in one line.
func (r *MergeReport) Text() string {
	if r.Merged == 0 {
		return "none: no value has several products whose stored weights nothing else reads"
	}
	return fmt.Sprintf("%d products of one value each, instead of %d", r.Merged, r.Products)
}

// Apply merges products of one value with several weights, such as the projections to queries, keys and values, or to
// gate and up, and splits the result. Decoding on a GPU is limited by the number of products rather than their size.
// The weights are concatenated and written anew. With onlyQuantized, only mojo.Linear and mojo.HalfLinear are merged:
// if their weights are written anyway, merging costs nothing, and each row is multiplied as before, so that the CPU
// kernel returns the same bits. Products stay, and are listed with the reason, if the result is not proven to be the
// same.
func Apply(run *pass.Run, onlyQuantized bool) (r *MergeReport, unproven []string, err error) {
	m := &merger{Run: run, prover: run.NewWeightProver()}
	r = &MergeReport{}
	for _, s := range run.Scopes() {
		by := map[string][]*onnx.Node{}
		var order []string
		for _, n := range s.Graph.Nodes {
			if (onlyQuantized || !isProjection(n)) && !isQuantizedProjection(n) && !isHalfProjection(n) {
				continue
			}
			key := fmt.Sprintf("%p %s", n.Input(0), productKind(n))
			if by[key] == nil {
				order = append(order, key)
			}
			by[key] = append(by[key], n)
		}
		for _, key := range order {
			group, merge := by[key], m.merge
			switch {
			case isHalfProjection(group[0]):
				merge = m.mergeHalf
			case group[0].Domain == fused.Domain:
				group, merge = wholePanels(group), m.mergeQuantized
			}
			if len(group) < 2 {
				continue
			}
			if err := m.provenMerge(group, merge); err != nil {
				unproven = append(unproven, fmt.Sprintf("%s: node %q: %v", ruleProducts, group[0].Label(), err))
				continue
			}
			if err := merge(s.Graph, group); err != nil {
				return nil, nil, err
			}
			r.Products, r.Merged = r.Products+len(group), r.Merged+1
		}
		if err := m.edit.Finish(); err != nil {
			return nil, nil, err
		}
	}
	return r, unproven, nil
}

// merger merges the products of one model.
type merger struct {
	*pass.Run
	edit   edit.Change
	prover *prove.Prover
}

// isProjection reports whether a node multiplies a value by a weight with no other reader.
func isProjection(n *onnx.Node) bool {
	if !n.Is("MatMul") {
		return false
	}
	w := weightOf(n)
	return w.IsConstant() && w.Producer == nil && len(w.Const.Dims) == 2 && w.Const.DataType.IsFloat() &&
		isPrivate(w, n.Graph) && isPrivate(n.Input(1), n.Graph)
}

// isPrivate reports whether a value of this graph has one reader.
func isPrivate(v *onnx.Value, g *onnx.Graph) bool {
	return len(v.Uses()) == 1 && !v.IsOutput() && v.Graph == g
}

// weightOf returns the weight of a product. Of MatMul it is the one before a Transpose.
func weightOf(n *onnx.Node) *onnx.Value {
	if t := transposeOf(n); t != nil {
		return t.Input(0)
	}
	return n.Input(1)
}

// transposeOf returns the Transpose between a weight [out, in] and its MatMul, or nil. PyTorch's exporters write it.
func transposeOf(n *onnx.Node) *onnx.Node {
	if !n.Is("MatMul") {
		return nil
	}
	t := n.Input(1).Producer
	if t == nil || !t.Is("Transpose") || slices.Equal(t.AttrInts("perm"), []int64{0, 1}) {
		return nil
	}
	return t
}

// floatKind is equal for products whose weights can be concatenated.
func floatKind(n *onnx.Node) string {
	w, axis := weightOf(n).Const, inputAxis(n)
	return fmt.Sprint(w.DataType, w.Dims[axis], axis)
}

// merge replaces several products of one value by one product and a Split. Finish sorts them.
func (m *merger) merge(g *onnx.Graph, group []*onnx.Node) error {
	first := group[0]
	outputs := 1 - inputAxis(first)
	var weights []*onnx.Tensor
	var columns []int64
	for _, n := range group {
		w := weightOf(n).Const
		weights, columns = append(weights, w), append(columns, w.Dims[outputs])
	}
	joined, err := onnx.Concat(weightOf(first).Name+"_merged", outputs, weights)
	if err != nil {
		return fmt.Errorf("the products of %q cannot be merged: %w", first.Input(0).Name, err)
	}
	weight := m.edit.AddInitializer(g, joined)
	if outputs == 0 {
		turned := g.NewValue(weight.Name + "_transposed")
		t := m.edit.AddNode(g, "Transpose", []*onnx.Value{weight}, []*onnx.Value{turned},
			onnx.IntsAttr("perm", []int64{1, 0}))
		t.Name = first.Label() + "_merged_transpose"
		weight = turned
	}
	all := g.NewValue(first.Outputs[0].Name + "_merged")
	product := m.edit.AddNode(g, "MatMul", []*onnx.Value{first.Input(0), weight}, []*onnx.Value{all})
	product.Name = first.Label() + "_merged"
	m.split(g, product, columns, group)
	return nil
}

// together replaces several fused ops of one value by one, whose constants are concatenated along the first axis, or
// along the axis that axes has for the input.
func (m *merger) together(g *onnx.Graph, group []*onnx.Node, axes map[int]int) (*onnx.Node, error) {
	first := group[0]
	inputs := slices.Clone(first.Inputs)
	for i, w := range first.Inputs {
		if i == 0 || w == nil {
			continue
		}
		var parts []*onnx.Tensor
		for _, n := range group {
			parts = append(parts, n.Inputs[i].Const)
		}
		t, err := onnx.Concat(w.Name+"_merged", axes[i], parts)
		if err != nil {
			return nil, fmt.Errorf("the products of %q cannot be merged: %w", first.Input(0).Name, err)
		}
		inputs[i] = m.edit.AddInitializer(g, t)
	}
	all := g.NewValue(first.Outputs[0].Name + "_merged")
	product := m.edit.AddNode(g, first.OpType, inputs, []*onnx.Value{all}, slices.Clone(first.Attributes)...)
	product.Domain, product.Overload, product.Name = first.Domain, first.Overload, first.Label()+"_merged"
	return product, nil
}

// split assigns each of several products its columns of their replacement, and drops the products with their unread
// weights.
func (m *merger) split(g *onnx.Graph, product *onnx.Node, columns []int64, group []*onnx.Node) {
	meta := m.Origin(ruleProducts, group...)
	product.Metadata = append(product.Metadata, meta...)
	sizes := m.edit.AddInitializer(g, onnx.NewInt64s("columns", columns))
	name := group[0].Label() + "_split"
	var parts []*onnx.Value
	for _, n := range group {
		parts = append(parts, n.Outputs[0])
	}
	split := m.edit.AddNode(g, "Split", []*onnx.Value{product.Outputs[0], sizes}, parts, onnx.IntAttr("axis", -1))
	split.Name, split.Metadata = name, meta
	m.edit.Drop(group...)
}
