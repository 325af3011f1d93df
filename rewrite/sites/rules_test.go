package sites

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

func checkerOf(m *onnx.Model) *Checker {
	return NewChecker(&pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m)})
}

// TestOrderAcrossGraphs: the search for a cycle ends before the first output, and gives up at a branch.
func TestOrderAcrossGraphs(t *testing.T) {
	b := onnxtest.New(20)
	x, c := b.Input("x", onnx.Float, 4), b.Input("c", onnx.Bool)
	branch := func(v value) value {
		body := b.Graph.NewSubgraph("body")
		body.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: body}).Op("Neg", v))
		return b.Op("If", c, onnx.GraphAttr("then_branch", body))
	}
	early, y, z := branch(x), b.Op("Abs", x), b.Op("Exp", x)
	late := branch(y)
	for want, in := range map[string]value{"": early, "it is not known whether input": late} {
		site := &Site{Match: &patterns.Match{Inputs: []value{x, b.Op("Neg", in)}, Outputs: []value{z, y}}}
		site.Scope = pass.Scopes(b.Model, nil)[0]
		if err := site.CheckOrder(); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestSpreads: an input broadcasts if each dimension except the last is 1 or equals the other dimension.
func TestSpreads(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "n", 3, 4)
	unranked := b.Graph.AddInput("u", onnx.Type{DataType: onnx.Float})
	c := &Site{}
	type dims = []any
	for _, v := range []struct {
		dims dims
		want bool
	}{{dims{"n", 3, 8}, true}, {dims{1, 1, 8}, true}, {dims{8}, true}, {dims{}, true}, {dims{"m", 3, 8}, false},
		{dims{2, 3, 8}, false}, {dims{"n", 2, 8}, false}, {dims{1, "n", 3, 8}, false}} {
		in := b.Input("v", onnx.Float, v.dims...)
		if c.Facts = infer.Analyze(b.Model); c.spreads(in, x) != v.want {
			t.Errorf("%v broadcasts: %v", v.dims, !v.want)
		}
	}
	if c.spreads(unranked, x) || c.spreads(x, unranked) {
		t.Error("a value of unknown rank broadcasts")
	}
}

// TestUnknownShapes: dimensions that are not known get small numbers by their place, and known ones stay.
func TestUnknownShapes(t *testing.T) {
	b := onnxtest.New(20)
	x, shape := b.Input("x", onnx.Float, "n"), b.Input("shape", onnx.Int64, 3)
	rough := b.Op("Reshape", x, shape)
	wide := b.Op("MatMul", rough, b.Floats([]int64{1, 6}, 1, 2, 3, 4, 5, 6))
	unranked := b.Graph.AddInput("u", onnx.Type{DataType: onnx.Float})
	k := checkerOf(b.Model)
	w := world{k.run.Facts, 0}
	got, err := k.shapes(&Site{Match: &patterns.Match{Inputs: []value{rough, wide}}}, w)
	if want := "[[2 3 5] [2 3 6]]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	_, err = k.shapes(&Site{Match: &patterns.Match{Inputs: []value{unranked}}}, w)
	if err == nil || !strings.Contains(err.Error(), `the shape of "u" is unknown`) {
		t.Errorf("an unknown rank: %v", err)
	}
}

// TestShortened: attention over many tokens of a fixed number is checked with fewer ones, unless they are not alike.
func TestShortened(t *testing.T) {
	b := onnxtest.New(20)
	many := prove.ManyTokens + 1
	q, k := b.Input("q", onnx.Float, 1, 2, many, 8), b.Input("k", onnx.Float, 1, many, 2, 8)
	few, free := b.Input("few", onnx.Float, 1, 2, many-1, 8), b.Input("free", onnx.Float, 1, 2, "n", 8)
	facts := infer.Analyze(b.Model)
	for name, c := range map[string]struct {
		q, k   value
		change func(r *attention.Reading)
		want   bool
	}{
		"many": {q, k, nil, true}, "many queries": {q, few, nil, true}, "many keys": {few, k, nil, true},
		"few": {few, few, nil, false}, "any number": {free, free, nil, false},
		"packed":   {q, k, func(r *attention.Reading) { r.Packed = true }, false},
		"rotated":  {q, k, func(r *attention.Reading) { r.Rotary = new(attention.Rotary) }, false},
		"cached":   {q, k, func(r *attention.Reading) { r.PastKey = k }, false},
		"causal":   {q, k, func(r *attention.Reading) { r.Causal = true }, false},
		"a window": {q, k, func(r *attention.Reading) { r.Window = 9 }, false},
	} {
		r := attention.Reading{Q: c.q, K: c.k, QAxes: "b n s h", KAxes: "b n s h"}
		if c.k == k {
			r.KAxes = "b s n h"
		}
		if c.change != nil {
			c.change(&r)
		}
		if got := (&Site{Match: &patterns.Match{Attention: &r}}).shortens(facts); got != c.want {
			t.Errorf("%s: shortened %v", name, got)
		}
	}
	if (&Site{Match: &patterns.Match{}}).shortens(facts) {
		t.Error("a block that is not read is shortened")
	}
}

