// Package shorten runs part of a graph with fewer tokens than the graph was exported for.
//
// An export with fixed shapes has its number of tokens in the shapes of its reshapes: 577 for an image, 1,500 for a
// minute of sound. The function of attention does not depend on that number, but the cost of evaluating it grows with
// its square. Read follows how every dimension is composed, from the inputs of the part to its results. It succeeds
// only if every node is of a kind that treats all tokens alike and no constant has an element for each token. Then the
// same nodes, with the shapes of Region, compute the same function for any number of tokens.
package shorten

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Factor is a number that divides a dimension. If Name is not 0, it is a length that may change, and Size is its
// value in the export.
type Factor struct {
	Name rune
	Size int64
}

// Dim holds the factors of a dimension in row-major order, without factors of size 1.
type Dim []Factor

// Of returns the dimension with these factors.
func Of(factors ...Factor) Dim {
	return slices.DeleteFunc(slices.Clone(factors), func(f Factor) bool { return f.Size == 1 })
}

// Fixed returns a dimension of n that does not change.
func Fixed(n int64) Dim { return Of(Factor{0, n}) }

// At returns the size of a dimension at the given lengths.
func (d Dim) At(length func(name rune) int64) int64 {
	return d.size(func(f Factor) int64 {
		if f.Name != 0 {
			return length(f.Name)
		}
		return f.Size
	})
}

func (d Dim) size(of func(Factor) int64) int64 {
	n := int64(1)
	for _, f := range d {
		n *= of(f)
	}
	return n
}

// changes reports whether a length is among the factors.
func (d Dim) changes() bool {
	return slices.ContainsFunc(d, func(f Factor) bool { return f.Name != 0 })
}

// same reports whether two dimensions are equal for all lengths.
func (d Dim) same(e Dim) bool {
	if !d.changes() && !e.changes() {
		return d.size(exported) == e.size(exported)
	}
	return slices.Equal(d, e)
}

func exported(f Factor) int64 { return f.Size }

// A Region is the part of a graph.
type Region struct {
	// Nodes are the nodes that Read was given, except those that only compute shapes.
	Nodes []*onnx.Node
	dims  map[*onnx.Value][]Dim
	// thin holds the values that have one element instead of equal ones for all tokens, such as a mask that hides
	// nothing: if they are broadcast, they need not be expanded.
	thin map[*onnx.Value]bool
	// shapes holds the inputs of nodes that are shapes, constants the thin constants.
	shapes    map[*onnx.Value][]Dim
	constants map[*onnx.Value]*reference.Tensor
}

// Read follows dimensions through nodes, which are in order. given holds the dimensions of the values that bring in the
// tokens. shape returns the shape of any value in the graph, and an error if it is unknown. Read returns an error if a
// node does not treat all tokens alike.
func Read(nodes []*onnx.Node, given map[*onnx.Value][]Dim, opset int64,
	shape func(*onnx.Value) ([]int64, error)) (*Region, error) {
	r := &Region{dims: map[*onnx.Value][]Dim{}, thin: map[*onnx.Value]bool{}, shapes: map[*onnx.Value][]Dim{},
		constants: map[*onnx.Value]*reference.Tensor{}}
	for v, dims := range given {
		r.dims[v] = dims
	}
	w := &reader{Region: r, opset: opset, shape: shape, asShape: map[*onnx.Value]bool{}}
	for _, n := range nodes {
		if i := shapeInput(n); i >= 0 && n.Input(i) != nil {
			w.asShape[n.Input(i)] = true
		}
	}
	kept := w.withoutShapes(nodes)
	for _, n := range kept {
		for i, v := range n.Inputs {
			if w.asShape[v] && i != shapeInput(n) {
				return nil, fmt.Errorf("node %q (%s) computes with %q, the shape of another value", n.Name, n.OpType,
					v.Name)
			}
		}
		if err := w.node(n); err != nil {
			return nil, fmt.Errorf("node %q (%s): %w", n.Name, n.OpType, err)
		}
		r.Nodes = append(r.Nodes, n)
	}
	return r, nil
}

// Thin returns the dimensions of a value; ok is true if it has one element instead of equal ones for all tokens.
func (r *Region) Thin(v *onnx.Value) (dims []Dim, ok bool) { return r.dims[v], r.thin[v] }

// Inputs returns the values to evaluate the nodes with, instead of the shapes of the graph.
func (r *Region) Inputs(length func(name rune) int64) map[*onnx.Value]*reference.Tensor {
	list := maps.Clone(r.constants)
	for v, dims := range r.shapes {
		list[v] = reference.NewInts(onnx.Int64, []int{len(dims)}, sizes(dims, length))
	}
	return list
}

func sizes(dims []Dim, length func(name rune) int64) []int64 {
	list := make([]int64, len(dims))
	for i, d := range dims {
		list[i] = d.At(length)
	}
	return list
}

// shapeInput returns the index of the input that is the shape of a node's result, or -1.
func shapeInput(n *onnx.Node) int {
	if n.Is("Reshape") || n.Is("Expand") {
		return 1
	}
	return -1
}

// reader is a Region while it is being read.
type reader struct {
	*Region
	opset   int64
	shape   func(*onnx.Value) ([]int64, error)
	asShape map[*onnx.Value]bool
}

// withoutShapes returns the nodes without those whose results are only shapes of others, or parts of them.
func (r *reader) withoutShapes(nodes []*onnx.Node) (list []*onnx.Node) {
	dropped := map[*onnx.Value]bool{} // values that only shapes are computed from
	inside := map[*onnx.Node]bool{}
	for _, n := range nodes {
		inside[n] = true
	}
	for _, n := range slices.Backward(nodes) {
		only := len(n.Outputs) > 0
		for _, v := range n.Outputs {
			if v == nil || r.asShape[v] {
				continue
			}
			readers := 0
			for _, u := range v.Uses() {
				if !inside[u.Node] {
					continue
				}
				readers++
				only = only && slices.ContainsFunc(u.Node.Outputs, func(o *onnx.Value) bool { return dropped[o] })
			}
			only = only && readers > 0
		}
		if only {
			for _, v := range n.Outputs {
				dropped[v] = true
			}
			continue
		}
		list = append(list, n)
	}
	slices.Reverse(list)
	return list
}

var errOther = errors.New("it is not known to treat all tokens alike")

// of returns the dimensions of a value; if it does not depend on the tokens, those in the graph.
func (r *reader) of(v *onnx.Value) ([]Dim, error) {
	if dims, ok := r.dims[v]; ok {
		return dims, nil
	}
	shape, err := r.shape(v)
	if err != nil {
		return nil, err
	}
	dims := make([]Dim, len(shape))
	for i, d := range shape {
		dims[i] = Fixed(d)
	}
	return dims, nil
}

// regroup returns the same factors in dimensions of another shape, as Reshape does.
func regroup(dims []Dim, shape []int64) ([]Dim, error) {
	rest := slices.Concat(dims...)
	list := make([]Dim, len(shape))
	for i, size := range shape {
		for size > 1 {
			if len(rest) == 0 {
				return nil, errors.New("it changes the number of elements")
			}
			f := rest[0]
			switch {
			case size%f.Size == 0:
				list[i] = append(list[i], f)
				size /= f.Size
				rest = rest[1:]
			case f.Name == 0 && f.Size%size == 0:
				list[i] = append(list[i], Factor{0, size})
				rest = slices.Clone(rest)
				rest[0].Size /= size
				size = 1
			default:
				return nil, errors.New("it splits tokens")
			}
		}
	}
	if len(rest) > 0 {
		return nil, errors.New("it changes the number of elements")
	}
	return list, nil
}
