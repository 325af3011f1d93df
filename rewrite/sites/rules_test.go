package sites

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
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

// gatedSite returns a checker and the site of a GLU of inputs with these dimensions.
func gatedSite(t *testing.T, dims ...any) (*Checker, *Site) {
	t.Helper()
	b := onnxtest.New(20)
	gate, up := b.Input("gate", onnx.Float, dims...), b.Input("up", onnx.Float, dims...)
	y := b.Op("Mul", b.Op("Mul", b.Op("Sigmoid", gate), gate), up)
	b.Output(y)
	k, s := siteOf(t, b.Model, &patterns.Match{Op: "GLU", Inputs: []value{gate, up}, Outputs: []value{y},
		Attributes: fused.GLU{Activation: "silu", Alpha: 1}.Attributes()})
	f, err := s.Calls[0].Op.Function(s.Calls[0].Site)
	if err != nil {
		t.Fatal(err)
	}
	s.Calls[0].Node.Overload, s.Functions = f.Overload, []*onnx.Function{f}
	k.run.HasKernel = func(string) bool { return true }
	return k, s
}

// TestSizesOfChecks: inputs without elements and with too many are not tried, and shapes that depend on nothing but
// their own sizes are tried smaller.
func TestSizesOfChecks(t *testing.T) {
	for name, c := range map[string]struct {
		dims    []any
		varying bool
		want    string
		tried   int64 // elements of an input; 0: none
	}{
		"some":      {[]any{3, 4}, false, "", 12},
		"none":      {[]any{0, 4}, false, "cannot be checked: an input has no elements", 0},
		"many":      {[]any{257, 256}, false, "", 2 * 256},
		"any":       {[]any{999, 256}, true, "", 999 * 256},
		"too many":  {[]any{1, 1<<23 + 1}, true, "its inputs have 16777218 elements", 0},
		"all tried": {[]any{256, 256}, false, "", 256 * 256},
	} {
		k, s := gatedSite(t, c.dims...)
		s.slice.varying = c.varying
		tried := int64(0)
		k.run.Kernel = func(_ string, _ []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
			tried = in[0].Len()
			return nil, errors.New("no kernel")
		}
		err := k.tryNumbers(s, []int{0}, new(prove.CheckReport))
		if c.want == "" {
			c.want = "kernel any fails on normal inputs: no kernel"
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || tried != c.tried {
			t.Errorf("%s: %v after %d elements, want %s after %d", name, err, tried, c.want, c.tried)
		}
	}
}

// TestWhatIsChecked: a check may be left to sites with experts, and a kernel must be shown by some input.
func TestWhatIsChecked(t *testing.T) {
	k, s := gatedSite(t, 3, 4)
	if r, err := k.Check(s); err != nil || r == nil || r.Cases == 0 || r.Kernel != nil {
		t.Errorf("%+v, %v", r, err)
	}
	k.RoutedOnly = true
	if r, err := k.Check(s); err != nil || r != nil {
		t.Errorf("a gate is checked as experts: %+v, %v", r, err)
	}
	none := 0.0
	for told, want := range map[bool]string{true: "", false: "rounding differences change the result of mojo.GLU"} {
		err := k.judge(s, []int{0}, &prove.CheckReport{Kernel: &none, KernelTold: told})
		if (err == nil) != told || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the kernel shows %v: %v", told, err)
		}
	}
}

// TestNearEnough: a runtime may be off by a share of the greatest number, by its type, and order equal scores.
func TestNearEnough(t *testing.T) {
	floats := func(typ onnx.DataType, list ...float64) *reference.Tensor {
		return reference.NewFloats(typ, []int{len(list)}, list)
	}
	ints := func(list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int64, []int{len(list)}, list) }
	f, half := onnx.Float, onnx.Float16
	for i, c := range []struct {
		want, got *reference.Tensor
		coarse    onnx.DataType
		near      bool
	}{
		{floats(f, 100, 1), floats(f, 100, 1.09), f, true},
		{floats(f, 100, 1), floats(f, 100, 1.11), f, false},
		{floats(f, 100, 1), floats(f, 100, 2.5), half, true},
		{floats(f, 100, 1), floats(f, 100, 4.5), half, false},
		{floats(f, 1, 1), floats(f, 1, 1, 1), f, false},
		{floats(f, 0, 0), floats(f, 0, 0), f, true},
		{ints(1, 2), ints(2, 1), f, true},
		{ints(1, 2), ints(1, 2, 3), f, false},
		{ints(1, 2), floats(f, 2, 1), f, false},
	} {
		x, err := c.got.ToONNX("y")
		if err != nil {
			t.Fatal(err)
		}
		s := &Site{coarse: c.coarse, Match: &patterns.Match{Outputs: []value{{Name: "y"}}}}
		if err := s.nearEnough([]*reference.Tensor{c.want}, []*onnx.Tensor{x}); (err == nil) != c.near {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// TestRefusedSites: a site needs types, and an op that takes its inputs and returns its outputs.
func TestRefusedSites(t *testing.T) {
	for want, change := range map[string]func(m *patterns.Match, x value){
		"fused": func(*patterns.Match, value) {},
		"opset": func(m *patterns.Match, _ value) { m.Problem = errors.New("too old") },
		"unknown": func(m *patterns.Match, x value) {
			m.Inputs[1] = m.Root.Graph.AddInput("untyped", onnx.Type{})
		},
		"signature": func(m *patterns.Match, x value) { m.Inputs = append(m.Inputs, x, x, x) },
		"types":     func(m *patterns.Match, _ value) { m.Outputs[0].SetType(onnxtest.Type(onnx.Float16, "n", 4)) },
	} {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, "n", 4)
		y := b.Op("local:Gate", x, x)
		y.SetType(onnxtest.Type(onnx.Float, "n", 4))
		m := &patterns.Match{Domain: fused.Domain, Op: "GLU", Inputs: []value{x, x}, Outputs: []value{y},
			Root: y.Producer, Attributes: fused.GLU{Activation: "silu", Alpha: 1}.Attributes()}
		change(m, x)
		rewritetest.OneNode(m, 20)
		facts := infer.Analyze(b.Model)
		s, err := NewSite(m, pass.Scopes(b.Model, nil)[0], facts)
		if err == nil {
			_, err = s.AddCall(m.Replacement.Nodes[0], &registry.Kernel{ID: "any"}, 20)
		}
		if err == nil {
			err = s.Cut(facts)
		}
		got := "fused"
		if err != nil {
			got = fmt.Sprint(reason.As(err).Code)
		}
		if got != want {
			t.Errorf("%s: %s, %v", want, got, err)
		}
	}
	var names []string
	for _, h := range HardInputsOf(fused.Lookup(fused.LatentAttentionName), fused.Site{}) {
		names = append(names, h.Name)
		if h.padding.Name != h.Name || h.of(fused.Site{}, 0).Name != prove.Normal.Name {
			t.Errorf("%s has %s and %s inputs", h.Name, h.padding.Name, h.of(fused.Site{}, 0).Name)
		}
	}
	if len(names) != len(prove.Paddings) {
		t.Errorf("latents are tried with %q", names)
	}
}
