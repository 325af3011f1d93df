package staticcache_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestRowLengthsOfADecoder puts sequences of different lengths into buffers, with NaN in the rows after each, and
// compares each one with the model that has only this sequence in a growing cache.
func TestRowLengthsOfADecoder(t *testing.T) {
	t.Run("from the past", func(t *testing.T) { rowsOfADecoder(t, func(*onnx.Model) {}) })
	t.Run("sums of the mask", func(t *testing.T) { rowsOfADecoder(t, sumMask) })
	t.Run("the mask of the new tokens", func(t *testing.T) { rowsOfADecoder(t, maskNew) })
	t.Run("repeated for each sequence", func(t *testing.T) { rowsOfADecoder(t, repeatRow) })
	t.Run("one row as a number", func(t *testing.T) { rowsOfADecoder(t, numberOfRows) })
}

// repeatRow repeats the one row of positions for each sequence, as the decoder of Whisper does.
func repeatRow(m *onnx.Model) {
	g := m.Graph
	node, numbers := making(g)
	times := node("Concat", node("Shape", g.Value("input_ids")), numbers(1, 1))
	times.Producer.SetAttr(onnx.IntAttr("axis", 0))
	times.Producer.Inputs[0].Producer.SetAttr(onnx.IntAttr("end", 1))
	uses := slices.Clone(g.Value("unsqueeze_13").Uses())
	rows := node("Tile", g.Value("unsqueeze_13"), times)
	readInstead(uses, rows)
}

// making returns functions that add nodes and constants to a graph.
func making(g *onnx.Graph) (node func(string, ...*onnx.Value) *onnx.Value, numbers func(...int64) *onnx.Value) {
	return func(op string, inputs ...*onnx.Value) *onnx.Value {
		out := g.NewValue("made")
		g.AddNode(op, inputs, []*onnx.Value{out}).Name = "of_" + op
		return out
	}, func(x ...int64) *onnx.Value { return g.AddInitializer(onnx.NewInt64s("numbers", x)) }
}

// readInstead makes readers read another value.
func readInstead(uses []onnx.Use, v *onnx.Value) {
	for _, use := range slices.Clone(uses) {
		use.Node.SetInput(use.Index, v)
	}
}

// numberOfRows gives cosines and positions their shapes by constants that say that all sequences share one row, and
// reads the number of their channels.
func numberOfRows(m *onnx.Model) {
	g := m.Graph
	reshaped := func(v *onnx.Value, shape ...int64) *onnx.Value {
		out := g.NewValue("made")
		sizes := g.AddInitializer(onnx.NewInt64s("shape", shape))
		n := g.AddNode("Reshape", []*onnx.Value{v, sizes}, []*onnx.Value{out})
		n.SetAttr(onnx.IntAttr("allowzero", 1))
		return out
	}
	for name, shapes := range map[string][][]int64{
		"unsqueeze_13": {{-1}, {1, -1, 1}},
		"unsqueeze_14": {{1, 1, -1, 16}},
	} {
		v := g.Value(name)
		uses := slices.Clone(v.Uses())
		for _, shape := range shapes {
			v = reshaped(v, shape...)
		}
		for _, use := range uses {
			use.Node.SetInput(use.Index, v)
		}
	}
	node, numbers := making(g)
	channels := node("Slice", node("Shape", g.Value("cos")), numbers(2), numbers(3))
	tokens := g.Value("embedding")
	uses := slices.Clone(tokens.Uses())
	all := node("Concat", node("Slice", tokens, channels, numbers(1<<30), numbers(2)),
		node("Slice", tokens, numbers(0), channels, numbers(2)))
	all.Producer.SetAttr(onnx.IntAttr("axis", 2))
	readInstead(uses, all)
}

// maskNew multiplies the new tokens by their columns of the mask, which are its last ones.
func maskNew(m *onnx.Model) {
	g := m.Graph
	node, numbers := making(g)
	tokens := g.Value("embedding")
	uses := slices.Clone(tokens.Uses())
	fresh := node("Neg", node("Slice", node("Shape", g.Value("input_ids")), numbers(1), numbers(2)))
	last := node("Slice", g.Value("attention_mask"), fresh, numbers(1<<30), numbers(1))
	factor := node("Unsqueeze", node("Cast", last), numbers(2))
	factor.Producer.Input(0).Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Float)))
	masked := node("Mul", tokens, factor)
	readInstead(uses, masked)
}

// sumMask makes a decoder count the valid tokens as positions.
func sumMask(m *onnx.Model) {
	g := m.Graph
	node, numbers := making(g)
	sum := node("Sub", node("CumSum", g.Value("attention_mask"), numbers(1)), numbers(1))
	sum = node("Where", node("Equal", g.Value("attention_mask"), numbers(0)), numbers(1), sum)
	start := node("Slice", node("Shape", g.Value("past_k1")), numbers(2), numbers(3))
	fresh := node("Unsqueeze", node("Slice", sum, start, numbers(1<<30), numbers(1)), numbers(2))
	readInstead(g.Value("unsqueeze_13").Uses(), fresh)
}

