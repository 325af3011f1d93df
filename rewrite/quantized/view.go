package quantized

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A View makes the products of a graph with routers multiply by floats during the search for blocks: MatMulNBits
// becomes MatMul, and DequantizeLinear of constants becomes a constant, whose elements are computed on demand. So
// experts are found, evaluated and stacked as in any model, and the positions of a stack's elements show their origin
// (rows).
type View struct {
	*pass.Run
	edit edit.Change
	// activations is the rounding of mojo's ops, or "" if weights of other tools stay.
	activations string
	experts     []*expertsSite
	nodes       []*floatNode
	of          map[*onnx.Tensor]*floatNode
	decoded     prove.Prover // by kind of node: whether the evaluator returns the same floats
}

// floatNode is a node whose weight is a float constant in the view.
type floatNode struct {
	node   *onnx.Node // may be another op while the view exists
	was    onnx.Node
	floats *onnx.Value
	added  *onnx.Node // the product before the bias of a MatMulNBits
	// matrix reads the elements, or those of an expert. Rows are the second to last axis, or the last one with inOut.
	matrix func(expert int64, inOut bool) (*others, error)
}

// NewView returns the view of a model. Begin applies it.
func NewView(run *pass.Run, activations string) *View {
	return &View{Run: run, activations: activations, of: map[*onnx.Tensor]*floatNode{}}
}

// Begin applies the view to all graphs except the bodies of functions, if one of the graphs may route tokens.
func (v *View) Begin() error {
	var nodes []*onnx.Node
	routes := false
	for _, s := range v.Scopes() {
		for _, n := range s.Graph.Nodes {
			routes = routes || n.Is("TopK") || n.Is("ArgMax")
			if codes := storedCodes(n); s.Function == nil && codes != nil && n.OpType != "GatherBlockQuantized" {
				nodes = append(nodes, n)
			}
		}
	}
	if !routes {
		return nil
	}
	for _, n := range nodes {
		if err := v.add(v.Model.Graph, n); err != nil {
			return err
		}
	}
	return v.edit.Finish()
}

// add turns a node's weight into floats. A node that it cannot read stays.
func (v *View) add(g *onnx.Graph, n *onnx.Node) error {
	was := *n
	was.Inputs = slices.Clone(n.Inputs)
	f := &floatNode{node: n, was: was}
	codes := storedCodes(n)
	if n.Outputs[0] == nil || n.Outputs[0].IsOutput() && n.Is("DequantizeLinear") {
		return nil
	}
	name := codes.Name + "_floats"
	if n.Is("DequantizeLinear") {
		dims := codes.Const.Dims
		f.matrix = func(expert int64, inOut bool) (*others, error) {
			x := &others{name: codes.Name, codes: codes.Const}
			return x, x.dequantizeLinear(&f.was, expert, inOut)
		}
		x, err := f.matrix(0, false) // if scales run along the other axis, the matrix is transposed
		inOut := err != nil
		if inOut {
			x, err = f.matrix(0, true)
		}
		if err != nil || len(dims) == 3 && dims[0] == 0 || x.n == 0 || x.k == 0 {
			return nil
		}
		if err := v.constant(g, f, name, x.scales.DataType, dims, inOut); err != nil {
			return err
		}
		v.edit.Reread(n.Outputs[0], f.floats)
		return nil
	}
	f.matrix = func(int64, bool) (*others, error) {
		x := &others{name: codes.Name, codes: codes.Const}
		return x, x.matMulNBits(&f.was)
	}
	x, err := f.matrix(0, true)
	if err != nil {
		return nil
	}
	if err := v.constant(g, f, name, x.scales.DataType, []int64{x.k, x.n}, true); err != nil {
		return err
	}
	data, bias := n.Input(0), n.Input(5)
	v.edit.SetDomain(n, "", n.Overload)
	v.edit.SetInputs(n)
	if bias == nil {
		v.edit.Become(n, "MatMul")
		v.edit.SetInputs(n, data, f.floats)
		return nil
	}
	product := n.Graph.NewValue(n.Outputs[0].Name + "_product")
	f.added = v.edit.NewNode(n.Graph, "MatMul", []*onnx.Value{data, f.floats}, []*onnx.Value{product})
	v.edit.Become(n, "Add")
	v.edit.SetInputs(n, product, bias)
	v.edit.Insert(n, f.added)
	return nil
}

// constant adds the floats of a node. Rows of the matrices are read on demand.
func (v *View) constant(g *onnx.Graph, f *floatNode, name string, typ onnx.DataType, dims []int64,
	inOut bool) error {
	inner := dims[len(dims)-1]
	size := inner * dims[len(dims)-2]
	var last *opened // of the last expert read
	lastExpert := int64(-1)
	t, err := onnx.NewComputed(name, typ, dims, func(dst []byte, first int64) error {
		values := make([]float64, len(dst)*8/typ.Bits())
		for i := range values {
			at := first + int64(i)
			expert, row, column := at/size, at%size/inner, at%inner
			if inOut {
				row, column = column, row
			}
			if expert != lastExpert {
				x, err := f.matrix(expert, inOut)
				if err != nil {
					return err
				}
				if last, err = x.open(); err != nil {
					return err
				}
				lastExpert = expert
			}
			values[i] = float64(last.value(row, column))
		}
		return putFloats(dst, typ, values)
	})
	if err != nil {
		return err
	}
	f.floats = v.edit.AddInitializer(g, t)
	v.nodes, v.of[t] = append(v.nodes, f), f
	return nil
}

// restore turns a node into the MatMulNBits again, with its first inputs.
func (v *View) restore(f *floatNode, n *onnx.Node, data *onnx.Value, inputs int) {
	was := slices.Clone(f.was.Inputs[:inputs])
	for was[0] = data; was[len(was)-1] == nil; {
		was = was[:len(was)-1]
	}
	v.edit.SetInputs(n)
	v.edit.SetDomain(n, f.was.Domain, n.Overload)
	v.edit.Become(n, f.was.OpType, slices.Clone(f.was.Attributes)...)
	v.edit.SetInputs(n, was...)
}

// Restore restores the nodes that still exist. It does not undo the view: sites were replaced since, and their
// replacements read floats or the quantized elements themselves.
func (v *View) Restore() error {
	for _, f := range v.nodes {
		n := f.node
		v.edit.DropConstants(f.floats)
		switch {
		case f.was.Is("DequantizeLinear") && n.Graph == nil:
			v.edit.DropConstants(f.was.Inputs...)
		case f.was.Is("DequantizeLinear"):
			for _, u := range slices.Clone(f.floats.Uses()) {
				if !isMixture(u.Node) {
					v.edit.SetInput(u.Node, u.Index, n.Outputs[0])
				}
			}
			v.edit.Drop(n)
		case f.added == nil && n.Graph != nil:
			v.restore(f, n, n.Input(0), len(f.was.Inputs))
		case f.added == nil || f.added.Graph == nil:
			v.edit.DropConstants(f.was.Inputs...)
		case n.Graph == nil: // the sum with the bias became part of something else
			v.restore(f, f.added, f.added.Input(0), len(f.was.Inputs)-1)
		default:
			v.restore(f, n, f.added.Input(0), len(f.was.Inputs))
			v.edit.Drop(f.added)
		}
	}
	v.nodes = nil
	return v.edit.Finish()
}
