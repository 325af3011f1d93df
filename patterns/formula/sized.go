package formula

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// shapeInputs maps ops to the inputs whose elements determine the shape of the result.
var shapeInputs = map[string][]int{"Reshape": {1}, "Expand": {1}, "Slice": {1, 2, 3, 4}, "Range": {0, 1, 2},
	"Tile": {1}, "ConstantOfShape": {0}, "Pad": {1, 3}, "Split": {1}, "OneHot": {1}, "TopK": {1}, "Squeeze": {1},
	"Unsqueeze": {1}, "Resize": {2, 3}, "Upsample": {1}, "RandomNormal": {}, "RandomUniform": {}}

// other are the ops whose shapes are not followed.
var other = []string{"If", "Loop", "Scan", "NonZero", "Compress", "Unique", "NonMaxSuppression", "StringSplit",
	"SequenceAt", "ConcatFromSequence", "Col2Im", "CenterCropPad"}

// Sized reports whether the dimensions of a value are the same sums of sizes for all sizes: no step of their
// computation compares or rounds sizes.
func (r *Reader) Sized(v *onnx.Value) bool {
	if is, ok := r.sized[v]; ok {
		return is
	}
	r.sized[v] = false // in case of a cycle, which a graph does not have
	is := r.depth <= maxDepth && r.isSized(v)
	r.sized[v] = is
	return is
}

func (r *Reader) isSized(v *onnx.Value) bool {
	n := v.Producer
	switch {
	case n == nil || v.Constant() != nil:
		return true
	case slices.Contains(other, n.OpType) || len(n.Subgraphs()) > 0:
		return false
	}
	r.depth++
	defer func() { r.depth-- }()
	if !onnx.IsStandardDomain(n.Domain) {
		return r.allSized(n.Inputs)
	}
	if from, ok := shapedAs[n.OpType]; ok {
		return r.Sized(n.Input(from))
	}
	switch {
	case n.Is("Reshape"):
		return r.Moves(n) && (r.isWhole(n.Input(1)) || r.Sized(n.Input(0)))
	case shapeInputs[n.OpType] != nil:
		return r.Sized(n.Input(0)) && r.Moves(n)
	case elementwise[n.OpType]: // unknown inputs are no larger, or the node could not run
		return r.allSized(n.Inputs) || slices.ContainsFunc(n.Inputs, func(in *onnx.Value) bool {
			return in != nil && r.sameInWorlds(in, v) && r.Sized(in)
		})
	}
	return r.allSized(n.Inputs)
}

// sameInWorlds reports whether two values have the same shape in all worlds of shape inference.
func (r *Reader) sameInWorlds(a, b *onnx.Value) bool {
	for w := range infer.Worlds {
		x, ok := r.g.Facts.Shape(a, w)
		y, known := r.g.Facts.Shape(b, w)
		if !ok || !known || !slices.Equal(x, y) {
			return false
		}
	}
	return true
}

// shapedAs maps ops to the input whose shape their result has.
var shapedAs = map[string]int{"ScatterND": 0, "ScatterElements": 0, "Scatter": 0, "GatherElements": 1}

func (r *Reader) allSized(list []*onnx.Value) bool {
	return !slices.ContainsFunc(list, func(in *onnx.Value) bool { return in != nil && !r.Sized(in) })
}

// isWhole reports whether the shape input of a Reshape lists all dimensions.
func (r *Reader) isWhole(v *onnx.Value) bool {
	count, ok := r.g.Facts.Dim(v, 0)
	for i := range count {
		if x, is := r.fixed(r.Element(v, r.number(i))); is && x < 1 {
			return false
		}
	}
	return ok
}

// Moves reports whether the shape of a node's result, and the elements that it moves, follow from sizes by the same
// sums for all sizes.
func (r *Reader) Moves(n *onnx.Node) bool {
	if !onnx.IsStandardDomain(n.Domain) {
		return false
	}
	for _, i := range shapeInputs[n.OpType] {
		if in := n.Input(i); in != nil && !r.summed(in) {
			return false
		}
	}
	var list []*Expr
	switch n.OpType {
	case "Slice":
		cuts, unknown := r.cuts(n)
		if unknown != nil {
			return false
		}
		for _, c := range cuts {
			list = append(list, c.first, c.last)
		}
	case "Gather", "GatherElements", "GatherND":
		if v := n.Inputs[1]; v.Constant() == nil {
			rank, ok := r.g.Facts.Rank(v)
			if !ok {
				return false
			}
			list = append(list, r.anywhere(v, rank))
		}
	case "Range": // the length is at least 0
		length := r.integers(n, "Sub", r.Element(n.Inputs[1]), r.Element(n.Inputs[0]))
		list = append(list, r.apply(n, "Max", length, r.number(0)))
	}
	_, err := r.Only(list...)
	return err == nil
}

// summed reports whether the elements of a small value are sums of sizes.
func (r *Reader) summed(v *onnx.Value) bool {
	if v.Constant() != nil {
		return true
	}
	_, ok := r.Sums(v)
	return ok
}

// Sums returns the elements of a small vector or scalar as text, if they are the same sums of sizes for all sizes. ok
// is false for other values.
func (r *Reader) Sums(v *onnx.Value) (list []string, ok bool) {
	rank, ok := r.g.Facts.Rank(v)
	if !ok || rank > 1 || !r.Sized(v) {
		return nil, false
	}
	count := int64(1)
	if rank == 1 {
		if count, ok = r.g.Facts.Dim(v, 0); !ok || count > maxReduced {
			return nil, false
		}
	}
	for i := range count {
		values, err := r.Only(r.Element(v, []*Expr{r.number(i)}[:rank]...))
		if err != nil {
			return nil, false
		}
		if s := values[0].Sum; s != nil {
			list = append(list, s.Key())
		} else {
			list = append(list, fmt.Sprint(values[0].Number))
		}
	}
	return list, true
}

// readerOf is the memo of For.
type readerOf struct{ *Reader }

// For returns the reader of a graph. Every size that shape inference distinguishes is a separate variable.
func For(g *match.View) *Reader {
	memo := match.Memo[readerOf](g)
	if memo.Reader != nil {
		return memo.Reader
	}
	r := NewReader(g)
	sizes := map[[infer.Worlds]int64]*Var{}
	r.Size = func(v *onnx.Value, axis int) *Sum {
		var dim [infer.Worlds]int64
		same := true
		for w := range dim {
			if dim[w] = g.Facts.Size(v, w, axis); dim[w] < 0 {
				return nil
			}
			same = same && dim[w] == dim[0]
		}
		if same { // also for other sizes, if it follows from them by sums
			return Number(dim[0])
		}
		if sizes[dim] == nil {
			sizes[dim] = r.Natural(fmt.Sprintf("size of %q", v.Name))
		}
		return Of(sizes[dim])
	}
	memo.Reader = r
	return r
}

// IsNumber reports whether all elements of a value are one number, for all sizes.
func (r *Reader) IsNumber(v *onnx.Value) bool {
	rank, ok := r.g.Facts.Rank(v)
	if !ok {
		return false
	}
	values, err := r.Only(r.anywhere(v, rank))
	return err == nil && values[0].Sum == nil
}

// anywhere returns the element of a value at an arbitrary place.
func (r *Reader) anywhere(v *onnx.Value, rank int) *Expr {
	var at []*Expr
	for axis := range rank {
		if d, ok := r.g.Facts.Dim(v, axis); ok && d == 1 {
			at = append(at, r.number(0))
		} else {
			at = append(at, r.Sum(Of(r.Natural("any"))))
		}
	}
	return r.Element(v, at...)
}
