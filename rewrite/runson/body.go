package runson

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A body computes a node from these inputs, all of one float type, by other standard ops as the standard defines it,
// and returns its output.
type body func(w *writer, n *onnx.Node, inputs []*onnx.Value) *onnx.Value

// bodies has the ops that providers lack.
var bodies = map[string]body{"Swish": swish, "SwiGLU": swiglu}

// bodyOps are the ops in bodies. All of them accept the float type of the body's inputs.
var bodyOps = []string{"Mul", "Sigmoid"}

// runsBodies reports whether the provider has the ops of bodies for a float type.
func (p *Place) runsBodies(opset int64, floats onnx.DataType) bool {
	return !slices.ContainsFunc(bodyOps, func(op string) bool {
		return p.refused(&onnx.Node{OpType: op}, opset, []onnx.DataType{floats}) != nil
	})
}

// swish returns x * Sigmoid(alpha * x).
func swish(w *writer, n *onnx.Node, inputs []*onnx.Value) *onnx.Value {
	x := inputs[0]
	scaled := x
	if alpha := n.AttrFloat("alpha", 1); alpha != 1 {
		scaled = w.node("Mul", w.number(alpha), x)
	}
	return w.node("Mul", x, w.node("Sigmoid", scaled))
}

// swiglu returns Swish(a) * b.
func swiglu(w *writer, n *onnx.Node, inputs []*onnx.Value) *onnx.Value {
	return w.node("Mul", swish(w, n, inputs[:1]), inputs[1])
}

// writer replaces a node by others.
type writer struct {
	edit   *edit.Change
	origin []onnx.Entry // metadata of new nodes
	of     *onnx.Node
	floats onnx.DataType // type that the nodes compute in
}

// node adds a node before the replaced one, and returns its output.
func (w *writer) node(op string, inputs ...*onnx.Value) *onnx.Value { return w.with(op, inputs) }

func (w *writer) with(op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	v := w.of.Graph.NewValue(w.of.Label() + "_" + op)
	n := w.edit.NewNode(w.of.Graph, op, inputs, []*onnx.Value{v}, attrs...)
	n.Name, n.Metadata = v.Name, w.origin
	w.edit.Insert(w.of, n)
	return v
}

// number returns a constant of the type that the nodes compute in.
func (w *writer) number(x float32) *onnx.Value {
	t := onnx.NewFloat32s(w.of.Label()+"_alpha", []int64{}, []float32{x})
	if w.floats == onnx.Double {
		raw := binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(x)))
		if wide, err := onnx.NewTensor(t.Name, onnx.Double, []int64{}, raw); err == nil {
			t = wide
		}
	}
	return w.edit.AddInitializer(w.of.Graph, t)
}
