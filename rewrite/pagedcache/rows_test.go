package pagedcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

func floats(shape []int, list ...float64) *reference.Tensor {
	return reference.NewFloats(onnx.Float, shape, list)
}

// TestRowsOfSteps puts the rows and tokens of sequences one after another, and cuts caches to their first tokens.
func TestRowsOfSteps(t *testing.T) {
	rows := appendRows(appendRows(nil, floats([]int{1, 2, 2}, 1, 2, 3, 4)), floats([]int{1, 2}, 5, 6))
	if !slices.Equal(rows.Shape, []int{3, 2}) || !slices.Equal(rows.F, []float64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("rows %v of %v", rows.F, rows.Shape)
	}
	ids := func(list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int64, []int{1, len(list)}, list) }
	first, err := appendTokens(nil, ids(7))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := appendTokens(first, ids(8, 9))
	if err != nil || !slices.Equal(tokens.Shape, []int{3}) || !slices.Equal(tokens.I, []int64{7, 8, 9}) {
		t.Errorf("tokens %v, %v", tokens, err)
	}
	wide, err := appendTokens(floats([]int{1, 2}, 1, 2), floats([]int{1, 2, 2}, 3, 4, 5, 6))
	if err != nil || !slices.Equal(wide.Shape, []int{3, 2}) || !slices.Equal(wide.F, []float64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("embeddings %v, %v", wide, err)
	}
	if _, err := appendTokens(nil, nil); err == nil {
		t.Error("no tokens were appended")
	}
	last := (&Change{}).withTokens(floats([]int{3, 2}, 1, 2, 3, 4, 5, 6), []chunk{{new: 2}, {}, {new: 1}})
	if !slices.Equal(last.Shape, []int{2, 2}) || !slices.Equal(last.F, []float64{1, 2, 5, 6}) {
		t.Errorf("rows %v of sequences with tokens", last.F)
	}

	g := onnx.New(10, 18).Graph
	past := g.AddInput("past", onnxtest.Type(onnx.Float, "batch", 2, "past", 1))
	cache := floats([]int{1, 2, 3, 1}, 1, 2, 3, 4, 5, 6) // two heads of three tokens
	for n, want := range [][]float64{nil, {1, 4}, {1, 2, 4, 5}, {1, 2, 3, 4, 5, 6}} {
		got, err := firstTokens(past, cache, n)
		if err != nil || !slices.Equal(got.F, want) || !slices.Equal(got.Shape, []int{1, 2, n, 1}) {
			t.Errorf("the first %d tokens: %v, %v, want %v", n, got, err, want)
		}
	}
	for _, dims := range [][]any{{"batch", 2, "past"}, {"batch", "heads", "past", 1}, {"batch", 2, "past", "width"}} {
		if _, err := firstTokens(g.AddInput("past", onnxtest.Type(onnx.Float, dims...)), cache, 1); err == nil {
			t.Errorf("a cache of %v is taken", dims)
		}
	}
}

