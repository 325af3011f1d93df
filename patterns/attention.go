package patterns

import (
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// attentionForm finds blocks of attention. What text patterns found within one, such as the transposition of its keys,
// are its parts.
var attentionForm = newAttentionForm(attention.NoMasks)

func newAttentionForm(added attention.Masks) *goForm {
	return &goForm{name: "Attention", op: "Attention", joins: true,
		find: func(f *finder, d *goForm) []*Match { return f.findAttention(d, added) }}
}

// WithAddedMasks returns the set whose sites of Attention have the masks that the model adds to the scores as their
// bias: all of them, or those that the standard's op has no attributes for.
func (s *Set) WithAddedMasks(all bool) *Set {
	form := newAttentionForm(attention.OtherMasks)
	if all {
		form = newAttentionForm(attention.AllMasks)
	}
	changed := s.Select(func(*Pattern) bool { return true })
	for p, is := range changed.forms {
		if is == attentionForm {
			changed.forms[p] = form
		}
	}
	return changed
}

func (f *finder) findAttention(d *goForm, added attention.Masks) []*Match {
	sites, misses := attention.Find(f.view, added)
	for _, m := range misses {
		f.note(d.name, m.Anchor, m.Why)
	}
	var found []*Match
	byRoot := map[*onnx.Node][]*Match{}
	for _, m := range f.matches {
		byRoot[m.Root] = append(byRoot[m.Root], m)
	}
	for _, s := range sites {
		if m := f.joinAttention(d, s, byRoot); m != nil {
			found = append(found, m)
		}
	}
	return found
}

// joinAttention makes a match of a site, with its smaller readings; nil where a match of another pattern reaches across
// its border. matches are those of other patterns by their roots.
func (f *finder) joinAttention(d *goForm, s *attention.Site, matches map[*onnx.Node][]*Match) *Match {
	m := f.attentionMatch(d, s, matches)
	if m != nil && s.Smaller != nil {
		m.Smaller = func() *Match {
			if smaller := s.Smaller(); smaller != nil {
				return f.joinAttention(d, smaller, matches)
			}
			return nil
		}
	}
	return m
}

// attentionMatch is joinAttention without smaller readings.
func (f *finder) attentionMatch(d *goForm, s *attention.Site, matches map[*onnx.Node][]*Match) *Match {
	nodes := s.Nodes
	r := f.newReplacement(d, s.Y.Producer)
	for _, root := range nodes {
		for _, m := range matches[root] {
			for _, n := range m.Nodes {
				if !slices.Contains(nodes, n) {
					f.note(d.name, s.Anchor, reason.New(reason.AttentionOther, n,
						"%s stands across the border of the block", m.Pattern))
					return nil
				}
			}
			r.m.Parts = append(r.m.Parts, m)
		}
	}
	exists := KeyExists
	switch {
	case s.OnTheRight:
		exists = KeyLengths
	case s.KeyHides:
		exists = KeyHidden
	}
	var packed []*onnx.Value
	if s.Packed {
		packed = r.unpacked(s)
	}
	inputs := make([]*onnx.Value, 0, 9)
	for _, in := range []struct {
		name  string
		value *onnx.Value
		what  Role
		axes  attention.Axes
	}{{"q", s.Q, Queries, s.QAxes}, {"k", s.K, Keys, s.KAxes}, {"v", s.V, Values, s.VAxes},
		{"key_valid", s.KeyValid, exists, ""}, {"past_key", s.PastKey, Keys, ""},
		{"past_value", s.PastValue, Values, ""}, {"past_length", nil, NoRole, ""}, {"bias", nil, ScoreBias, ""},
		{"sink", s.Sink, NoRole, ""}} {
		var v *onnx.Value
		switch at := len(inputs); {
		case at < len(packed):
			v = packed[at]
		case in.value != nil:
			v = r.input(in.what, in.name, in.value)
		}
		switch {
		case in.what == ScoreBias:
			v = r.bias(s)
		case in.name == "sink" && s.SinkIs != nil:
			sinks := make([]float32, len(s.SinkIs))
			for h, x := range s.SinkIs {
				sinks[h] = float32(x)
			}
			v = r.constant("sink", onnx.NewFloat32s("", []int64{s.Heads}, sinks))
		case v == nil:
		case len(inputs) < len(packed):
		case in.value == s.Q || in.value == s.K || in.value == s.V: // keys may be values as well
			v = r.cast(v, in.value, f.view.Facts.DataType(s.Y))
			heads, channels := s.KeyHeads, s.Width
			switch in.name {
			case "q":
				heads = s.Heads
			case "v":
				channels = s.ValueWidth
			}
			v = arranger{r, in.name, heads, channels}.from(v, in.axes)
			if in.name == "q" && s.HeadScale != nil {
				v = r.scaledHeads(v, s)
			}
			if in.name == "q" && s.QueryScale != nil {
				v = r.scaledQueries(v, s)
			}
		case in.name == "key_valid" && s.KeyHides:
			zero := onnx.NewInt64s("", []int64{0})
			is := r.node("Equal", "key_exists",
				[]*onnx.Value{r.cast(v, in.value, onnx.Int64), r.constant("zero", zero)})
			v = r.node("Cast", "key_valid_cast", []*onnx.Value{is}, onnx.IntAttr("to", int64(onnx.Int64)))
		case in.name == "key_valid":
			v = r.cast(v, in.value, onnx.Int64)
		case in.name == "sink":
			if rank, ok := f.view.Facts.Rank(s.Sink); !ok || rank != 1 {
				v = r.node("Reshape", "sink_heads", []*onnx.Value{v, r.integers("heads", -1)})
			}
			v = r.cast(v, in.value, onnx.Float)
		}
		inputs = append(inputs, v)
	}
	if s.Rotary != nil {
		r.rotate(s, inputs)
	}
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	read := func(v *onnx.Value) bool {
		return v != nil && (v.IsOutput() || slices.ContainsFunc(f.view.Readers(v),
			func(n *onnx.Node) bool { return !n.Is("Shape") && !slices.Contains(nodes, n) }))
	}
	outputs := []string{"y", "", ""} // onnxruntime wants all outputs of the definition listed
	if read(s.PresentKey) || read(s.PresentValue) {
		outputs[1], outputs[2] = "present_key", "present_value"
	}
	out := r.fused(inputs, outputs, append(s.Attributes(), onnx.StringAttr("q_layout", axesForms[s.QAxes].layout),
		onnx.StringAttr("k_layout", axesForms[s.KAxes].layout), onnx.StringAttr("v_layout", axesForms[s.VAxes].layout),
		onnx.StringAttr("y_layout", axesForms[s.YAxes].layout))...)
	out[0] = arranger{r, "y", s.Heads, s.ValueWidth}.to(out[0], s.YAxes)
	r.output(s.Y, out[0])
	for i, v := range []*onnx.Value{s.PresentKey, s.PresentValue} {
		if read(v) {
			r.output(v, out[i+1])
		}
	}
	m := r.match(nodes)
	m.Attention = s
	return m
}

// scaledHeads multiplies the queries of each head with its factor of the scores.
func (r *replacementBuilder) scaledHeads(q *onnx.Value, s *attention.Site) *onnx.Value {
	dims := []int64{s.Heads, 1}
	if axesForms[s.QAxes].layout == byHeads {
		dims = []int64{s.Heads, 1, 1}
	}
	factors := r.cast(r.input(NoRole, "head_scale", s.HeadScale), s.HeadScale, r.f.view.Facts.DataType(s.Y))
	return r.node("Mul", "q_scaled", []*onnx.Value{q,
		r.node("Reshape", "scale_heads", []*onnx.Value{factors, r.integers("scale_dims", dims...)})})
}

// scaledQueries multiplies the queries with their factor of the scores, or divides them by it.
func (r *replacementBuilder) scaledQueries(q *onnx.Value, s *attention.Site) *onnx.Value {
	v := s.QueryScale
	x := r.cast(r.input(NoRole, "query_scale", v), v, r.f.view.Facts.DataType(s.Y))
	if rank, _ := r.f.view.Facts.Rank(v); rank > 0 {
		x = r.onScores(x, v, s)
		if axesForms[s.QAxes].layout != byHeads {
			if more := int64(4 - rank); more > 0 && x.Producer == nil || more > 0 && rank < 4 {
				axes := make([]int64, more)
				for i := range axes {
					axes[i] = int64(i)
				}
				x = r.node("Unsqueeze", "query_scale_all", []*onnx.Value{x, r.integers("query_scale_axes", axes...)})
			}
			x = r.node("Transpose", "query_scale_turned", []*onnx.Value{x}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
	}
	op := "Mul"
	if s.QueryDivides {
		op = "Div"
	}
	return r.node(op, "q_scaled", []*onnx.Value{q, x})
}

// bias is the sum of the tensors that are added to the scores, nil for none.
func (r *replacementBuilder) bias(s *attention.Site) *onnx.Value {
	var sum *onnx.Value
	if v := s.Choice; v != nil {
		number := func(x float32) *onnx.Value { return r.constant("number", onnx.NewFloat32s("", nil, []float32{x})) }
		seen, hidden := number(0), number(float32(math.Inf(-1)))
		if s.Hides {
			seen, hidden = hidden, seen
		}
		x := r.input(NoRole, "choice", v)
		sum = r.onScores(r.node("Where", "bias_of_choice", []*onnx.Value{x, seen, hidden}), v, s)
	}
	role := ScoreBias
	if s.Choice != nil { // hides keys alone: minus infinity is less than the numbers of those that are hidden
		role = NoRole
	}
	for _, v := range s.Bias {
		x := r.cast(r.input(role, "bias", v), v, onnx.Float)
		if s.BiasScale != 0 {
			x = r.node("Mul", "bias_scaled", []*onnx.Value{x,
				r.constant("bias_scale", onnx.NewFloat32s("", nil, []float32{float32(s.BiasScale)}))})
		}
		x = r.onScores(x, v, s)
		if sum != nil {
			x = r.node("Add", "bias_sum", []*onnx.Value{sum, x})
		}
		sum = x
	}
	return sum
}

// onScores gives x, a tensor like v that is added to the scores, the axes that those of the op have.
func (r *replacementBuilder) onScores(x, v *onnx.Value, s *attention.Site) *onnx.Value {
	rank, _ := r.f.view.Facts.Rank(v)
	fields := s.BiasAxes.Fields()
	if rank >= 4 || len(fields) == 4 {
		fields = strings.Split(strings.ReplaceAll(string(s.BiasAxes), " ", ""), "")
	}
	if i := slices.Index(fields, "n"); len(s.BiasParts) > 1 && i >= 0 {
		fields = slices.Concat(fields[:i], slices.Repeat([]string{"n"}, len(s.BiasParts)), fields[i+1:])
	}
	var perm []int64 // from those to the op's
	for _, letters := range []string{"b", "n", "s", "l"} {
		for i, f := range fields {
			if strings.Contains(f, letters) && !slices.Contains(perm, int64(i)) {
				perm = append(perm, int64(i))
			}
		}
	}
	parted := len(s.BiasParts) > 1 && rank > 2
	if !slices.IsSorted(perm) || parted {
		if more := len(fields) - rank; more > 0 {
			axes := make([]int64, more)
			for i := range axes {
				axes[i] = int64(i)
			}
			x = r.node("Unsqueeze", "bias_all", []*onnx.Value{x, r.integers("bias_axes", axes...)})
		}
	}
	if !slices.IsSorted(perm) {
		x = r.node("Transpose", "bias_turned", []*onnx.Value{x}, onnx.IntsAttr("perm", perm))
	}
	if parted {
		x = r.joinedHeads(x, s.BiasParts)
	}
	if len(fields) == 3 && len(fields[0]) == 2 && rank == 3 { // batch and heads are one
		if d, ok := r.f.view.Facts.Dim(v, 0); !ok || d != 1 {
			x = r.parted(x, s.Heads)
		}
	}
	return x
}

// joinedHeads makes one dimension of those of heads, which stand behind the first one.
func (r *replacementBuilder) joinedHeads(v *onnx.Value, parts []int64) *onnx.Value {
	wide, heads := []int64{1}, int64(1)
	for _, d := range parts {
		wide, heads = append(wide, d), heads*d
	}
	v = r.node("Expand", "bias_parts", []*onnx.Value{v, r.integers("parts", append(wide, 1, 1)...)})
	shape := r.node("Shape", "bias_shape", []*onnx.Value{v})
	cut := func(name string, from, to int64) *onnx.Value {
		return r.node("Slice", name, []*onnx.Value{shape, r.integers("from", from), r.integers("to", to)})
	}
	last := int64(len(parts)) + 1
	dims := []*onnx.Value{cut("bias_first", 0, 1), r.integers("bias_heads", heads), cut("bias_last", last, last+2)}
	return r.node("Reshape", "bias_by_heads", []*onnx.Value{v,
		r.node("Concat", "bias_dims", dims, onnx.IntAttr("axis", 0))})
}

// parted is a tensor of three dimensions whose first one is of sequences and heads, with two in its place.
func (r *replacementBuilder) parted(v *onnx.Value, heads int64) *onnx.Value {
	shape := r.node("Shape", "bias_shape", []*onnx.Value{v})
	last := r.node("Slice", "bias_last", []*onnx.Value{shape, r.integers("from", 1), r.integers("to", 3)})
	parts := []*onnx.Value{r.integers("bias_heads", -1, heads), last}
	return r.node("Reshape", "bias_by_heads", []*onnx.Value{v,
		r.node("Concat", "bias_dims", parts, onnx.IntAttr("axis", 0))})
}

func boolToInt(x bool) int64 {
	if x {
		return 1
	}
	return 0
}

// cast adds a Cast of the value that stands for one of the model, unless it has the type.
func (r *replacementBuilder) cast(v, of *onnx.Value, t onnx.DataType) *onnx.Value {
	if r.f.view.Facts.DataType(of) == t {
		return v
	}
	return r.node("Cast", v.Name+"_cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(t)))
}
