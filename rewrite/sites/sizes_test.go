package sites

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// TestResized: the tokens of a site are on the last axis that nothing fixes; a fixed number of tokens is refused.
func TestResized(t *testing.T) {
	type dims = []any
	for name, c := range map[string]struct {
		tokens, ids dims
		want        string // the shapes for 7 tokens, or ""
	}{
		"rows":              {dims{"n", 8}, dims{"n", 2}, "[[7 8] [7 2]]"},
		"sequences":         {dims{"b", "s", 8}, dims{"b", "s", 2}, "[[1 7 8] [1 7 2]]"},
		"one sequence":      {dims{1, "s", 8}, dims{"n", 2}, "[[1 7 8] [7 2]]"},
		"columns":           {dims{"n", 1, 8}, dims{"n", 2}, "[[7 1 8] [7 2]]"},
		"flat":              {dims{"n", 8}, dims{"m"}, "[[7 8] [14]]"},
		"fixed":             {dims{5, 8}, dims{5, 2}, ""},
		"fixed sequences":   {dims{3, "s", 8}, dims{"n", 2}, ""},
		"one token":         {dims{1, 8}, dims{1, 2}, "[[7 8] [7 2]]"},
		"of another width":  {dims{"n", 8}, dims{"n", 3}, ""},
		"ids of one choice": {dims{"n", 8}, dims{}, ""},
	} {
		b := onnxtest.New(18)
		x, ids := b.Input("x", onnx.Float, c.tokens...), b.Input("ids", onnx.Int64, c.ids...)
		w := b.Floats([]int64{3}, 1, 2, 3)
		k := checkerOf(b.Model)
		r := &routing{hidden: 8, experts: 6, chosen: 2,
			roles: []fused.Role{fused.RoleTokens, fused.RoleIDs, fused.RoleMatrix}}
		s, err := k.resized(&Site{Match: &patterns.Match{Inputs: []value{x, ids, w}}}, r, 7)
		if (err == nil) != (c.want != "") || err == nil && (fmt.Sprint(s.shapes[:2]) != c.want || s.tokens != 7 ||
			!slices.Equal(s.shapes[2], []int64{3})) {
			t.Errorf("%s: %v, %v, want %s", name, s.shapes, err, c.want)
		}
		r.hidden = 5
		if _, err := k.resized(&Site{Match: &patterns.Match{Inputs: []value{x, ids, w}}}, r, 7); err == nil ||
			c.want != "" && !strings.Contains(err.Error(), "do not fit each other") {
			t.Errorf("%s, of 5 channels: %v", name, err)
		}
	}
}

// TestAttentionTrials: each world has the paddings that it needs, and great scores are left out if only their rounding
// would show.
func TestAttentionTrials(t *testing.T) {
	site := fused.Site{Attributes: fused.Attention{QLayout: "bnsh", KLayout: "bnsh", VLayout: "bnsh",
		YLayout: "bnsh"}.Attributes(), Dims: [][]int64{{1, 2, 3, 16}, {1, 2, 5, 16}, {1, 2, 5, 16}}}
	for _, c := range []struct {
		coarse onnx.DataType
		world  int
		exact  bool
		great  bool
	}{{onnx.Float, 0, true, true}, {onnx.Float, 0, false, true}, {onnx.Float16, 0, true, true},
		{onnx.Float16, 0, false, false}, {onnx.BFloat16, 0, false, false}, {onnx.Float, 1, false, false}} {
		var names []string
		for _, trial := range attentionTrials(site, c.coarse, c.world, c.exact) {
			names = append(names, trial.name)
		}
		all := strings.Join(names, ",")
		if strings.Contains(all, "great") != c.great || c.world > 0 && all != "padding on the left,holes" {
			t.Errorf("%+v: %s", c, all)
		}
		for _, p := range prove.Paddings {
			if c.world == 0 && !slices.Contains(names, p.Name) {
				t.Errorf("%+v: %s is not among %s", c, p.Name, all)
			}
		}
	}
	// Scores are sums of 16 products of queries and keys, times a scale of 1/4.
	for _, scores := range []float64{1, 40} {
		q, err := prove.MakeInput(spread(site, scores), 0, onnx.Float, []int64{400, 16})
		if err != nil {
			t.Fatal(err)
		}
		k, err := prove.MakeInput(spread(site, scores), 1, onnx.Float, []int64{400, 16})
		if err != nil {
			t.Fatal(err)
		}
		squares := 0.0
		for i := range 400 {
			sum := 0.0
			for j := range 16 {
				sum += q.F[i*16+j] * k.F[i*16+j] / 4
			}
			squares += sum * sum / 400
		}
		if squares < scores*scores/2 || squares > scores*scores*2 {
			t.Errorf("the mean square of scores is %g, want %g", squares, scores*scores)
		}
	}
	if n := keysOf(site); n != 5 {
		t.Errorf("%d keys", n)
	}
	site.Attributes = fused.Attention{KLayout: "bsnh"}.Attributes()
	if n := keysOf(site); n != 2 {
		t.Errorf("%d keys before the heads", n)
	}
	for i, c := range []struct {
		a     fused.Attention
		valid bool
		masks bool
	}{{fused.Attention{}, false, false}, {fused.Attention{Causal: true}, false, true},
		{fused.Attention{Window: 4}, false, true}, {fused.Attention{}, true, true}} {
		s := fused.Site{Attributes: c.a.Attributes(), Types: make([]onnx.DataType, fused.AttentionKeyValid+1)}
		if c.valid {
			s.Types[fused.AttentionKeyValid] = onnx.Int64
		}
		if hasMask(s) != c.masks {
			t.Errorf("case %d has a mask: %v", i, !c.masks)
		}
	}
	x, err := prove.MakeInput(masking, 0, onnx.Float, []int64{20, 6})
	hidden := 0
	for i, v := range x.F {
		if v != 0 {
			hidden++
		}
		if i%6 == 0 && v != 0 {
			t.Errorf("row %d has no first key", i/6)
		}
	}
	if err != nil || hidden < 10 || hidden > 60 {
		t.Errorf("%d of 120 keys are hidden, %v", hidden, err)
	}
}