// TestTokensOfOneSequence: ids, positions and masks continue those of the chunk before, and differ between sequences.
func TestTokensOfOneSequence(t *testing.T) {
	g := onnx.New(10, 18).Graph
	add := func(name string, typ onnx.DataType, role roles.Role, dims ...any) *roles.Input {
		v := g.AddInput(name, onnxtest.Type(typ, dims...))
		g.AddNode("Identity", []*onnx.Value{v}, []*onnx.Value{g.NewValue("read")})
		declared, _ := v.Type()
		return &roles.Input{Value: v, Role: role, DataType: typ, Dims: declared.Dims}
	}
	ids := add("ids", onnx.Int64, roles.Index, "batch", "tokens")
	ids.Tables = []onnx.Dim{{Value: 5}, {Value: 50}}
	s := &scenario{caches: map[*onnx.Value]*onnx.Value{}}
	in := func(i *roles.Input, c chunk) *reference.Tensor {
		t.Helper()
		x, err := s.input(0, i, c)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	first, next, other := in(ids, chunk{0, 0, 0, 3}), in(ids, chunk{0, 0, 3, 2}), in(ids, chunk{1, 1, 0, 3})
	whole := in(ids, chunk{0, 0, 0, 5})
	if !slices.Equal(whole.I, slices.Concat(first.I, next.I)) || slices.Equal(first.I, other.I) ||
		!slices.Equal(whole.Shape, []int{1, 5}) || slices.Min(whole.I) < 0 || slices.Max(whole.I) >= 50 ||
		slices.Max(whole.I) < 5 {
		t.Errorf("ids %v and %v, of both %v, of another sequence %v", first.I, next.I, whole.I, other.I)
	}
	positions := in(add("positions", onnx.Int32, roles.Position, "batch", "tokens"), chunk{0, 0, 3, 2})
	if !slices.Equal(positions.I, []int64{3, 4}) || positions.DataType != onnx.Int32 {
		t.Errorf("positions %v", positions)
	}
	mask := in(add("mask", onnx.Int64, roles.Mask, "batch", "total"), chunk{0, 0, 3, 2})
	if !slices.Equal(mask.I, []int64{1, 1, 1, 1, 1}) || !slices.Equal(mask.Shape, []int{1, 5}) {
		t.Errorf("the mask is %v", mask)
	}
	embeddings := add("embeddings", onnx.Float, roles.Index, "batch", "tokens", 4)
	rows, later := in(embeddings, chunk{0, 0, 0, 2}), in(embeddings, chunk{0, 0, 2, 2})
	if !slices.Equal(rows.Shape, []int{1, 2, 4}) || slices.Equal(rows.F, later.F) {
		t.Errorf("embeddings %v, then %v", rows, later)
	}
	cache := add("past", onnx.Float, roles.Past, "batch", 2, "past", 4)
	s.caches[cache.Value] = cache.Value
	if x := in(cache, chunk{}); x != nil {
		t.Errorf("a cache is given as %v", x)
	}
	if x := in(add("flag", onnx.Bool, roles.CacheFlag, 1), chunk{}); !slices.Equal(x.I, []int64{1}) {
		t.Errorf("the flag is %v", x)
	}
	state := add("state", onnx.Float, roles.Index, "batch", 2)
	unread := &roles.Input{Value: g.NewValue("unread"), DataType: onnx.Float, Dims: state.Dims}
	if !s.isState(state) || s.isState(unread) || s.isState(embeddings) || s.isState(ids) {
		t.Error("not the read inputs without an axis for tokens are states")
	}
	unknown := add("threshold", onnx.Float, roles.Past, "batch")
	if _, err := s.input(0, unknown, chunk{}); err == nil {
		t.Error("an unknown input is given")
	}
}

// TestMixedValues tells values that have a row for each token from values that depend on other tokens.
func TestMixedValues(t *testing.T) {
	v := new(onnx.Value)
	alone := func(first, last *reference.Tensor) []map[*onnx.Value]*reference.Tensor {
		return []map[*onnx.Value]*reference.Tensor{{v: first}, nil, {v: last}}
	}
	// The first step has 5 tokens of one sequence and 2 of another.
	five, two := floats([]int{1, 5}, 1, 2, 3, 4, 5), floats([]int{1, 2}, 6, 7)
	seven := floats([]int{1, 7}, 1, 2, 3, 4, 5, 6, 7)
	rows := func(n, from int) *reference.Tensor { // two numbers for each token
		var list []float64
		for i := range 2 * n {
			list = append(list, float64(2*from+i))
		}
		return floats([]int{n, 2}, list...)
	}
	heads := func(n, from int) *reference.Tensor { // the same for each of two heads
		x := rows(n, from)
		return floats([]int{2, n, 2}, slices.Concat(x.F, x.F)...)
	}
	table := floats([]int{3, 1}, 1, 2, 3)
	for name, c := range map[string]struct {
		packed, first, last *reference.Tensor
		mixed               bool
	}{
		"of tokens":            {seven, five, two, false},
		"rows":                 {rows(7, 0), rows(5, 0), rows(2, 5), false},
		"heads":                {heads(7, 0), heads(5, 0), heads(2, 5), false},
		"other heads":          {heads(7, 0), heads(5, 0), heads(2, 4), true},
		"another first row":    {rows(7, 0), rows(5, 1), rows(2, 5), true},
		"another last row":     {rows(7, 0), rows(5, 0), rows(2, 4), true},
		"no value of tokens":   {table, table, table, false},
		"another table":        {table, floats([]int{3, 1}, 1, 2, 4), table, true},
		"another rank":         {seven, floats([]int{5}, 1, 2, 3, 4, 5), two, true},
		"other tokens":         {seven, floats([]int{1, 4}, 1, 2, 3, 4), two, true},
		"another width":        {rows(7, 0), floats([]int{5, 3}, make([]float64, 15)...), rows(2, 5), true},
		"a node of the change": {seven, nil, nil, false},
		"a rounding":           {seven, floats([]int{1, 5}, 1+1e-12, 2, 3, 4, 5), two, false},
	} {
		change := &Change{trial: &scenario{alone: alone(c.first, c.last)}}
		if got := change.mixed(v, c.packed, 7); got != c.mixed {
			t.Errorf("%s: mixed %v", name, got)
		}
	}
}

// TestFollowedPositions computes what follows from positions and constants alone, and lists the numbers beside them.
func TestFollowedPositions(t *testing.T) {
	b := onnxtest.New(18)
	c := &Change{Run: &pass.Run{Editor: edit.Editor{Model: b.Model}}, row: b.Input("row", onnx.Int64, 1, "n")}
	other := b.Input("other", onnx.Int64, 1, "n")
	known := []*onnx.Value{b.Op("Mul", c.row, 4096), b.Op("Clip", c.row, (*onnx.Value)(nil), 9)}
	known = append(known, b.Op("Add", b.Op("Sub", known[0], 4096), known[1]), b.Op("Max", c.row, 65536),
		b.Op("Min", c.row, 65537), b.Op("Add", c.row, 8), b.Op("Add", c.row, []int64{11, 12}))
	known = append(known, known[2].Producer.Inputs[0])
	unknown := []*onnx.Value{b.Op("Shape", c.row), b.Op("Size", c.row), b.Op("Add", c.row, other), b.Op("Add", 20, 21),
		b.Op("Gather", []int64{1, 2, 3}, c.row), b.Op("Neg", other)}
	then := b.Graph.NewSubgraph("then")
	then.AddOutput(then.AddNode("Neg", []*onnx.Value{c.row}, []*onnx.Value{then.NewValue("neg")}).Outputs[0])
	unknown = append(unknown, b.Op("If", b.Op("Less", c.row, 5), onnx.GraphAttr("then_branch", then),
		onnx.GraphAttr("else_branch", then)))
	env, numbers := c.follow([]int64{7, 3})
	if !slices.Equal(numbers, []int64{9, 4096, 65536}) || !slices.Equal(env[known[2]].I, []int64{7*4096 - 4096 + 7,
		3*4096 - 4096 + 3}) {
		t.Errorf("numbers %d, the sum is %v", numbers, env[known[2]])
	}
	for _, v := range known {
		if env[v] == nil {
			t.Errorf("%q follows from positions", v.Name)
		}
	}
	for _, v := range unknown {
		if env[v] != nil {
			t.Errorf("%q follows from more than positions: %v", v.Name, env[v])
		}
	}
	b.Output(known[3])
	if !c.leaves(env, known[3]) || !c.leaves(env, c.row) || c.leaves(env, known[0]) || c.leaves(env, known[2]) {
		t.Error("not the values that other nodes or the model's readers read")
	}
}

// TestValuesOfPositions tells values of each position from values that depend on the other positions.
func TestValuesOfPositions(t *testing.T) {
	v := new(onnx.Value)
	one := func(shape []int, lists ...[]float64) (alone []map[*onnx.Value]*reference.Tensor) {
		for _, list := range lists {
			alone = append(alone, map[*onnx.Value]*reference.Tensor{v: floats(shape, list...)})
		}
		return alone
	}
	pair := one([]int{1, 1, 2}, []float64{1, 2}, []float64{3, 4})
	for i, c := range []struct {
		x     *reference.Tensor
		alone []map[*onnx.Value]*reference.Tensor
		is    bool
	}{
		{floats([]int{1, 2, 2}, 1, 2, 3, 4), pair, true},
		{floats([]int{1, 2, 2}, 1, 2, 3, 5), pair, false},
		{floats([]int{1, 2, 2}, 3, 4, 1, 2), pair, false},
		{floats([]int{2, 1, 2}, 1, 2, 3, 4), one([]int{1, 1, 2}, []float64{1, 2}, []float64{3, 4}), true},
		{floats([]int{2, 3}, 1, 3, 5, 2, 4, 6), one([]int{2, 1}, []float64{1, 2}, []float64{3, 4},
			[]float64{5, 6}), true},
		{floats([]int{2}, 5, 6), one([]int{2}, []float64{5, 6}, []float64{5, 6}), true},
		{floats([]int{2}, 5, 6), one([]int{2}, []float64{5, 6}, []float64{5, 7}), false},
		{floats([]int{3}, 5, 6, 7), one([]int{1}, []float64{5}, []float64{6}), false},
		{floats([]int{2, 1}, 5, 6), one([]int{1}, []float64{5}, []float64{6}), false},
		{floats([]int{2}, 5, 6), []map[*onnx.Value]*reference.Tensor{{}, {}}, true},
		{floats([]int{2, 3}, 1, 2, 9, 3, 4, 9), one([]int{1, 2}, []float64{1, 2}, []float64{3, 4}), false},
		{floats([]int{2, 0}), one([]int{1, 0}, nil, nil), true},
	} {
		if got := isOfTokens(c.x, c.alone, v); got != c.is {
			t.Errorf("case %d, %s: %v", i, fmt.Sprint(c.x.Shape, c.x.F), got)
		}
	}
}

// TestReportText describes the pools of a model in one line.
func TestReportText(t *testing.T) {
	r := Report{Form: Form, Block: 16, Pools: []string{"k0", "v0"}, BytesPerToken: 32, Packed: []string{"ids"}}
	const first = "paged, 2 pools (k0, v0) of blocks of 16 tokens, 512 bytes per block in all pools (32 per " +
		"token); ids packed, logits of "
	all := r.Text()
	r.LastOnly, r.Merged, r.StandIns = true, "n", 2
	if last := r.Text(); all != first+"each token" || last != first+
		`the last token of each sequence; node "n" (If) is replaced by its branch with a past; proven by parts, with `+
		"stand-ins for 2 products with constant weights" {
		t.Errorf("%q and %q", all, last)
	}
	r = Report{Form: Form, Block: 16, Pools: []string{"k0", "v0"}, BytesPerToken: 32, Packed: []string{"ids"},
		Type: "int8", ScaleBytes: 24, Rounding: &Rounding{Results: 0.25, Outputs: 0.02}}
	want := strings.Replace(first, "512 bytes per block in all pools (32", "536 bytes per block in all pools (33.5",
		1) + "each token; keys and values are rounded to int8 with a scale for each block and head, as requested: on " +
		"the steps of the proof, attention differs by up to 0.25 of the bound that follows from the rounding, and " +
		"outputs by 0.02 of their greatest magnitude"
	if got := r.Text(); got != want {
		t.Errorf("%q", got)
	}
}

// TestWeights counts the weights that each token multiplies: matrices, and of experts the chosen ones.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		domain, op string
		chosen     any
		want       int64
	}{
		{"", "MatMul", 2, 30}, {"", "Gather", 2, 0}, {"", "Slice", 2, 0}, {"", "Where", 2, 0},
		{"mojo", fused.EmbeddingName, 2, 0}, {"com.microsoft", "GatherBlockQuantized", 2, 0},
		{"mojo", fused.MoEName, 2, 30 / 4 * 2}, {"mojo", fused.QMoEName, 3, 30 / 4 * 3}, {"", fused.MoEName, 2, 30},
		{"mojo", fused.MoEName, "chosen", 30}, {"mojo", fused.MoEName, 4, 30},
	} {
		b := onnxtest.New(18)
		x, ids := b.Input("x", onnx.Float, "n", 3), b.Input("ids", onnx.Int64, "n", c.chosen)
		n := b.Op(c.op, x, x, ids, b.Floats([]int64{2, 3}, make([]float32, 6)...),
			b.Floats([]int64{4, 2, 3}, make([]float32, 24)...), b.Floats([]int64{9}, make([]float32, 9)...),
			(*onnx.Value)(nil)).Producer
		n.Domain = c.domain
		if got := weightsOf(n, infer.Analyze(b.Model)); got != c.want {
			t.Errorf("%s, %v experts: %d weights, want %d", c.op, c.chosen, got, c.want)
		}
	}
}

