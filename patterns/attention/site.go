package attention

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// builder makes the op's inputs from the values of a block.
type builder struct {
	*site.Site
	*Reading
	g *match.View
}

// site returns the site at which mojo.Attention replaces the block.
func (s *Reading) site(g *match.View) *site.Site {
	b := &builder{site.New(g, fused.AttentionName, s.Y.Producer), s, g}
	b.Site.Nodes, b.Site.Anchor, b.Site.Reading = s.Nodes, s.Anchor, s
	if s.smaller != nil {
		b.Site.Smaller = func() *site.Site {
			if smaller := s.smaller(); smaller != nil {
				return smaller.site(g)
			}
			return nil
		}
	}
	var q, k, v *site.Operand
	if s.Packed {
		q, k, v = b.unpacked()
	} else {
		q = b.scaledQueries(b.scaledHeads(b.operand(fused.RoleQueries, "q", s.Q, s.QAxes, s.Heads, s.Width)))
		k = b.operand(fused.RoleKeys, "k", s.K, s.KAxes, s.KeyHeads, s.Width)
		v = b.operand(fused.RoleValues, "v", s.V, s.VAxes, s.KeyHeads, s.ValueWidth)
	}
	valid := b.keyValid()
	pastKey := b.past(fused.RoleKeys, "past_key", s.PastKey)
	pastValue := b.past(fused.RoleValues, "past_value", s.PastValue)
	bias, sink := b.bias(), b.sink()
	if s.Rotary != nil {
		q, k = b.rotated(q, k)
	}
	outputs := []string{"y", "", ""} // onnxruntime requires all outputs of the definition
	if b.read(s.PresentKey) || b.read(s.PresentValue) {
		outputs[1], outputs[2] = "present_key", "present_value"
	}
	out := b.Compute(s.op(s.QAxes, s.KAxes, s.VAxes, s.YAxes), outputs, q, k, v, valid, pastKey, pastValue, nil,
		bias, sink)
	b.Output(s.Y, arranger{b, "y", s.Heads, s.ValueWidth}.to(out[0], s.YAxes))
	for i, v := range []*onnx.Value{s.PresentKey, s.PresentValue} {
		if b.read(v) {
			b.Output(v, out[i+1])
		}
	}
	return b.Site
}

// op returns mojo.Attention with its attributes. The layouts are those that operands and a result of the given axes are
// converted to.
func (s *Reading) op(q, k, v, y Axes) fused.Attention {
	layout := func(a Axes) string { return axesForms[a].layout.letters() }
	return fused.Attention{Scale: float32(s.Scale), Causal: s.Causal, Window: s.Window, Softcap: float32(s.Softcap),
		Empty: cmp.Or(s.Empty, zero), HeadOrder: cmp.Or(s.HeadOrder, blocked), QLayout: layout(q),
		KLayout: layout(k), VLayout: layout(v), YLayout: layout(y)}
}

// read reports whether a node outside the block reads a value.
func (b *builder) read(v *onnx.Value) bool {
	return v != nil && (v.IsOutput() || slices.ContainsFunc(b.g.Readers(v),
		func(n *onnx.Node) bool { return !n.Is("Shape") && !slices.Contains(b.Site.Nodes, n) }))
}

// operand casts queries, keys or values to the type of the result and converts them to the op's axes.
func (b *builder) operand(what fused.Role, name string, v *onnx.Value, axes Axes, heads, channels int64) *site.Operand {
	return arranger{b, name, heads, channels}.from(b.Input(what, name, v).Cast(b.typeOf(b.Y)), axes)
}

func (b *builder) typeOf(v *onnx.Value) onnx.DataType { return b.g.Facts.DataType(v) }

func (b *builder) past(what fused.Role, name string, v *onnx.Value) *site.Operand {
	if v == nil {
		return nil
	}
	return b.Input(what, name, v)
}