// TestSameSizes: sizes are the same if they are in every world.
func TestSameSizes(t *testing.T) {
	b := onnxtest.New(18)
	x, y := b.Input("x", onnx.Float, "n", 4, "m"), b.Input("y", onnx.Float, "m", "n", 4)
	u := b.Graph.AddInput("u", onnx.Type{DataType: onnx.Float})
	none := b.Input("none", onnx.Float, 0)
	c := &Site{Facts: infer.Analyze(b.Model)}
	for _, s := range []struct {
		v    value
		axis int
		w    value
		at   int
		same bool
	}{{x, 0, y, 1, true}, {x, 2, y, 0, true}, {x, 1, y, 2, true}, {x, 0, y, 0, false}, {x, 0, y, 2, false},
		{u, 0, u, 0, false}, {none, 0, none, 0, true}} {
		if got := c.sameSize(s.v, s.axis, s.w, s.at); got != s.same {
			t.Errorf("%s %d and %s %d: %v", s.v.Name, s.axis, s.w.Name, s.at, got)
		}
	}
	for axis, want := range map[int]int64{0: 7, 1: 8, -1: 8, -2: 7} {
		s := fused.Site{Dims: [][]int64{{7, 8}, {}}}
		if got := dimOf(s, 0, axis); got != want || dimOf(s, 1, axis) != -1 || dimOf(s, 2, axis) != -1 {
			t.Errorf("axis %d is %d, want %d", axis, got, want)
		}
	}
	c.Match = &patterns.Match{Inputs: []value{x, y}, Replacement: onnx.NewFunction("", "", "", 18).Body}
	in, other := c.Match.Replacement.AddInput("in", onnx.Type{}), c.Match.Replacement.AddInput("other", onnx.Type{})
	if c.repeats(in, true) {
		t.Error("a match that knows of no repetition repeats")
	}
	c.Match.Repeats = func(v value, neighbors bool) bool { return v == y && neighbors }
	if c.repeats(in, true) || c.repeats(other, false) || !c.repeats(other, true) || c.repeats(u, true) ||
		len(c.twice) != 1 || !c.twice[1] {
		t.Errorf("the inputs %v repeat", c.twice)
	}
}

// TestEnoughTokens: sizes are tried with enough tokens for each expert, in ascending order.
func TestEnoughTokens(t *testing.T) {
	for _, c := range []struct {
		experts, chosen int64
		want            []int64
	}{{6, 2, []int64{1, 2, 3, 5}}, {20, 2, []int64{1, 2, 3, 5, 10}}, {19, 2, []int64{1, 2, 3, 5, 10}},
		{500, 2, []int64{1, 2, 3, 5, 64}}} {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, "n", 8)
		k := checkerOf(b.Model)
		r := &routing{hidden: 8, experts: c.experts, chosen: c.chosen, roles: []fused.Role{fused.RoleTokens}}
		list, err := k.sizes(&Site{Match: &patterns.Match{Inputs: []value{x}}, slice: &slice{}}, r)
		var got []int64
		for _, s := range list {
			if got = append(got, s.tokens); s.shapes[0][0] != s.tokens {
				t.Errorf("%d tokens in %v", s.tokens, s.shapes)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d of %d experts: %v tokens, want %v, %v", c.chosen, c.experts, got, c.want, err)
		}
		unknown := &slice{known: []value{x}}
		fixed := &Site{Match: &patterns.Match{Inputs: []value{b.Input("fixed", onnx.Float, 5, 8)}}, slice: unknown}
		k.run.Facts = infer.Analyze(b.Model)
		if list, err := k.sizes(fixed, r); err == nil {
			t.Errorf("a site of a fixed number of tokens and an unknown value has the sizes %v", list)
		}
		x = b.Input("sequences", onnx.Float, "b", "s", 8) // the model's own number is none of these
		k.run.Facts = infer.Analyze(b.Model)
		list, err = k.sizes(&Site{Match: &patterns.Match{Inputs: []value{x}}, slice: &slice{}}, r)
		if err != nil || len(list) != len(c.want)+1 ||
			!slices.IsSortedFunc(list, func(a, b size) int { return int(a.tokens - b.tokens) }) {
			t.Errorf("%d of %d experts: %v, %v", c.chosen, c.experts, list, err)
		}
	}
}

