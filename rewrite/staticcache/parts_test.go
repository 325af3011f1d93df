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
	c := newChange(&pass.Run{Editor: edit.Editor{Model: m.Model}, Facts: infer.Analyze(m.Model),
		Skips: func(*onnx.Function) bool { return true }}, o, "")
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
	for name, c2 := range map[string]struct {
		x                 *reference.Tensor
		padding           *prove.Padding
		counted           bool
		positions, exists bool
	}{
		"one row":               {count(1, plain), nil, true, true, false},
		"a row of each":         {count(batch, plain), nil, true, true, true},
		"without a mask":        {count(batch, plain), nil, false, true, false},
		"with more axes":        {count(1, plain, 1, 1), nil, true, true, false},
		"as floats":             {floats(count(batch, plain), 0), nil, true, true, true},
		"floats between":        {floats(count(1, plain), 0.5), nil, true, false, false},
		"from zero":             {count(1, func(_, i int) int64 { return int64(i) }), nil, true, false, false},
		"the last differs":      {count(1, func(_, i int) int64 { return past + int64(min(i, added-2)) }), nil, true, false, false},
		"another batch":         {count(batch+1, plain), nil, true, false, false},
		"flat":                  {reference.NewInts(onnx.Int64, []int{added}, count(1, plain).I), nil, true, false, false},
		"more tokens":           {reference.NewInts(onnx.Int64, []int{1, added + 1}, append(count(1, plain).I, past+int64(added))), nil, true, false, false},
		"wider":                 {reference.NewInts(onnx.Int64, []int{1, added, 2}, make([]int64, 2*added)), nil, true, false, false},
		"unknown":               {nil, nil, true, false, false},
		"padded":                {count(batch, valid), &left, true, false, true},
		"padded, not counted":   {count(batch, plain), &left, true, true, false},
		"hidden tokens, padded": {count(batch, func(b, i int) int64 { return past + int64(i) - int64(b%2)*99 }), &hidden, true, false, true},
	} {
		if c.counted = nil; c2.counted {
			c.counted = v
		}
		runs := []lengthsRun{{0, past, c2.padding, map[*onnx.Value]*reference.Tensor{v: c2.x}}}
		if c2.x == nil {
			delete(runs[0].values, v)
		}
		if got, exist := c.arePositions(runs, v, false), c.arePositions(runs, v, true); got != c2.positions ||
			exist != c2.exists {
			t.Errorf("%s: %v are positions %v, of valid tokens %v", name, c2.x, got, exist)
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
	for name, c := range map[string]struct {
		o      Options
		change func(m *made)
		want   string
	}{
		"causal":     {Options{RowLengths: true}, nil, ""},
		"not causal": {Options{RowLengths: true}, causal(0), "has no mask per sequence"},
		"packed":     {Options{RowLengths: true, Packed: true}, causal(0), ""},
		"of valid keys": {Options{RowLengths: true}, func(m *made) {
			causal(0)(m)
			m.sites[0].SetInput(fused.AttentionKeyValid, m.Input("valid", onnx.Int64, "batch", "all"))
		}, ""},
		"of a bias": {Options{RowLengths: true}, func(m *made) {
			m.sites[0].SetInput(fused.AttentionBias, m.Floats([]int64{1, 1}, 0))
		}, "is not known to be right"},
		"positions of all":      {Options{RowLengths: true}, input(onnx.Int64, "new"), `input "more" has one row for all`},
		"one row of positions":  {Options{RowLengths: true}, input(onnx.Int64, 1, "new"), `input "more" has one row for all`},
		"behind other axes":     {Options{RowLengths: true}, input(onnx.Int64, 1, 3, "new"), `input "more" has one row`},
		"positions of each":     {Options{RowLengths: true}, input(onnx.Int64, "batch", "new"), ""},
		"another number":        {Options{RowLengths: true}, input(onnx.Int64, "others"), ""},
		"a number":              {Options{RowLengths: true}, input(onnx.Int64), ""},
		"data of all":           {Options{RowLengths: true}, input(onnx.Float, "new"), ""},
		"tokens before a batch": {Options{RowLengths: true}, input(onnx.Int64, "new", 1), ""},
	} {
		_, x := changeOf(t, c.o, c.change)
		if err := x.checkRows(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	buffer := reference.NewFloats(onnx.Float, []int{2, 1, 3, 2}, slices.Repeat([]float64{1, 2, 3, 4, 5, 6}, 2))
	if got := withJunk(buffer, []int64{1, 3}, 9); !slices.Equal(got.F, []float64{1, 2, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6}) ||
		buffer.F[2] != 3 {
		t.Errorf("junk in %v", got.F)
	}
}

// TestEmptyPasts returns inputs of a merged decoder for new tokens only.
func TestEmptyPasts(t *testing.T) {
	for _, v := range []struct {
		t   onnx.Type
		may bool
	}{{onnxtest.Type(onnx.Float, "b", 2, "n", 8), true}, {onnxtest.Type(onnx.Float16, 1, 2, 3), true},
		{onnxtest.Type(onnx.Float, "b", "n"), false}, {onnxtest.Type(onnx.Int64, 1, 2, 3), false},
		{onnx.Type{DataType: onnx.Float}, true}} {
		x := onnx.New(10, 20).Graph.AddInput("x", v.t)
		if mayBePast(x) != v.may {
			t.Errorf("%s may be a past: %v", v.t, !v.may)
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
	if _, err := emptyPast(b.Model, found, 3, prove.NoPadding); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("another input: %v", err)
	}
}