// keyValid returns the operand that is not 0 for keys that exist.
func (b *builder) keyValid() *site.Operand {
	if b.KeyValid == nil {
		return nil
	}
	role := fused.RoleKeyExists
	switch {
	case b.OnTheRight:
		role = fused.RoleKeyLengths
	case b.KeyHides:
		role = fused.RoleKeyHidden
	}
	v := b.Input(role, "key_valid", b.KeyValid).Cast(onnx.Int64)
	if b.KeyHides {
		v = v.With("Equal", "key_exists", "zero", 0)
		v.Type = onnx.Bool
	}
	return v.CastAs("key_valid_cast", onnx.Int64)
}

// sink returns the score of each head that belongs to no key, or nil.
func (b *builder) sink() *site.Operand {
	switch {
	case b.SinkIs != nil:
		sinks := make([]float32, len(b.SinkIs))
		for h, x := range b.SinkIs {
			sinks[h] = float32(x)
		}
		return b.Constant("sink", onnx.NewFloat32s("", []int64{b.Heads}, sinks))
	case b.Sink == nil:
		return nil
	}
	v := b.Input(fused.NoRole, "sink", b.Sink)
	if rank, ok := b.g.Facts.Rank(b.Sink); !ok || rank != 1 {
		v = v.With("Reshape", "sink_heads", "heads", -1)
	}
	return v.Cast(onnx.Float)
}

// unpacked splits the queries, keys and values of a packed tensor by heads.
func (b *builder) unpacked() (q, k, v *site.Operand) {
	all := b.Input(fused.RoleQueries, "qkv", b.Q).With("Reshape", "all_heads", "qkv_dims", 0, 0,
		b.Heads+2*b.KeyHeads, -1)
	from := int64(0)
	next := func(name string, heads int64) *site.Operand {
		from += heads
		return all.Then("Slice", name, []*site.Operand{b.Integers("from", from-heads), b.Integers("to", from),
			b.Integers("axis", 2)})
	}
	return next("q", b.Heads), next("k", b.KeyHeads), next("v", b.KeyHeads)
}

// rotated rotates queries and keys by the positions of their tokens.
func (b *builder) rotated(q, k *site.Operand) (_, _ *site.Operand) {
	one := b.Integers("one", 1)
	length := b.newTokens(q)
	var first *site.Operand // a position for each sequence, or one for all
	if b.KeyValid != nil {
		sum := b.Input(fused.NoRole, "key_valid", b.KeyValid).Cast(onnx.Int64).
			Then("ReduceSum", "lengths", []*site.Operand{one}) // keeps an axis for the tokens
		first = sum.Then("Sub", "past", []*site.Operand{length}).With("Max", "first", "zero", 0)
	} else if b.PastKey != nil {
		first = b.Input(fused.RoleKeys, "past_key", b.PastKey).Then("Shape", "past_dims", nil).
			With("Gather", "first", "two", 2)
	}
	positions := b.Integer("scalar", 0).Then("Range", "positions",
		[]*site.Operand{length.Then("Squeeze", "token_number", nil), b.Integer("scalar", 1)})
	if first != nil {
		positions = first.Then("Add", "places", []*site.Operand{positions})
	}
	if b.KeyValid == nil {
		positions = positions.With("Unsqueeze", "places_of_all", "axis", 0)
	}
	table := func(name string, v *onnx.Value) *site.Operand {
		return b.Input(fused.NoRole, name, v).Then("Gather", name+"_rows", []*site.Operand{positions}).
			With("Unsqueeze", name, "heads_axis", 2)
	}
	cos, sin := table("cos", b.Rotary.Cos), table("sin", b.Rotary.Sin)
	pairs, _ := b.g.Facts.Dim(b.Rotary.Cos, 1)
	layout := "halves"
	if b.Rotary.Interleaved {
		layout = "interleaved"
	}
	rotated := func(name string, x *site.Operand) *site.Operand {
		return b.Fused(fused.RotaryEmbedding{Interleaved: b.Rotary.Interleaved, RotaryDim: 2 * pairs,
			RotatedSide: "first", OutputLayout: layout}, []string{name}, x, cos, sin)[0]
	}
	return rotated("q_rotated", q), rotated("k_rotated", k)
}