// TestCoarsest: the coarsest type is that of the computed values and of the inputs that are no constants.
func TestCoarsest(t *testing.T) {
	b := onnxtest.New(18)
	x, w := b.Input("x", onnx.Float, 2), b.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{2}, []float32{1, 2}))
	half := b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float16)))
	back := b.Op("Cast", half, onnx.IntAttr("to", int64(onnx.Float)))
	for want, nodes := range map[onnx.DataType][]*onnx.Node{onnx.Float: {back.Producer},
		onnx.Float16: {half.Producer, back.Producer}} {
		c := &Site{Types: []onnx.DataType{onnx.Float, onnx.BFloat16}, slice: &slice{nodes: nodes},
			Match: &patterns.Match{Inputs: []value{x, w}}}
		if got := coarsest(c, infer.Analyze(b.Model)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := coarsestOf([]onnx.DataType{onnx.Int64, onnx.Float16, onnx.BFloat16, onnx.Float}); got != onnx.BFloat16 {
		t.Errorf("%s has the fewest digits", got)
	}
	constant := &routed{proof: &proof{Checker: &Checker{}, c: &Site{Types: []onnx.DataType{onnx.Float},
		Match: &patterns.Match{Inputs: []value{w}}}}, r: &routing{roles: []fused.Role{fused.NoRole}}}
	for exact, stored := range map[bool]bool{false: true, true: false} {
		in, _, err := constant.trialInputs(&trial{size: size{shapes: [][]int64{{2}}}, kind: prove.Normal, hits: 1,
			ids: []int64{}}, exact)
		if err != nil || slices.Equal(in[0].F, []float64{1, 2}) != stored {
			t.Errorf("exact %v: the constant is %v, %v", exact, in, err)
		}
	}
}

// TestGatesByIDs: an input that only selects gates of experts need not be read by the nodes.
func TestGatesByIDs(t *testing.T) {
	b := onnxtest.New(18)
	gates, ids := b.Input("gates", onnx.Float, 2, 6), b.Input("ids", onnx.Int64, 2, 2)
	other := b.Input("other", onnx.Int64, 2)
	for name, c := range map[string]struct {
		read  func(r builder, gates, ids value)
		alone bool
	}{
		"gates of the match": {func(r builder, gates, ids value) {
			r.Op("GatherElements", gates, ids)
		}, true},
		"another op": {func(r builder, gates, ids value) { r.Op("Gather", gates, ids) }, false},
		"as the data": {func(r builder, gates, ids value) {
			r.Op("GatherElements", ids, gates)
		}, false},
		"computed gates": {func(r builder, gates, ids value) {
			r.Op("GatherElements", r.Op("Neg", gates), ids)
		}, false},
	} {
		r := &onnxtest.Builder{Model: b.Model, Graph: onnx.NewFunction("", "", "", 18).Body}
		c.read(r, r.Graph.AddInput("gates", onnx.Type{}), r.Graph.AddInput("ids", onnx.Type{}))
		m := &patterns.Match{Inputs: []value{gates, ids}, Replacement: r.Graph}
		if choosesGates(m, ids) != c.alone || choosesGates(m, gates) != (name == "as the data") ||
			choosesGates(m, other) {
			t.Errorf("%s: the ids choose gates: %v", name, !c.alone)
		}
	}
}

// TestVaryingSizes: a site that computes with sizes is tried on one sequence of 1, 2 and enough tokens, and with the
// model's own sizes.
func TestVaryingSizes(t *testing.T) {
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, "b", "s", 8)
	k := checkerOf(b.Model)
	known := b.Op("Shape", x)
	k.run.Facts = infer.Analyze(b.Model)
	r := &routing{hidden: 8, experts: 20, chosen: 2, roles: []fused.Role{fused.RoleTokens}}
	c := &Site{Match: &patterns.Match{Inputs: []value{x}}, slice: &slice{varying: true, known: []value{known}}}
	list, err := k.sizes(c, r)
	var got []string
	for _, s := range list {
		got = append(got, fmt.Sprint(s.shapes[0], s.tokens))
	}
	if want := []string{"[1 1 8] 1", "[1 2 8] 2", "[2 3 8] 6", "[1 10 8] 10"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("sizes are %q, want %q, %v", got, want, err)
	}
	if s, err := k.sizeOf(c, r, 7); err != nil || fmt.Sprint(s.shapes) != "[[1 7 8]]" || s.tokens != 7 {
		t.Errorf("7 tokens are %v, %v", s.shapes, err)
	}
	if first := k.tokenFacts(7); k.tokenFacts(7) != first {
		t.Error("facts are found twice")
	}
	c.slice.known = []value{x}
	if _, err := k.sizeOf(c, r, 7); err == nil || !strings.Contains(err.Error(), `the value of "x" is not known`) {
		t.Errorf("an unknown value: %v", err)
	}
}