func rowsOfADecoder(t *testing.T, change func(*onnx.Model)) {
	t.Helper()
	m, original := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	for _, m := range []*onnx.Model{m, original} {
		change(m)
		if err := m.Graph.Sort(); err != nil {
			t.Fatal(err)
		}
	}
	r := applytest.Apply(t, m, rewrite.Request{StaticCache: &staticcache.Options{RowLengths: true}}).Cache
	if !r.Rows || r.LengthFrom != "past_length" || len(r.Positions) != 1 ||
		!strings.Contains(r.Text(), "of each sequence, padding is on the right") {
		t.Errorf("reported %+v", r)
	}
	rewritetest.CheckOrder(t, m)
	const room, queries = 12, 2
	lengths := []int64{7, 0, 4}
	in := rewritetest.DecoderInputs(t, m, len(lengths), queries, room-queries, room)
	in["past_length"] = reference.NewInts(onnx.Int64, []int{len(lengths)}, lengths)
	for name, x := range in {
		if strings.HasPrefix(name, "past_k") || strings.HasPrefix(name, "past_v") {
			in[name] = staticcache.WithJunk(x, lengths, math.NaN())
		}
	}
	got := rewritetest.Run(t, m, in)
	for b, n := range lengths {
		alone := rewritetest.DecoderInputs(t, original, 1, queries, int(n), int(n))
		for name, x := range in {
			if a := alone[name]; a != nil && len(a.Shape) == 4 {
				shape := []int{1, a.Shape[1], int(n), a.Shape[3]}
				alone[name] = reference.NewFloats(a.DataType, shape, make([]float64, len(a.F)))
				for h := range a.Shape[1] {
					width := a.Shape[3]
					copy(alone[name].F[h*int(n)*width:(h+1)*int(n)*width], x.F[(b*a.Shape[1]+h)*room*width:])
				}
			}
		}
		alone["input_ids"] = staticcache.RowOf(in["input_ids"], b)
		mask := staticcache.RowOf(in["attention_mask"], b).I[:int(n)+queries]
		alone["attention_mask"] = reference.NewInts(onnx.Int64, []int{1, int(n) + queries}, mask)
		want := rewritetest.Run(t, original, alone)["logits"]
		d, scale := prove.Distance(want.F, staticcache.RowOf(got["logits"], b).F)
		if allowed := 64 * prove.Spacing(onnx.Float, scale); d > allowed {
			t.Errorf("sequence %d: logits differ by %g, %g allowed", b, d, allowed)
		}
	}
}

