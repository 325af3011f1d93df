package staticcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// changeOf returns the change of a model with one layer of attention, after its caches were measured.
func changeOf(t *testing.T, o Options, more func(m *made)) (*made, *cacheChange) {
	t.Helper()
	m := &made{Builder: onnxtest.New(20)}
	m.Model.ImportOpset(fused.Domain, fused.Version)
	m.attends(t, "batch", 2, "past", 8)
	if more != nil {
		more(m)
	}
	c := newChange(runOf(m.Model, infer.Analyze(m.Model)), o, "")
	for _, step := range []func() error{c.find, c.measure} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return m, c
}

// TestNumbersOfLengths lists the numbers in the computation of values that are greater than the length of the past.
func TestNumbersOfLengths(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Int64, "n")
	float := b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float)))
	list := []*onnx.Value{b.Op("Min", x, b.Ints(50)), b.Op("Add", x, b.Op("Squeeze", b.Ints(100))),
		b.Op("Mul", float, b.Floats(nil, -7.5)), b.Op("Add", x, b.Ints(5)), b.Op("Add", x, b.Ints(6)),
		b.Op("Add", x, b.Ints(maxNumber)), b.Op("Add", x, b.Ints(maxNumber+1)), b.Op("Add", x, b.Ints(9, 9)),
		b.Op("Clip", float, nil, b.Floats([]int64{1}, 50)), b.Op("Mul", float, float),
		b.Op("Equal", b.Input("s", onnx.String, 1), b.Graph.AddInitializer(strings1(t)))}
	b.Op("Add", x, b.Ints(77)) // of another value
	c := &cacheChange{Run: &pass.Run{Editor: edit.Editor{Model: b.Model}}, patched: infer.Analyze(b.Model)}
	c.past[0] = 5
	made := map[*onnx.Value]*reference.Tensor{}
	for _, v := range list {
		made[v] = reference.NewInts(onnx.Int64, nil, []int64{0})
	}
	if got, want := c.numbers(made), []int64{6, 7, 50, 100, maxNumber}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func strings1(t *testing.T) *onnx.Tensor {
	t.Helper()
	s, err := onnx.NewStrings("text", []int64{1}, []string{"8"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPositionsOfTokens: positions of the new tokens count from the length of the past, or from the number of valid
// tokens of each sequence.
func TestPositionsOfTokens(t *testing.T) {
	m, c := changeOf(t, Options{RowLengths: true}, nil)
	v := m.Graph.NewValue("v")
	batch, added := int(c.batchOf(0)), int(c.added[0])
	if batch < 2 || added < 2 {
		t.Fatalf("%d sequences of %d tokens show nothing", batch, added)
	}
	const past = 4
	count := func(rows int, of func(row, token int) int64, more ...int) *reference.Tensor {
		var list []int64
		for b := range rows {
			for i := range added {
				list = append(list, of(b, i))
			}
		}
		return reference.NewInts(onnx.Int64, append([]int{rows, added}, more...), list)
	}
	floats := func(x *reference.Tensor, plus float64) *reference.Tensor {
		y := reference.NewFloats(onnx.Float, x.Shape, make([]float64, x.Len()))
		for i, n := range x.I {
			y.F[i] = float64(n) + plus
		}
		return y
	}
	plain := func(_, i int) int64 { return past + int64(i) }
	left := prove.Padding{Exists: func(b, j, _ int) bool { return b != 1 || j >= 3 }} // the second has 3 tokens fewer
	valid := func(b, i int) int64 { return past + int64(i) - 3*int64(b%2) }
	hidden := prove.Padding{Exists: func(b, j, _ int) bool { return b != 1 || j < past }}
	const shared, each, both = "shared", "each", "shared each"
	flat, more := count(1, plain), append(slices.Clone(count(1, plain).I), past+int64(added))
	for name, c2 := range map[string]struct {
		x       *reference.Tensor
		padding *prove.Padding
		counted bool
		are     string
	}{
		"one row":             {count(1, plain), nil, true, shared},
		"a row of each":       {count(batch, plain), nil, true, both},
		"without a mask":      {count(batch, plain), nil, false, shared},
		"with more axes":      {count(1, plain, 1, 1), nil, true, shared},
		"as floats":           {floats(count(batch, plain), 0), nil, true, both},
		"floats between":      {floats(count(1, plain), 0.5), nil, true, ""},
		"from zero":           {count(1, func(_, i int) int64 { return int64(i) }), nil, true, ""},
		"the last differs":    {count(1, func(_, i int) int64 { return past + int64(min(i, added-2)) }), nil, true, ""},
		"another batch":       {count(batch+1, plain), nil, true, ""},
		"flat":                {reference.NewInts(onnx.Int64, []int{added}, flat.I), nil, true, ""},
		"more tokens":         {reference.NewInts(onnx.Int64, []int{1, added + 1}, more), nil, true, ""},
		"wider":               {reference.NewInts(onnx.Int64, []int{1, added, 2}, make([]int64, 2*added)), nil, true, ""},
		"unknown":             {nil, nil, true, ""},
		"padded":              {count(batch, valid), &left, true, each},
		"padded, not counted": {count(batch, plain), &left, true, shared},
		"hidden tokens": {count(batch, func(b, i int) int64 { return plain(b, i) - int64(b%2)*99 }), &hidden, true,
			each},
	} {
		if c.counted = nil; c2.counted {
			c.counted = v
		}
		runs := []lengthsRun{{0, past, c2.padding, map[*onnx.Value]*reference.Tensor{v: c2.x}}}
		var are []string
		for existing, what := range map[bool]string{false: shared, true: each} {
			if c.arePositions(runs, v, existing) {
				are = append(are, what)
			}
		}
		slices.Sort(are)
		slices.Reverse(are)
		if got := strings.Join(are, " "); got != c2.are {
			t.Errorf("%s: %v are positions %q, want %q", name, c2.x, got, c2.are)
		}
	}
	one, two := count(1, plain), count(1, valid)
	other := count(1, func(_, i int) int64 { return int64(i) })
	for name, c := range map[string]struct {
		x, y   *reference.Tensor
		world  int
		depend bool
	}{
		"the same":      {one, two, 0, false},
		"another":       {one, other, 0, true},
		"other floats":  {floats(one, 0), floats(one, 1), 0, true},
		"another shape": {one, reference.NewInts(onnx.Int64, []int{added}, one.I), 0, true},
		"another world": {one, other, 1, false},
		"unknown":       {one, nil, 0, false},
	} {
		values := func(x *reference.Tensor) map[*onnx.Value]*reference.Tensor {
			if x == nil {
				return nil
			}
			return map[*onnx.Value]*reference.Tensor{v: x}
		}
		if got := depends([]lengthsRun{{0, 1, nil, values(c.x)}, {c.world, 2, nil, values(c.y)}}, v); got != c.depend {
			t.Errorf("%s: depends on the length: %v", name, got)
		}
	}
}

// TestRowsNeedMasks: with a length for each sequence, attention has to hide the rows after shorter ones, and an input
// has a row for each sequence.
func TestRowsNeedMasks(t *testing.T) {
	causal := func(x int64) func(m *made) {
		return func(m *made) { m.sites[0].SetAttr(onnx.IntAttr(fused.AttrCausal, x)) }
	}
	input := func(t onnx.DataType, dims ...any) func(m *made) {
		return func(m *made) { m.Output(m.Op("Identity", m.Input("more", t, dims...))) }
	}
	const all = `input "more" has one row for all`
	for name, c := range map[string]struct {
		packed bool
		change func(m *made)
		want   string
	}{
		"causal":     {false, nil, ""},
		"not causal": {false, causal(0), "has no mask per sequence and would see the padding"},
		"packed":     {true, causal(0), ""},
		"of valid keys": {false, func(m *made) {
			causal(0)(m)
			m.sites[0].SetInput(fused.AttentionKeyValid, m.Input("valid", onnx.Int64, "batch", "all"))
		}, ""},
		"of a bias": {false, func(m *made) {
			m.sites[0].SetInput(fused.AttentionBias, m.Floats([]int64{1, 1}, 0))
		}, "which is not known to be right"},
		"positions of all":      {false, input(onnx.Int64, "new"), all},
		"one row of positions":  {false, input(onnx.Int64, 1, "new"), all},
		"behind other axes":     {false, input(onnx.Int64, 1, 3, "new"), all},
		"positions of each":     {false, input(onnx.Int64, "batch", "new"), ""},
		"another number":        {false, input(onnx.Int64, "others"), ""},
		"a number":              {false, input(onnx.Int64), ""},
		"data of all":           {false, input(onnx.Float, "new"), ""},
		"tokens before a batch": {false, input(onnx.Int64, "new", 1), ""},
	} {
		_, x := changeOf(t, Options{RowLengths: true, Packed: c.packed}, c.change)
		err := x.checkRows()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	buffer := reference.NewFloats(onnx.Float, []int{2, 1, 3, 2}, slices.Repeat([]float64{1, 2, 3, 4, 5, 6}, 2))
	want := []float64{1, 2, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6}
	if got := withJunk(buffer, []int64{1, 3}, 9); !slices.Equal(got.F, want) || buffer.F[2] != 3 {
		t.Errorf("junk in %v", got.F)
	}
}

// TestReadersOfRows: a reader of positions takes a row for each sequence if its output has one.
func TestReadersOfRows(t *testing.T) {
	m, c := changeOf(t, Options{RowLengths: true}, func(m *made) {
		m.Input("x", onnx.Float, "batch", 1, "new", 8)
		m.Input("table", onnx.Float, "batch", 1, "new", 8)
		m.Input("flat", onnx.Float, "new", 8)
		m.Input("rows", onnx.Float, "batch", "new", 8)
	})
	x, table, flat, rows := m.Graph.Value("x"), m.Graph.Value("table"), m.Graph.Value("flat"), m.Graph.Value("rows")
	for i, r := range []struct {
		op    string
		in    []*onnx.Value
		rank  int
		takes bool
	}{
		{"Add", []*onnx.Value{x, table}, 4, true}, {"Where", []*onnx.Value{x, x, table}, 4, true},
		{"Add", []*onnx.Value{x, flat}, 2, false}, {"Add", []*onnx.Value{flat, flat}, 2, false},
		{"MatMul", []*onnx.Value{x, table}, 4, false}, {"local:Add", []*onnx.Value{x, table}, 4, false},
		{"mojo:RotaryEmbedding", []*onnx.Value{x, table, table}, 4, true},
		{"mojo:AddLayerNorm", []*onnx.Value{x, table}, 4, true},
		{"mojo:AddRMSNorm", []*onnx.Value{x, x, table}, 4, false},
		{"mojo:Other", []*onnx.Value{x, table}, 4, false}, {"RotaryEmbedding", []*onnx.Value{x, rows}, 3, true},
		{"RotaryEmbedding", []*onnx.Value{x, flat}, 2, false}, {"RotaryEmbedding", []*onnx.Value{rows, x}, 4, false},
	} {
		n := m.Op(r.op, anys(r.in)...).Producer
		n.Outputs[0].SetType(onnxtest.Type(onnx.Float, "batch", 1, "new", 8))
		if r.rank == 2 && r.in[0] == flat {
			n.Outputs[0].SetType(onnxtest.Type(onnx.Float, "new", 8))
		}
		c.patched = infer.Analyze(m.Model)
		last := len(r.in) - 1
		if got := c.takesRows(onnx.Use{Node: n, Index: last}, r.rank, c.batchOf(0), 0); got != r.takes {
			t.Errorf("reader %d, %s: takes rows: %v", i, r.op, got)
		}
	}
	if n := m.Op("Abs", m.Op("Abs", m.Graph.AddInput("unknown", onnx.Type{}))).Producer; c.takesRows(onnx.Use{Node: n},
		4, 2, 0) {
		t.Error("a reader of an unknown shape takes rows")
	}
}

func anys(list []*onnx.Value) (out []any) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

// TestEmptyPasts returns inputs of a merged decoder for new tokens only.
func TestEmptyPasts(t *testing.T) {
	for i, typ := range []onnx.Type{onnxtest.Type(onnx.Float, "b", 2, "n", 8), onnxtest.Type(onnx.Float16, 1, 2, 3),
		{DataType: onnx.Float}, onnxtest.Type(onnx.Float, "b", "n"), onnxtest.Type(onnx.Int64, 1, 2, 3)} {
		if x := onnx.New(10, 20).Graph.AddInput("x", typ); mayBePast(x) != (i < 3) {
			t.Errorf("%s may be a past: %v", typ, i >= 3)
		}
	}
	if !mayBePast(onnx.New(10, 20).Graph.NewValue("untyped")) {
		t.Error("an input of an unknown type is no past")
	}
	b := onnxtest.New(20)
	flag := b.Input("use_cache_branch", onnx.Bool, 1)
	ids, mask := b.Input("input_ids", onnx.Int64, "b", "n"), b.Input("attention_mask", onnx.Int64, "b", "m")
	positions := b.Input("position_ids", onnx.Int64, "b", "n")
	b.Input("past_key_values.0.key", onnx.Float, "b", 2, "p", 8)
	b.Output(b.Op("Gather", b.Floats([]int64{5, 2}, make([]float32, 10)...), ids))
	b.Output(b.Op("Neg", mask))
	b.Output(b.Op("Neg", positions))
	found := &merged{flag: flag, flagOfNone: 1}
	got, err := emptyPast(b.Model, found, 3, prove.Padding{Exists: func(b, j, _ int) bool { return b == 0 || j > 0 }})
	want := map[string]string{"use_cache_branch": "[1] [1]", "input_ids": "[2 3] [1 3 0 2 4 1]",
		"attention_mask": "[2 3] [1 1 1 0 1 1]", "position_ids": "[2 3] [0 1 2 0 1 2]",
		"past_key_values.0.key": "[2 2 0 8] []"}
	for name, text := range want {
		if x := got[name]; err != nil || x == nil || fmt.Sprint(x.Shape, " ", x.I) != text {
			t.Errorf("%s is %v, want %s, %v", name, x, text, err)
		}
	}
	b.Input("other", onnx.Float, "b", 4)
	_, err = emptyPast(b.Model, found, 3, prove.NoPadding)
	if err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("another input: %v", err)
	}
}

// TestTriedLengths: attention is tried with empty, full and longer buffers, for one token and for more, and lengths are
// followed at several lengths, beyond the numbers of the graph, and with each padding of a mask.
func TestTriedLengths(t *testing.T) {
	_, c := changeOf(t, Options{PastLength: true}, nil)
	var got []string
	for _, l := range c.trials() {
		got = append(got, fmt.Sprint(l.Batch, l.Past, l.Added, l.Room, " ", l.Padding.Name, " ", l.Junk))
	}
	want := []string{"2 5 3 8 no padding NaN", "2 5 3 11 padding on the left NaN", "2 0 3 3 padding on the left 7",
		"2 0 3 6 nothing but padding 7", "2 5 1 6 nothing but padding NaN", "2 5 1 9 padding on the right NaN",
		"5 13 11 24 padding on the right 7", "5 13 11 27 holes 7", "5 0 11 11 holes NaN", "5 0 11 14 no padding NaN",
		"5 13 1 14 no padding 7", "5 13 1 17 padding on the left 7"}
	if !slices.Equal(got, want) {
		t.Errorf("trials are %q", got)
	}
	for mask, want := range map[bool]string{false: "0 5, 0 7, 0 0, 1 13, 1 15, 1 0, 0 53, ",
		true: "0 5, 0 7, 0 0, 0 5 on the right, 0 5 on the left, 0 5 holes, 0 5 nothing but padding, 1 13, 1 15, " +
			"1 0, 1 13 on the right, 1 13 on the left, 1 13 holes, 1 13 nothing but padding, 0 53, "} {
		m, c := changeOf(t, Options{PastLength: true}, func(m *made) {
			m.Op("Min", m.Op("Shape", m.pasts[0]), m.Ints(50))
			m.Input("mask", onnx.Float, "batch", "all")
		})
		shape := m.Graph.Nodes[1]
		if c.read(shape, prove.CacheAxis, false); mask {
			c.counted = m.Graph.Value("mask")
		}
		runs, err := c.lengthsRuns()
		got := ""
		for _, r := range runs {
			if got += fmt.Sprint(r.world, r.past); r.padding != nil {
				got += " " + strings.TrimPrefix(r.padding.Name, "padding ")
			}
			got += ", "
			if dims := r.values[shape.Outputs[0]].I; dims[2] != r.past || mask &&
				r.values[c.counted].Shape[1] != int(r.past+c.added[r.world]) {
				t.Errorf("%d tokens are %v", r.past, dims)
			}
		}
		if got != want || err != nil {
			t.Errorf("with a mask %v: runs are %s, %v", mask, got, err)
		}
	}
}

// TestSourcesOfSizes: a number of tokens is a dimension of an input that callers give, or one number in all worlds.
func TestSourcesOfSizes(t *testing.T) {
	m, c := changeOf(t, Options{PastLength: true}, func(m *made) {
		m.Input("turned", onnx.Int64, "new", "past", 7)
		m.Graph.AddInput("unranked", onnx.Type{DataType: onnx.Float})
	})
	show := func(list ...sizeOf) (text string) {
		for _, s := range list {
			name := "none"
			if s.input != nil {
				name = s.input.Name
			}
			text += fmt.Sprint(name, " ", s.axis, " ", s.number, ", ")
		}
		return text
	}
	of := func(size int64) [infer.Worlds]int64 { return [infer.Worlds]int64{size, size, size} }
	if got := show(c.sources(c.past)...); got != "past_key0 2 0, past_value0 2 0, turned 1 0, " {
		t.Errorf("sources of the past are %s", got)
	}
	first, ok := c.source(c.added)
	if got := show(first); got != "q0 2 0, " || !ok {
		t.Errorf("the source of new tokens is %s, %v", got, ok)
	}
	if got, ok := c.source(of(1)); !ok || got.number != 1 || got.input != nil {
		t.Errorf("the source of one token is %+v, %v", got, ok)
	}
	if got, ok := c.source(c.sum()); ok {
		t.Errorf("the source of all tokens is %+v", got)
	}
	for axis, want := range []int64{-1, -1, 7, -1} {
		if got := c.knownSize(m.Graph.Value("turned"), axis); got != want {
			t.Errorf("axis %d is known to be %d, want %d", axis, got, want)
		}
	}
	if got := c.knownSize(m.Graph.Value("unranked"), 0); got != -1 {
		t.Errorf("an axis of unknown rank is known to be %d", got)
	}
}

// TestFeeding: only attention without a cache, and with both presents of a site as its keys and values, can read the
// buffers of the site.
func TestFeeding(t *testing.T) {
	m, c := changeOf(t, Options{PastLength: true}, nil)
	key, value := m.sites[0].Outputs[1], m.sites[0].Outputs[2]
	for name, change := range map[string]func(n *onnx.Node){
		"":                nil,
		"another domain":  func(n *onnx.Node) { n.Domain = "local" },
		"another op":      func(n *onnx.Node) { n.OpType = "GLU" },
		"a cache":         func(n *onnx.Node) { n.SetInput(fused.AttentionPastKey, m.pasts[0]) },
		"other keys":      func(n *onnx.Node) { n.SetInput(fused.AttentionK, value) },
		"other values":    func(n *onnx.Node) { n.SetInput(fused.AttentionV, key) },
		"keys by rows":    func(n *onnx.Node) { n.SetAttr(onnx.StringAttr(fused.AttrKLayout, "bsnh")) },
		"values by rows":  func(n *onnx.Node) { n.SetAttr(onnx.StringAttr(fused.AttrVLayout, "bsnh")) },
		"queries by rows": func(n *onnx.Node) { n.SetAttr(onnx.StringAttr(fused.AttrQLayout, "bsnh")) },
	} {
		n := m.Op("mojo:"+fused.AttentionName, m.Graph.Value("q0"), key, value,
			fused.Attention{QLayout: "bnsh", KLayout: "bnsh", VLayout: "bnsh"}.Attributes()).Producer
		if change != nil {
			change(n)
		}
		if got := c.sites[0].feeds(n); got != (name == "" || name == "queries by rows") {
			t.Errorf("%s: fed %v", name, got)
		}
	}
}