// newTokens returns the number of new tokens. It is read from an input of the graph if possible: then the nodes
// computed from it are equal in all layers.
func (b *builder) newTokens(q *site.Operand) *site.Operand {
	facts := b.g.Facts
	for _, v := range b.g.Graph.Inputs {
		rank, _ := facts.Rank(v)
		if v.Const == nil && rank >= 2 && v != b.PastKey && v != b.PastValue && facts.SameDim(v, 1, b.Q, 1) {
			q = b.Input(fused.RoleShapeAlone, v.Name, v)
			break
		}
	}
	return q.Then("Shape", "dims", nil).With("Gather", "tokens", "axis", 1)
}

// scaledHeads multiplies the queries of each head by the head's factor of the scores.
func (b *builder) scaledHeads(q *site.Operand) *site.Operand {
	if b.HeadScale == nil {
		return q
	}
	dims := []int64{b.Heads, 1}
	if axesForms[b.QAxes].layout == byHeads {
		dims = []int64{b.Heads, 1, 1}
	}
	factors := b.Input(fused.NoRole, "head_scale", b.HeadScale).Cast(b.typeOf(b.Y))
	return q.Then("Mul", "q_scaled", []*site.Operand{factors.With("Reshape", "scale_heads", "scale_dims", dims...)})
}

// scaledQueries multiplies or divides the queries by their factor of the scores.
func (b *builder) scaledQueries(q *site.Operand) *site.Operand {
	v := b.QueryScale
	if v == nil {
		return q
	}
	x := b.Input(fused.NoRole, "query_scale", v).Cast(b.typeOf(b.Y))
	if rank, _ := b.g.Facts.Rank(v); rank > 0 {
		x = b.onScores(x, v)
		if axesForms[b.QAxes].layout != byHeads {
			x = widened(x, 4-rank, "query_scale_all", "query_scale_axes").Transpose("query_scale_turned", 0, 2, 1, 3)
		}
	}
	op := "Mul"
	if b.QueryDivides {
		op = "Div"
	}
	return q.Then(op, "q_scaled", []*site.Operand{x})
}

// widened inserts the given number of leading axes of size 1.
func widened(x *site.Operand, more int, name, what string) *site.Operand {
	if more <= 0 {
		return x
	}
	axes := make([]int64, more)
	for i := range axes {
		axes[i] = int64(i)
	}
	return x.With("Unsqueeze", name, what, axes...)
}

// bias returns the sum of the tensors that are added to the scores, or nil.
func (b *builder) bias() *site.Operand {
	var sum *site.Operand
	role := fused.RoleScoreBias
	if v := b.Choice; v != nil {
		number := func(x float32) *site.Operand { return b.Constant("number", onnx.NewFloat32s("", nil, []float32{x})) }
		seen, hidden := number(0), number(float32(math.Inf(-1)))
		if b.Hides {
			seen, hidden = hidden, seen
		}
		x := b.Input(fused.NoRole, "choice", v)
		sum = b.onScores(x.Then("Where", "bias_of_choice", []*site.Operand{seen, hidden}), v)
		role = fused.NoRole // only hides keys: minus infinity is below any finite mask
	}
	for _, v := range b.Bias {
		x := b.Input(role, "bias", v).Cast(onnx.Float)
		if b.BiasScale != 0 {
			x = x.Then("Mul", "bias_scaled", []*site.Operand{
				b.Constant("bias_scale", onnx.NewFloat32s("", nil, []float32{float32(b.BiasScale)}))})
		}
		x = b.onScores(x, v)
		if sum != nil {
			x = sum.Then("Add", "bias_sum", []*site.Operand{x})
		}
		sum = x
	}
	for _, d := range b.Detours {
		x := b.onScores(b.detoured(d).Cast(onnx.Float), d.to)
		if b.BiasScale != 0 {
			x = x.Then("Mul", "bias_scaled", []*site.Operand{
				b.Constant("bias_scale", onnx.NewFloat32s("", nil, []float32{float32(b.BiasScale)}))})
		}
		if sum != nil {
			x = sum.Then("Add", "bias_sum", []*site.Operand{x})
		}
		sum = x
	}
	return sum
}