// TestUniform: a constant is uniform if all its elements are equal.
func TestUniform(t *testing.T) {
	for _, c := range []struct {
		list []int64
		want bool
	}{{[]int64{7}, true}, {[]int64{7, 7, 7}, true}, {[]int64{7, 7, 8}, false}, {[]int64{8, 7, 7}, false},
		{nil, false}} {
		if got := uniform(onnx.NewInt64s("c", c.list)); got != c.want {
			t.Errorf("%v is uniform: %v", c.list, got)
		}
	}
	if uniform(&onnx.Tensor{DataType: onnx.Float, Dims: []int64{2}}) {
		t.Error("missing elements are equal")
	}
}

// TestDependsOnInputs: in a mixture, a size is computed if it follows from an input of the match.
func TestDependsOnInputs(t *testing.T) {
	b := onnxtest.New(20)
	x, y := b.Input("x", onnx.Float, "n", 4), b.Input("y", onnx.Float, "n", 4)
	size := func(v value) value { return b.Op("Gather", b.Op("Shape", v), 0) }
	branch := func(v value) value {
		body := b.Graph.NewSubgraph("body")
		body.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: body}).Op("Neg", v))
		return b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", body))
	}
	fixed := b.Op("Gather", b.Op("Shape", x), 1)
	for _, routed := range []bool{false, true} {
		for name, c := range map[string]struct {
			v       value
			follows bool
		}{"its size": {size(b.Op("Neg", x)), true}, "another size": {size(y), false}, "a fixed size": {fixed, false},
			"of a branch": {branch(x), true}, "of another branch": {branch(y), false},
			"with a left out operand": {b.Op("Clip", size(y), nil, size(x)), true}} {
			cutter := &cutter{g: b.Graph, facts: infer.Analyze(b.Model), routed: routed,
				dependent: map[value]bool{}, s: &slice{isInput: map[value]bool{x: true}}}
			for range 2 { // the second answer is cached
				if got := cutter.follows(c.v); got != (c.follows && routed) {
					t.Errorf("%s, routed %v: follows %v", name, routed, got)
				}
			}
		}
	}
}

// TestRoutingOf: a site is routed by its experts, or else by its router, if its sizes are known.
func TestRoutingOf(t *testing.T) {
	site := func(op string, dims ...[]int64) *Call {
		return &Call{Op: fused.Lookup(op), Site: fused.Site{Dims: dims,
			Attributes: fused.TopKRouter{TopK: 2}.Attributes()}}
	}
	router := func(experts int64) *Call { return site(fused.TopKRouterName, []int64{-1, experts}) }
	moe := func(hidden, experts, chosen int64) *Call {
		return site(fused.MoEName, []int64{-1, hidden}, nil, []int64{-1, chosen}, []int64{experts, 12, hidden})
	}
	glu := site(fused.GLUName)
	for name, c := range map[string]struct {
		calls []*Call
		want  string
	}{
		"router": {[]*Call{glu, router(8), glu}, "1 8 2 false"}, "all experts": {[]*Call{router(2)}, "1 2 2 false"},
		"experts": {[]*Call{moe(16, 6, 1)}, "16 6 1 false"}, "no such op": {[]*Call{glu}, ""},
		"both":            {[]*Call{router(6), glu, moe(16, 6, 2)}, "16 6 2 true"},
		"unknown experts": {[]*Call{router(-1)}, ""}, "unknown width": {[]*Call{moe(-1, 6, 2)}, ""},
		"unknown choice": {[]*Call{moe(16, 6, -1)}, ""}, "too many a choice": {[]*Call{router(1)}, ""},
	} {
		got := ""
		none := &patterns.Match{Replacement: onnx.NewFunction("", "", "", 18).Body}
		r := routingOf(&Site{Calls: c.calls, Match: none})
		if r != nil {
			got = fmt.Sprint(r.hidden, r.experts, r.chosen, r.logits)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