// TestWhatCannotBePaged: the error names what is not known to be right for packed tokens.
func TestWhatCannotBePaged(t *testing.T) {
	type model struct {
		*onnxtest.Builder
		length, valid, bias, q, logits *onnx.Value
		op                             string
	}
	for want, change := range map[string]func(m *model){
		"": func(*model) {},
		"no attention reads buffers with a length for each sequence": func(m *model) { m.length = nil },
		`adds "bias" to the scores`: func(m *model) {
			m.bias = m.Input("bias", onnx.Float, "batch", 1, "tokens", "all")
		},
		"(LatentAttention) keeps latents, and only the caches of Attention can be paged": func(m *model) {
			m.op = fused.LatentAttentionName
		},
		`reads "cast_1", which is not known to mark only padding`: func(m *model) {
			m.valid = m.Op("Cast", m.Op("Not", m.Op("Cast", m.valid, onnx.IntAttr("to", int64(onnx.Bool)))),
				onnx.IntAttr("to", int64(onnx.Int64)))
		},
		`input "other" is float32[3]: expected a row for each new token, positions, a mask or a cache`: func(m *model) {
			m.Op("Neg", m.Input("other", onnx.Float, 3))
		},
		`node "node_reducemax" (ReduceMax) reads "attention_mask" for something other than attention`: func(m *model) {
			m.Output(m.Op("Add", m.logits, m.Op("Cast", m.Op("ReduceMax", m.valid), onnx.IntAttr("to", 1))))
		},
		"no input has a row for each new token": func(m *model) {
			shape := m.Op("Concat", m.Op("Shape", m.length), []int64{1, 8}, onnx.IntAttr("axis", 0))
			m.q.Producer.SetInput(0, m.Op("Expand", 0.5, shape))
			if err := m.Graph.Sort(); err != nil {
				t.Fatal(err)
			}
		},
		`output "first" has one row for each sequence, but no Slice or Gather takes the last one`: func(m *model) {
			m.Output(m.Op("ReduceMax", m.logits, []int64{1}))
			m.Graph.Outputs[0].Name = "first"
		},
		`output "all" has no row for each sequence or token`: func(m *model) {
			m.Output(m.Op("ReduceMax", m.logits))
			m.Graph.Outputs[0].Name = "all"
		},
	} {
		m := &model{Builder: onnxtest.New(18), op: fused.AttentionName}
		x := m.Input("inputs_embeds", onnx.Float, "batch", "tokens", 8)
		m.length = m.Input("past_length", onnx.Int64, "batch")
		m.valid = m.Input("attention_mask", onnx.Int64, "batch", "room")
		m.q, m.logits = m.Op("Unsqueeze", x, []int64{2}), x
		change(m)
		k := m.Input("past_k", onnx.Float, "batch", 1, "room", 8)
		v := m.Input("past_v", onnx.Float, "batch", 1, "room", 8)
		in := []*onnx.Value{m.q, m.q, m.q, m.valid, k, v, m.length, m.bias}
		attrs := fused.Attention{Scale: 1, Causal: true, Empty: "zero", HeadOrder: "blocked", QLayout: "bsnh",
			KLayout: "bsnh", VLayout: "bsnh", YLayout: "bsnh"}.Attributes()
		out := []*onnx.Value{m.Graph.NewValue("y"), m.Graph.NewValue("k"), m.Graph.NewValue("v")}
		n := m.Graph.AddNode(m.op, in, out, attrs...)
		n.Domain = fused.Domain
		m.Graph.AddOutput(n.Outputs[0])
		c := &Change{Run: &pass.Run{Editor: edit.Editor{Model: m.Model}}, facts: infer.Analyze(m.Model),
			report: &Report{}}
		var err error
		for _, step := range []func() error{c.find, c.inputs, c.change} {
			if err == nil {
				err = step()
			}
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil { // the model declares no shape of this output
			if typ, _ := m.Graph.Outputs[0].Type(); typ.String() != "float32[tokens, 1, 8]" {
				t.Errorf("the output is %s", typ)
			}
		}
	}
}