// detoured computes the results of a detour for scores of 0.
func (b *builder) detoured(d detour) *site.Operand {
	keys, _ := b.keysOf(b.g, d.from)
	count := b.Input(fused.RoleQueries, "q", b.Q).Then("Size", "q_size", nil).With("Mul", "q_keys", "keys", keys).
		With("Div", "score_count", "width", b.Width)
	x := b.Number(0, b.typeOf(d.from)).Then("Expand", "no_scores", []*site.Operand{count}).
		With("Reshape", "no_scores_by_head", "shape", dimsOf(b.g, d.from)...)
	added := d.sides()
	for _, n := range d.nodes {
		if n.Is("Add") {
			x = x.Then("Add", "bias_in_shape", []*site.Operand{b.Input(fused.RoleScoreBias, "bias", added[0])})
			added = added[1:]
		} else {
			x = x.With("Reshape", "scores_in_shape", "shape", dimsOf(b.g, n.Outputs[0])...)
		}
	}
	return x
}

// onScores converts x, a tensor with the axes of v that is added to the scores, to the order of the op's axes.
func (b *builder) onScores(x *site.Operand, v *onnx.Value) *site.Operand {
	rank, _ := b.g.Facts.Rank(v)
	fields := b.BiasAxes.Fields()
	if rank >= 4 || len(fields) == 4 {
		fields = strings.Split(b.BiasAxes.letters(), "")
	}
	if i := slices.Index(fields, "n"); len(b.BiasParts) > 1 && i >= 0 {
		fields = slices.Concat(fields[:i], slices.Repeat([]string{"n"}, len(b.BiasParts)), fields[i+1:])
	}
	var perm []int64 // from these axes to the op's
	for _, letters := range []string{"b", "n", "s", "l"} {
		for i, f := range fields {
			if strings.Contains(f, letters) && !slices.Contains(perm, int64(i)) {
				perm = append(perm, int64(i))
			}
		}
	}
	parted, turned := len(b.BiasParts) > 1 && rank > 2, !slices.IsSorted(perm)
	if turned || parted {
		x = widened(x, len(fields)-rank, "bias_all", "bias_axes")
	}
	if turned {
		x = x.Transpose("bias_turned", perm...)
	}
	if parted {
		x = b.joinedHeads(x)
	}
	if len(fields) == 3 && len(fields[0]) == 2 && rank == 3 { // batch and heads share a dimension
		if d, ok := b.g.Facts.Dim(v, 0); !ok || d != 1 {
			x = b.parted(x)
		}
	}
	return x
}

// joinedHeads merges the dimensions of heads, which follow the first dimension, into one.
func (b *builder) joinedHeads(v *site.Operand) *site.Operand {
	wide, heads := []int64{1}, int64(1)
	for _, d := range b.BiasParts {
		wide, heads = append(wide, d), heads*d
	}
	v = v.With("Expand", "bias_parts", "parts", append(wide, 1, 1)...)
	shape := v.Then("Shape", "bias_shape", nil)
	last := int64(len(b.BiasParts)) + 1
	return b.byHeads(v, b.cut(shape, "bias_first", 0, 1), b.Integers("bias_heads", heads),
		b.cut(shape, "bias_last", last, last+2))
}

// parted splits the first of three dimensions into batch and heads.
func (b *builder) parted(v *site.Operand) *site.Operand {
	last := b.cut(v.Then("Shape", "bias_shape", nil), "bias_last", 1, 3)
	return b.byHeads(v, b.Integers("bias_heads", -1, b.Heads), last)
}

func (b *builder) cut(shape *site.Operand, name string, from, to int64) *site.Operand {
	return shape.Then("Slice", name, []*site.Operand{b.Integers("from", from), b.Integers("to", to)})
}

// byHeads reshapes a bias to a shape concatenated from parts.
func (b *builder) byHeads(v *site.Operand, shape ...*site.Operand) *site.Operand {
	return v.Then("Reshape", "bias_by_heads",
		[]*site.Operand{b.Node("Concat", "bias_dims", shape, onnx.IntAttr("axis", 0))})
}