// TestRowLengthsAreRefused: lengths are not only read for positions, sequences share positions, or values computed from
// them are not per sequence.
func TestRowLengthsAreRefused(t *testing.T) {
	node := func(m *onnx.Model, op string, inputs ...*onnx.Value) *onnx.Value {
		out := m.Graph.NewValue("made")
		m.Graph.AddNode(op, inputs, []*onnx.Value{out}).Name = "of_" + op
		return out
	}
	number := func(m *onnx.Model, x int64) *onnx.Value {
		return node(m, "Squeeze", m.Graph.AddInitializer(onnx.NewInt64s("number", []int64{x})))
	}
	instead := func(m *onnx.Model, name string, change func(*onnx.Value) *onnx.Value) {
		v := m.Graph.Value(name)
		uses := slices.Clone(v.Uses())
		made := change(v)
		for _, use := range uses {
			use.Node.SetInput(use.Index, made)
		}
	}
	output := func(m *onnx.Model, v *onnx.Value, t onnx.DataType) {
		v.SetType(onnx.Type{DataType: t})
		m.Graph.AddOutput(v)
	}
	for name, test := range map[string]struct {
		change func(*onnx.Model)
		want   string // "" if it is accepted
	}{
		"as it is":         {func(*onnx.Model) {}, ""},
		"sums of the mask": {sumMask, ""},
		"sums with something": {func(m *onnx.Model) {
			sumMask(m)
			x := node(m, "Cast", m.Graph.Value("attention_mask"))
			x.Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Float)))
			output(m, node(m, "ReduceMean", x), onnx.Float)
		}, "depends on the length of the past"},
		"two masks": {func(m *onnx.Model) {
			sumMask(m)
			mask, _ := m.Graph.Value("attention_mask").Type()
			output(m, node(m, "ReduceSum", m.Graph.AddInput("other_mask", mask)), onnx.Int64)
		}, `reads "other_mask", which must be as long as the buffers`},
		"a length as output": {func(m *onnx.Model) {
			output(m, node(m, "Shape", m.Graph.Value("past_k1")), onnx.Int64)
		}, "depends on the length of the past"},
		"a length with data": {func(m *onnx.Model) {
			x := node(m, "Cast", node(m, "Gather", node(m, "Shape", m.Graph.Value("past_k1")), number(m, 2)))
			x.Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Float)))
			instead(m, "embedding", func(v *onnx.Value) *onnx.Value { return node(m, "Add", v, x) })
		}, `node "of_Add" (Add) reads the length of the past`},
		"positions that end": {func(m *onnx.Model) { // at 100: only larger lengths show it
			past := node(m, "Min", m.Graph.Value("sym_size_int_16"), number(m, 100))
			m.Graph.Value("unsqueeze_13").Producer.SetInput(0, node(m, "Add", m.Graph.Value("arange"), past))
		}, "reads the length of the past"},
		"positions of a row that end": {func(m *onnx.Model) { // before there is one for each sequence
			x := node(m, "Min", m.Graph.Value("add_2"), number(m, 100))
			m.Graph.Value("unsqueeze_13").Producer.SetInput(0, x)
		}, "reads the length of the past"},
		"positions that end later": {func(m *onnx.Model) { // for each sequence
			instead(m, "unsqueeze_13", func(v *onnx.Value) *onnx.Value { return node(m, "Min", v, number(m, 100)) })
		}, ""},
		"the longest decides": {func(m *onnx.Model) { // beyond 50, as in rotary embeddings for long contexts
			instead(m, "_to_copy_1", func(v *onnx.Value) *onnx.Value {
				limit := m.Graph.AddInitializer(onnx.NewFloat32s("limit", []int64{1}, []float32{50}))
				greatest := node(m, "ReduceMax", v)
				return node(m, "Where", node(m, "Greater", greatest, limit), node(m, "Add", v, v), v)
			})
		}, "differs from its value for each sequence in a batch of one"},
		"the number of rows with data": {func(m *onnx.Model) {
			x := node(m, "Cast", node(m, "Gather", node(m, "Shape", m.Graph.Value("cos")), number(m, 0)))
			x.Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Float)))
			instead(m, "embedding", func(v *onnx.Value) *onnx.Value { return node(m, "Mul", v, node(m, "Add", x, x)) })
		}, "differs from its value for each sequence in a batch of one"},
		"a row as a number, of another order": {func(m *onnx.Model) {
			instead(m, "unsqueeze_13", func(v *onnx.Value) *onnx.Value {
				x := node(m, "Transpose", v) // the tokens first
				x.Producer.SetAttr(onnx.IntsAttr("perm", []int64{1, 0, 2}))
				return node(m, "Reshape", x, m.Graph.AddInitializer(onnx.NewInt64s("shape", []int64{1, -1, 1})))
			})
		}, "differs from its value for each sequence in a batch of one"},
		"another axis": {func(m *onnx.Model) {
			instead(m, "unsqueeze_14", func(v *onnx.Value) *onnx.Value {
				x := node(m, "Transpose", v) // [B, 1, S, 16] has the same size if B is 1
				x.Producer.SetAttr(onnx.IntsAttr("perm", []int64{1, 0, 2, 3}))
				return x
			})
		}, "differs from"},
		"positions of all": {func(m *onnx.Model) {
			ids, _ := m.Graph.Value("input_ids").Type()
			m.Graph.AddInput("cache_position", onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: ids.Dims[1:]})
		}, `input "cache_position" has one row for all sequences`},
	} {
		t.Run(name, func(t *testing.T) {
			m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
			test.change(m)
			if err := m.Graph.Sort(); err != nil {
				t.Fatal(err)
			}
			r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true,
				StaticCache: &staticcache.Options{RowLengths: true}})
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			case err == nil && len(r.Cache.Positions) != 1:
				t.Errorf("positions are %v", r.Cache.Positions)
			}
		})
	}
}

// TestRowPositionsAreChecked reads the number of new tokens from another axis.
func TestRowPositionsAreChecked(t *testing.T) {
	run := patched(t, rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"))
	if err := staticcache.LengthFromBatch(run, staticcache.Options{RowLengths: true}); err == nil ||
		!strings.Contains(err.Error(), "new tokens") {
		t.Errorf("a length from the batch: %v", err)
	}
}

// TestRowLengthsAreChecked has attention on a buffer that reads one length for all sequences.
func TestRowLengthsAreChecked(t *testing.T) {
	for what, change := range map[string]func([]int64) []int64{
		"each its own": func(l []int64) []int64 { return l },
		"one for all":  func(l []int64) []int64 { return slices.Repeat(l[:1], len(l)) },
	} {
		err := staticcache.UnequalLengths(patched(t, rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")), change)
		if (err == nil) != (what == "each its own") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
