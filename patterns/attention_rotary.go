package patterns

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
)

// unpacked returns the queries, keys and values of a site that are one tensor, by heads.
func (r *replacementBuilder) unpacked(s *attention.Site) []*onnx.Value {
	all := r.node("Reshape", "all_heads", []*onnx.Value{r.input(Queries, "qkv", s.Q),
		r.integers("qkv_dims", 0, 0, s.Heads+2*s.KeyHeads, -1)})
	list := make([]*onnx.Value, 3)
	from := int64(0)
	for i, heads := range []int64{s.Heads, s.KeyHeads, s.KeyHeads} {
		list[i] = r.node("Slice", []string{"q", "k", "v"}[i], []*onnx.Value{all, r.integers("from", from),
			r.integers("to", from+heads), r.integers("axis", 2)})
		from += heads
	}
	return list
}

// rotate rotates the queries and keys, the first two of the inputs, by the positions of their tokens.
func (r *replacementBuilder) rotate(s *attention.Site, inputs []*onnx.Value) {
	one := r.integers("one", 1)
	length := r.newTokens(s, inputs[0])
	var first *onnx.Value // a position for each sequence, or for all
	if s.KeyValid != nil {
		exist := r.cast(r.input(NoRole, "key_valid", s.KeyValid), s.KeyValid, onnx.Int64)
		sum := r.node("ReduceSum", "lengths", []*onnx.Value{exist, one}) // an axis is kept, for the tokens
		first = r.node("Max", "first", []*onnx.Value{r.node("Sub", "past", []*onnx.Value{sum, length}),
			r.integers("zero", 0)})
	} else if s.PastKey != nil {
		past := r.node("Shape", "past_dims", []*onnx.Value{r.input(Keys, "past_key", s.PastKey)})
		first = r.node("Gather", "first", []*onnx.Value{past, r.integers("two", 2)})
	}
	scalar := func(x int64) *onnx.Value {
		t := onnx.NewInt64s("", []int64{x})
		t.Dims = []int64{}
		return r.constant("scalar", t)
	}
	positions := r.node("Range", "positions", []*onnx.Value{scalar(0),
		r.node("Squeeze", "token_number", []*onnx.Value{length}), scalar(1)})
	if first != nil {
		positions = r.node("Add", "places", []*onnx.Value{first, positions})
	}
	if s.KeyValid == nil {
		positions = r.node("Unsqueeze", "places_of_all", []*onnx.Value{positions, r.integers("axis", 0)})
	}
	table := func(name string, v *onnx.Value) *onnx.Value {
		rows := r.node("Gather", name+"_rows", []*onnx.Value{r.input(NoRole, name, v), positions})
		return r.node("Unsqueeze", name, []*onnx.Value{rows, r.integers("heads_axis", 2)})
	}
	cos, sin := table("cos", s.Rotary.Cos), table("sin", s.Rotary.Sin)
	pairs, _ := r.f.view.Facts.Dim(s.Rotary.Cos, 1)
	layout := "halves"
	if s.Rotary.Interleaved {
		layout = "interleaved"
	}
	for i, name := range []string{"q_rotated", "k_rotated"} {
		n := r.g.AddNode("RotaryEmbedding", []*onnx.Value{inputs[i], cos, sin}, []*onnx.Value{r.g.NewValue(name)},
			onnx.IntAttr("interleaved", boolToInt(s.Rotary.Interleaved)), onnx.IntAttr("rotary_dim", 2*pairs),
			onnx.StringAttr("rotated_side", "first"), onnx.StringAttr("output_layout", layout))
		n.Domain = r.m.Domain
		inputs[i] = n.Outputs[0]
	}
}

// newTokens is the number of new tokens: of an input of the graph, where one has it, so that what is computed from it
// is the same in all layers.
func (r *replacementBuilder) newTokens(s *attention.Site, q *onnx.Value) *onnx.Value {
	facts := r.f.view.Facts
	for _, v := range r.f.view.Graph.Inputs {
		rank, _ := facts.Rank(v)
		if v.Const != nil || rank < 2 || v == s.PastKey || v == s.PastValue {
			continue
		}
		if facts.SameDim(v, 1, s.Q, 1) {
			q = r.input(ShapeAlone, v.Name, v)
			break
		}
	}
	return r.node("Gather", "tokens", []*onnx.Value{r.node("Shape", "dims", []*onnx.Value{q}),
		r.integers("axis", 1)})
}
