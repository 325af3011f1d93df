package quantized

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// A Narrow is a float32 weight whose elements are stored in 16 bits.
type Narrow struct {
	// Value is the float32 initializer that nodes read.
	Value *onnx.Value
	// Tensor has its elements in float16 or bfloat16. With Turned, it is the transposed matrix: [N, K] if MatMul reads
	// [K, N]. Weights that share a tensor store it once.
	Tensor *onnx.Tensor
	Turned bool
	// Stored is the initializer that replaced Value. Refused says why there is none.
	Stored  *onnx.Value
	Refused error
}

// StoreNarrow makes a model store float32 weights in 16 bits. The model still computes in float32: a Cast widens a
// weight for its readers, or the rows that a Gather returns. mojo.MoE reads its experts as stored, if both its matrices
// are narrowed to one type that also holds its biases exactly.
func StoreNarrow(run *pass.Run, weights []*Narrow) error {
	x := &narrowing{quantizer: newQuantizer(run, nil, "float"), by: map[*onnx.Value]*Narrow{}}
	for _, w := range weights {
		x.by[w.Value] = w
	}
	for range 2 { // a refusal also refuses the other matrix of a mixture
		for _, w := range weights {
			if w.Refused == nil {
				w.Refused = x.check(w)
			}
		}
	}
	stored := map[*onnx.Tensor]*onnx.Value{}
	for _, w := range weights {
		if w.Refused != nil {
			continue
		}
		if w.Stored = stored[w.Tensor]; w.Stored == nil {
			w.Stored = x.edit.AddInitializer(w.Value.Graph, w.Tensor)
			stored[w.Tensor] = w.Stored
		}
	}
	for _, w := range weights {
		if w.Refused != nil {
			continue
		}
		if err := x.reread(w); err != nil {
			return err
		}
		x.edit.DropConstants(w.Value)
	}
	return x.declareAll()
}

type narrowing struct {
	*quantizer
	by map[*onnx.Value]*Narrow
}

// check returns an error if a weight cannot be stored in 16 bits.
func (x *narrowing) check(w *Narrow) error {
	if w.Value.IsOutput() {
		return fmt.Errorf("%q is an output of the graph", w.Value.Name)
	}
	for _, u := range w.Value.Uses() {
		n := u.Node
		if !isMixture(n) {
			continue
		}
		for _, i := range []int{fused.MoEGateUp, fused.MoEDown} {
			o := x.by[n.Input(i)]
			switch {
			case o == nil:
				return fmt.Errorf("node %q (mojo.MoE) also reads %q, which stays in float32", n.Label(),
					n.Input(i).Name)
			case o.Refused != nil:
				return fmt.Errorf("node %q (mojo.MoE) also reads %q, which stays: %w", n.Label(), o.Value.Name,
					o.Refused)
			case o.Tensor.DataType != w.Tensor.DataType || o.Turned:
				return fmt.Errorf("node %q (mojo.MoE) also reads %q, which is stored in another way", n.Label(),
					o.Value.Name)
			}
		}
		for _, i := range []int{fused.MoEGateUpBias, fused.MoEDownBias} {
			if _, err := narrowed(n.Input(i), w.Tensor.DataType); err != nil {
				return fmt.Errorf("node %q (mojo.MoE): %w", n.Label(), err)
			}
		}
	}
	return nil
}

// narrowed returns a bias in 16 bits, or nil if there is none. It returns an error if elements would be rounded.
func narrowed(v *onnx.Value, to onnx.DataType) (*onnx.Tensor, error) {
	if v == nil {
		return nil, nil
	}
	t := v.Constant()
	if t == nil {
		return nil, fmt.Errorf("its bias %q is computed", v.Name)
	}
	raw, err := t.Bytes()
	if err != nil {
		return nil, fmt.Errorf("its bias %q: %w", v.Name, err)
	}
	wide, format := make([]float32, t.Len()), blocks.Half(to)
	blocks.ReaderOf(t.DataType)(wide, raw)
	half := make([]byte, 2*len(wide))
	if err := format.Encode(half, wide); err != nil {
		return nil, fmt.Errorf("its bias %q: %w", v.Name, err)
	}
	again := make([]float32, len(wide))
	if format.Decode(again, half, 0); !slices.Equal(again, wide) {
		return nil, fmt.Errorf("its bias %q has elements that %s cannot hold", v.Name, to)
	}
	return onnx.NewTensor(v.Name, to, slices.Clone(t.Dims), half)
}

// reread makes the readers of a weight read the stored one.
func (x *narrowing) reread(w *Narrow) error {
	var wide *onnx.Value
	for _, u := range slices.Clone(w.Value.Uses()) {
		n := u.Node
		switch {
		case isMixture(n):
			if err := x.mixture(n, u.Index, w); err != nil {
				return err
			}
		case n.Is("Gather") && u.Index == 0 && n.AttrInt("axis", 0) == 0 && !w.Turned:
			x.edit.SetInput(n, 0, w.Stored)
			rows, y := n.Graph.NewValue(n.Outputs[0].Name+"_stored"), n.Outputs[0]
			x.edit.AddNode(n.Graph, "Cast", []*onnx.Value{rows}, []*onnx.Value{y},
				onnx.IntAttr("to", int64(onnx.Float))).Name = n.Label() + "_Cast"
			x.edit.TakeOutput(n, 0, rows)
		default:
			if wide == nil {
				wide = x.widen(w)
			}
			x.edit.SetInput(n, u.Index, wide)
		}
	}
	return nil
}

// widen adds the nodes that widen a stored weight to float32.
func (x *narrowing) widen(w *Narrow) *onnx.Value {
	g, name := w.Value.Graph, w.Value.Name
	wide := g.NewValue(name + "_float")
	x.edit.AddNode(g, "Cast", []*onnx.Value{w.Stored}, []*onnx.Value{wide},
		onnx.IntAttr("to", int64(onnx.Float))).Name = name + "_Cast"
	if !w.Turned {
		return wide
	}
	turned := g.NewValue(name + "_turned")
	x.edit.AddNode(g, "Transpose", []*onnx.Value{wide}, []*onnx.Value{turned},
		onnx.IntsAttr("perm", []int64{1, 0})).Name = name + "_Transpose"
	return turned
}

// mixture makes a MoE read a stored matrix, and with the first one its biases.
func (x *narrowing) mixture(n *onnx.Node, input int, w *Narrow) error {
	x.edit.SetInput(n, input, w.Stored)
	if input != fused.MoEGateUp {
		return nil
	}
	for _, i := range []int{fused.MoEGateUpBias, fused.MoEDownBias} {
		bias, err := narrowed(n.Input(i), w.Tensor.DataType)
		if err != nil {
			return fmt.Errorf("node %q: %w", n.Label(), err)
		}
		if bias != nil {
			x.edit.DropConstants(n.Input(i))
			x.edit.SetInput(n, i, x.edit.AddInitializer(n.Graph, bias))
		}
	}
	site := typedSite(n, x.typeOf, x.typeOf(n.Input(0)), x.run.Model.Opset(""))
	site.Types[fused.MoEDown] = w.Tensor.DataType // may not be set yet
	f, err := fused.Lookup(fused.MoEName).Function(site)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Label(), err)
	}
	x.edit.SetDomain(n, fused.Domain, f.Overload)
	x.functions[edit.FunctionName(f)] = f
	return nil
}
