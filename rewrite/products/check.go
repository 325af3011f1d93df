package products

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// sampleRows is the number of weight rows to try a merge on: a panel and part of another.
const sampleRows = 21

// merge replaces several products of one value by one.
type merge func(g *onnx.Graph, group []*onnx.Node) error

// provenMerge first merges copies of the products, with weights cut to a few rows or panels, and compares the results
// before and after. The error says why the products must stay.
func (m *merger) provenMerge(group []*onnx.Node, merge merge) error {
	first := group[0]
	what, key := fmt.Sprintf("the merged products of %q", first.Input(0).Name), ruleProducts+productKind(first)
	for _, n := range group {
		for _, v := range constantsOf(n) {
			if v != nil {
				key += fmt.Sprint(" ", v.Const.DataType, v.Const.Dims)
			}
		}
	}
	if settled, err := m.prover.Settled(what, key); settled {
		return err
	}
	copied, x, products, err := m.fewRows(group)
	if err != nil {
		return err
	}
	var outputs []*onnx.Value
	for _, n := range products {
		outputs = append(outputs, n.Outputs[0])
	}
	columns := weightOf(products[0]).Const.Dims[inputAxis(products[0])]
	if isQuantizedProjection(products[0]) {
		columns = fused.Read[fused.Linear](products[0].Attributes).K
	}
	run := prove.Region(copied, []*onnx.Value{x}, outputs)
	claim := &prove.Claim{What: what, Key: key, Before: run, After: run,
		Exact: prove.BitForBit, Typed: prove.BitForBit,
		Trials: func(yield func(prove.Trial, error) bool) {
			typ, _ := x.Type()
			for i, k := range []prove.Kind{prove.Normal, prove.Large} {
				in, err := prove.MakeInput(k, i, typ.DataType, []int64{3, columns})
				if !yield(prove.Trial{Name: k.Name, Inputs: []*reference.Tensor{in}}, err) {
					return
				}
			}
		}}
	pending := m.prover.Before(claim)
	if err := merge(copied.Graph, products); err != nil {
		return err
	}
	return pending.Holds()
}

// constantsOf returns the inputs of a product after the first, with the weight as it is stored.
func constantsOf(n *onnx.Node) []*onnx.Value {
	list := slices.Clone(n.Inputs[1:])
	list[0] = weightOf(n)
	return list
}

// productKind is equal for products that an op computes in the same way.
func productKind(n *onnx.Node) string {
	switch {
	case isHalfProjection(n):
		return halfKind(n)
	case n.Domain == fused.Domain:
		return quantizedKind(n)
	}
	return floatKind(n)
}

// fewRows copies products of one value with the first rows of their weights.
func (m *merger) fewRows(group []*onnx.Node) (few *onnx.Model, x *onnx.Value, products []*onnx.Node, err error) {
	few = onnx.New(m.Model.IRVersion, m.Model.Opset(""))
	few.ImportOpset(fused.Domain, fused.Version)
	few.Functions = slices.Clone(m.Model.Functions)
	typ := weightOf(group[0]).Const.DataType
	if !group[0].Is("MatMul") {
		typ = m.typeOfProducts(group)
	}
	x = few.Graph.AddInput("x", onnx.Type{DataType: typ})
	for _, n := range group {
		inputs := make([]*onnx.Value, len(n.Inputs))
		inputs[0] = x
		rows := min(weightOf(n).Const.Dims[0], sampleRows)
		attrs := slices.Clone(n.Attributes)
		if isQuantizedProjection(n) {
			columns := fused.Read[fused.Linear](n.Attributes).N
			if rows = (columns-1)%blocks.PanelRows + 1; columns > blocks.PanelRows {
				rows += blocks.PanelRows
			}
			at := slices.IndexFunc(attrs, func(a *onnx.Attribute) bool { return a.Name == fused.AttrN })
			attrs[at] = onnx.IntAttr(fused.AttrN, rows)
		}
		for i, v := range constantsOf(n) {
			if v == nil {
				continue
			}
			t, dims := v.Const, slices.Clone(v.Const.Dims)
			switch {
			case isHalfProjection(n) && len(dims) == 1 && inputAxis(n) == 0: // bias of products of the same width
			case len(dims) == 1: // a bias
				dims[0] = rows
			case !isQuantizedProjection(n):
				dims[0] = rows
			default:
				dims[0] = (rows + blocks.PanelRows - 1) / blocks.PanelRows
			}
			part, err := t.View(t.Name, dims, 0, nil)
			if err != nil {
				return nil, nil, nil, err
			}
			inputs[i+1] = few.Graph.AddInitializer(part)
		}
		if t := transposeOf(n); t != nil {
			turned := few.Graph.NewValue(inputs[1].Name + "_transposed")
			few.Graph.AddNode("Transpose", []*onnx.Value{inputs[1]}, []*onnx.Value{turned}, t.Attributes...)
			inputs[1] = turned
		}
		p := few.Graph.AddNode(n.OpType, inputs, []*onnx.Value{few.Graph.NewValue(n.Outputs[0].Name)}, attrs...)
		p.Name, p.Domain, p.Overload, p.Metadata = n.Name, n.Domain, n.Overload, n.Metadata
		few.Graph.AddOutput(p.Outputs[0])
		products = append(products, p)
	}
	return few, x, products, nil
}

// typeOfProducts returns the type that products with quantized weights compute in.
func (m *merger) typeOfProducts(group []*onnx.Node) onnx.DataType {
	for _, n := range group {
		for _, v := range []*onnx.Value{n.Input(0), n.OutputValue(0), n.Input(fused.LinearBias)} {
			if v == nil {
				continue
			}
			if t := v.Constant(); t != nil {
				return t.DataType
			}
			if t, ok := v.Type(); ok {
				return t.DataType
			}
			if m.Facts != nil {
				if t := m.Facts.DataType(v); t != onnx.Undefined {
					return t
				}
			}
		}
	}
	return onnx.Float
}
