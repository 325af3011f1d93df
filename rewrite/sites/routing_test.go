package sites

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

type (
	builder = *onnxtest.Builder
	value   = *onnx.Value
)

func distinct(list []int64) int {
	return len(slices.Compact(slices.Sorted(slices.Values(list))))
}

// TestRoutings: a routing reaches as many experts as it shall, and never sends a token to an expert twice.
func TestRoutings(t *testing.T) {
	for experts := int64(3); experts <= 16; experts++ {
		for chosen := int64(1); chosen <= 3; chosen++ {
			r := &routing{experts: experts, chosen: chosen}
			var all []int64
			for n := range experts {
				e := r.expert(n)
				if all = append(all, e); e < 0 || e >= experts || r.startAt(e) != n || r.expert(n+experts) != e {
					t.Fatalf("expert %d of %d is %d, which is at %d", n, experts, e, r.startAt(e))
				}
				if experts > 5 && (r.expert(n+1)-e+experts)%experts == 1 {
					t.Errorf("of %d experts, %d and its neighbor follow each other", experts, e)
				}
			}
			if distinct(all) != int(experts) {
				t.Errorf("the order of %d experts is %v", experts, all)
			}
			const tokens = 7
			for hits := chosen; hits <= experts; hits++ {
				for _, start := range []int64{0, 2} {
					ids := r.route(tokens, hits, start)
					if len(ids) != int(tokens*chosen) || distinct(ids) != int(min(hits, tokens*chosen)) ||
						ids[0] != r.expert(start) {
						t.Errorf("%d of %d experts from %d on: %v", hits, experts, start, ids)
					}
					for token := range tokens {
						if one := ids[token*int(chosen):][:chosen]; distinct(one) != int(chosen) {
							t.Errorf("a token goes to %v", one)
						}
					}
				}
			}
			for n := int64(1); n <= min(tokens, experts-chosen); n++ {
				ids := r.apart(tokens, n, all)
				for i, e := range all {
					got := int64(0)
					for _, id := range ids {
						if id == e {
							got++
						}
					}
					switch i := int64(i); {
					case i < n && got != 1, i >= n+chosen && got > 0, i >= n && i < n+chosen && got == 0 && n < tokens:
						t.Errorf("%d apart: expert %d of %v gets %d tokens", n, e, all, got)
					}
				}
			}
		}
	}
	r := &routing{experts: 6, chosen: 2, hidden: 8, roles: []fused.Role{fused.RoleTokens, fused.RoleIDs,
		fused.RoleLogits, fused.RoleMatrix}}
	for want, shapes := range map[int64][][]int64{
		12: {{3, 4, 8}, {12, 2}, {72}, {5}}, 0: {{3, 8}, {4, 2}, {3, 6}, {5}}, 1: {{8}, {2}, {6}, {7, 7}}} {
		if got := r.tokens(shapes); got != want {
			t.Errorf("%d tokens in %v, want %d", got, shapes, want)
		}
	}
	if got := r.tokens([][]int64{{3, 7}, {3, 2}, {3, 6}, {5}}); got != 0 {
		t.Errorf("%d tokens of another width", got)
	}
}

// TestLimits finds the numbers of a graph that may be capacities of experts.
func TestLimits(t *testing.T) {
	number := func(b builder, x int64) value { return b.Ints(x) }
	for name, c := range map[string]struct {
		write        func(b builder, counts, x value) value
		named, other int64
	}{
		"a comparison": {func(b builder, counts, _ value) value {
			return b.Op("Less", counts, number(b, 40))
		}, 40, 0},
		"a minimum": {func(b builder, counts, _ value) value {
			return b.Op("Min", counts, number(b, 7))
		}, 7, 0},
		"another number": {func(b builder, counts, _ value) value {
			return b.Op("Add", counts, number(b, 9))
		}, 0, 9},
		"the larger one": {func(b builder, counts, _ value) value {
			return b.Op("Greater", b.Op("Max", counts, number(b, 50)), number(b, 30))
		}, 50, 0},
		"the number of experts": {func(b builder, counts, _ value) value {
			return b.Op("Less", b.Op("Less", counts, number(b, 5)), number(b, 4))
		}, 0, 5},
		"a width": {func(b builder, counts, _ value) value {
			return b.Op("OneHot", counts, number(b, 33), b.Ints(0, 100))
		}, 33, 100},
		"the router's": {func(b builder, _, x value) value {
			return b.Op("TopK", x, number(b, 2))
		}, 0, 0},
		"another choice": {func(b builder, _, x value) value {
			return b.Op("TopK", x, number(b, 3))
		}, 3, 0},
		"great, compared": {func(b builder, counts, _ value) value {
			return b.Op("LessOrEqual", counts, number(b, 1<<20))
		}, 1 << 20, 0},
		"great, not compared": {func(b builder, counts, _ value) value {
			return b.Op("Add", counts, number(b, 1<<20))
		}, 0, 0},
		"no limit": {func(b builder, counts, _ value) value {
			return b.Op("Less", counts, number(b, 1<<30))
		}, 0, 0},
		"the greatest limit": {func(b builder, counts, _ value) value {
			return b.Op("Less", b.Op("Add", b.Op("Sub", counts, number(b, 4096)), number(b, 4097)),
				number(b, 1<<30-1))
		}, 1<<30 - 1, 4096},
		"a float": {func(b builder, _, x value) value {
			return b.Op("Clip", x, nil, b.Floats(nil, 6))
		}, 6, 0},
		"no count": {func(b builder, _, x value) value {
			return b.Op("Greater", x, b.Floats(nil, 1.5))
		}, 0, 0},
		"a table": {func(b builder, _, x value) value {
			return b.Op("Less", x, b.Floats([]int64{17}, slices.Repeat([]float32{8}, 17)...))
		}, 0, 0},
		"of a branch": {func(b builder, counts, _ value) value {
			body := b.Graph.NewSubgraph("body")
			body.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: body}).Op("Less", counts, number(b, 21)))
			return b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", body))
		}, 21, 0},
	} {
		b := onnxtest.New(18)
		c.write(b, b.Input("counts", onnx.Int64, "n"), b.Input("x", onnx.Float, "n", 5))
		x := &routed{proof: &proof{Checker: checkerOf(b.Model), c: &Site{slice: &slice{nodes: b.Graph.Nodes}}},
			r: &routing{experts: 5, chosen: 2, logits: true}}
		if named, other := x.limits(); named != c.named || other != c.other {
			t.Errorf("%s: %d and %d, want %d and %d", name, named, other, c.named, c.other)
		}
	}
}

// TestKeys: sites have one key if their checks have the same result.
func TestKeys(t *testing.T) {
	base := func(b builder, x, w value) value {
		return b.Op("Mul", b.Op("Elu", x, onnx.FloatAttr("alpha", 2)), w)
	}
	branch := func(op string, inputs int) func(b builder, x, w value) value {
		return func(b builder, x, w value) value {
			body := b.Graph.NewSubgraph("body")
			for range inputs {
				body.AddInput("i", onnx.Type{})
			}
			body.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: body}).Op(op, x))
			return b.Op("Mul", b.Op("If", w, onnx.GraphAttr("then_branch", body)), w)
		}
	}
	outputs := func(turned bool) string {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, 2)
		out := []value{b.Op("Abs", x), b.Op("Neg", x)}
		if turned {
			out[0], out[1] = out[1], out[0]
		}
		facts := infer.Analyze(b.Model)
		s := &slice{inputs: []value{x}, outputs: out, nodes: b.Graph.Nodes, equal: map[value]value{}}
		return s.key(facts, []int{0})
	}
	if outputs(true) == outputs(false) {
		t.Error("not by the order of the outputs")
	}
	keyOf := func(typ onnx.DataType, width int, write func(b builder, x, w value) value) string {
		b := onnxtest.New(18)
		x, w := b.Input("x", typ, 2, width), b.Input("w", typ, 2, width)
		y := write(b, x, w)
		facts := infer.Analyze(b.Model)
		s, err := cut(&patterns.Match{Inputs: []value{x, w}, Outputs: []value{y}}, b.Graph, facts)
		if err != nil {
			t.Fatal(err)
		}
		return s.key(facts, []int{0, 1})
	}
	key := keyOf(onnx.Float, 4, base)
	for name, c := range map[string]struct {
		key  string
		same bool
	}{
		"the same": {keyOf(onnx.Float, 4, base), true},
		"behind another node": {keyOf(onnx.Float, 4, func(b builder, x, w value) value {
			b.Op("Abs", x)
			return base(b, x, w)
		}), true},
		"another type":  {keyOf(onnx.Float16, 4, base), false},
		"another width": {keyOf(onnx.Float, 6, base), false},
		"another attribute": {keyOf(onnx.Float, 4, func(b builder, x, w value) value {
			return b.Op("Mul", b.Op("Elu", x, onnx.FloatAttr("alpha", 3)), w)
		}), false},
		"another op": {keyOf(onnx.Float, 4, func(b builder, x, w value) value {
			return b.Op("Add", b.Op("Elu", x, onnx.FloatAttr("alpha", 2)), w)
		}), false},
		"another order": {keyOf(onnx.Float, 4, func(b builder, x, w value) value {
			return b.Op("Mul", w, b.Op("Elu", x, onnx.FloatAttr("alpha", 2)))
		}), false},
		"the other input": {keyOf(onnx.Float, 4, func(b builder, x, w value) value {
			return base(b, w, x)
		}), false},
	} {
		if (c.key == key) != c.same {
			t.Errorf("%s: %q and %q", name, c.key, key)
		}
	}
	number := func(x float32) string {
		return keyOf(onnx.Float, 4, func(b builder, a, w value) value {
			return b.Op("Mul", b.Op("Add", a, b.Floats(nil, x)), w)
		})
	}
	if one, again := number(1), number(1); one != again || one == number(2) {
		t.Error("not by the constant")
	}
	if a, again := keyOf(onnx.Bool, 1, branch("Not", 0)), keyOf(onnx.Bool, 1, branch("Not", 0)); a != again ||
		a == keyOf(onnx.Bool, 1, branch("Identity", 0)) || a == keyOf(onnx.Bool, 1, branch("Not", 1)) ||
		!strings.Contains(a, "then_branch{0") {
		t.Error("not by the branches")
	}
	sized := func(axis int64) string {
		return keyOf(onnx.Float, 4, func(b builder, x, w value) value {
			n := b.Op("Gather", b.Op("Shape", x), b.Ints(axis))
			return b.Op("Mul", b.Op("Mul", x, b.Op("Cast", n, onnx.IntAttr("to", int64(onnx.Float)))), w)
		})
	}
	if sized(0) == sized(1) || sized(0) != sized(-2) {
		t.Error("not by the known sizes")
	}
}

// TestGates: operands of linear attention are in their ranges, or every seventh number is outside.
func TestGatesInRange(t *testing.T) {
	for _, rows := range []int{1, 100} {
		for _, outside := range []bool{false, true} {
			x := &linear{key: 4, rows: rows, outside: outside}
			for what, within := range map[fused.Role]func(v float64) bool{
				fused.RoleDecay:      func(v float64) bool { return v > 0 && v <= 1 },
				fused.RoleDecayLog:   func(v float64) bool { return v <= 0 },
				fused.RoleShare:      func(v float64) bool { return v > 0 && v < 1 },
				fused.RoleLinearKeys: func(v float64) bool { return math.Abs(v) < 2 },
				fused.NoRole:         func(v float64) bool { return math.Abs(v) < 10 },
			} {
				in, err := prove.MakeInput(prove.Normal, 1, onnx.Float, []int64{6, 7})
				if err != nil {
					t.Fatal(err)
				}
				x.gate(what, in)
				out := 0
				for i, v := range in.F {
					if !within(v) {
						if out++; i%unboundedEvery != 0 && what != fused.NoRole {
							t.Errorf("role %v, outside %v: number %d is %g", what, outside, i, v)
						}
					}
				}
				if !outside && out > 0 || outside && out == 0 && what != fused.RoleLinearKeys {
					t.Errorf("role %v: %d numbers are outside, %v", what, out, outside)
				}
			}
		}
	}
	x := &linear{}
	if got := x.repairs(); got != "" {
		t.Errorf("repaired: %s", got)
	}
	at := func(list ...int64) (trials []trial) {
		for _, hits := range list {
			trials = append(trials, trial{hits: hits})
		}
		return trials
	}
	routed := &routed{r: &routing{experts: 9}, good: at(3, 2, 2), undefined: at(4, 2), failure: errors.New("it fails")}
	const some = "the nodes fail for 2 of 5 tried routings (it fails); the op supports all"
	if got := routed.repairs(); got != some {
		t.Errorf("repaired: %s", got)
	}
	for text, list := range map[string][]int64{"": nil, "3": {3}, "1 or 2": {1, 2}, "1, 2 or 64": {1, 2, 64}} {
		if got := enumerate(list); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	long := strings.Repeat("é", 201)
	for text, want := range map[string]string{long: long[:400] + "…", long[:400]: long[:400]} {
		if got := short(errors.New(text)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSettledRouters: only the results of open tokens, and the order of equal scores, are made equal.
func TestSettledRouters(t *testing.T) {
	ids := func(list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int64, []int{2, 2}, list) }
	weights := func(list ...float64) *reference.Tensor { return reference.NewFloats(onnx.Float, []int{2, 2}, list) }
	for _, equal := range []bool{false, true} {
		want := []*reference.Tensor{weights(1, 2, 3, 4), ids(1, 2, 3, 4), nil}
		got := []*reference.Tensor{weights(5, 6, 4, 3), ids(5, 6, 4, 3), nil}
		mine := got[0]
		settle(want, got, []bool{true, false}, equal)
		sameFloats, sameInts := slices.Equal(want[0].F, got[0].F), slices.Equal(want[1].I, got[1].I)
		if sameFloats != equal || sameInts != equal || got[0].F[0] != 1 || got[1].I[1] != 2 || mine.F[0] != 5 {
			t.Errorf("equal scores %v: %v and %v, want %v and %v", equal, got[0].F, got[1].I, want[0].F, want[1].I)
		}
	}
	x := weights(1, 8, 0, 0)
	for seed := range uint64(nudges) {
		y := nudged(x, 2, seed)
		for i, v := range y.F {
			step := 4 * prove.Spacing(onnx.Float, 8)
			if i >= 2 {
				step = 4 * prove.Spacing(onnx.Float, 0)
			}
			if d := math.Abs(v - x.F[i]); d < step/2 || d > step {
				t.Errorf("number %d is moved by %g, want %g", i, d, step)
			}
		}
	}
}

// TestStandalone builds models of a few nodes, which compute what the nodes did.
func TestStandalone(t *testing.T) {
	b := onnxtest.New(18)
	x, at := b.Input("x", onnx.Float, 2), b.Ints(1)
	half := b.Op("Mul", x, b.Floats(nil, 0.5))
	y := b.Op("Gather", half, at)
	floats := reference.NewFloats(onnx.Float, []int{2}, []float64{3, 8})
	ints := reference.NewInts(onnx.Int64, []int{1}, []int64{1})
	type list = []value
	build := func(nodes []*onnx.Node, in list, given []*reference.Tensor, out value) (*onnx.Model, []*onnx.Tensor,
		error) {
		s := &standalone{model: b.Model}
		return s.build(nodes, in, given, list{out})
	}
	nodes := []*onnx.Node{half.Producer, y.Producer}
	m, feeds, err := build(nodes, list{x, at}, []*reference.Tensor{floats, ints}, y)
	if err != nil || len(feeds) != 1 || len(m.Graph.Inputs) != 1 || len(m.Graph.Initializers()) != 2 {
		t.Fatalf("%d feeds, %v", len(feeds), err)
	}
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := e.RunTensors(feeds); err != nil || len(out) != 1 {
		t.Errorf("%v, %v", out, err)
	} else if r, err := reference.FromONNX(out[0]); err != nil || !slices.Equal(r.F, []float64{4}) {
		t.Errorf("%v, %v, want half of 8", r, err)
	}
	for name, c := range map[string]struct {
		nodes []*onnx.Node
		out   value
	}{"another value": {nodes[1:], y}, "an input": {nodes, x},
		"no node": {nil, y}} {
		if _, _, err := build(c.nodes, list{x, at}, []*reference.Tensor{floats, ints}, c.out); err == nil {
			t.Errorf("%s: built", name)
		}
	}
}

// TestFolded: values of a replacement that depend only on constants are folded, except in a function's body.
func TestFolded(t *testing.T) {
	model := onnxtest.New(18)
	b := &onnxtest.Builder{Model: model.Model, Graph: onnx.NewFunction("", "", "", 18).Body}
	weight, data := b.Graph.AddInput("w", onnx.Type{}), b.Graph.AddInput("x", onnx.Type{})
	c := &Site{Scope: &pass.Scope{}, Match: &patterns.Match{Replacement: b.Graph,
		Inputs: []value{model.Floats(nil, 1), model.Input("x", onnx.Float)}}}
	other := b.Op("Neg", weight)
	other.Producer.Domain = "other"
	for name, v := range map[string]struct {
		v     value
		fixed bool
	}{
		"a weight": {weight, true}, "data": {data, false}, "none": {nil, false}, "a number": {b.Floats(nil, 2), true},
		"of a weight": {b.Op("Add", b.Op("Neg", weight), b.Floats(nil, 2)), true},
		"of data":     {b.Op("Add", weight, data), false}, "of nothing": {b.Op("RandomNormal"), false},
		"another domain": {other, false}, "without an input": {b.Op("Clip", weight, nil, weight), true},
	} {
		for _, f := range []*onnx.Function{nil, {}} {
			if c.Scope.Function = f; c.IsConstant(v.v) != (v.fixed && f == nil) {
				t.Errorf("%s: constant %v", name, !v.fixed)
			}
		}
	}
	names := OpNames([]*onnx.Node{b.Op("Sub", weight, data).Producer, b.Op("Neg", b.Floats(nil, 1)).Producer,
		b.Op("Add", data, nil).Producer, other.Producer})
	if !slices.Equal(names, []string{"Add", "Sub", "other.Neg"}) {
		t.Errorf("the ops are %q", names)
	}
}

// TestTypedAttributes: whole numbers of a pattern become integers for integer attributes, and integers become floats.
func TestTypedAttributes(t *testing.T) {
	g := onnx.New(10, 18).Graph
	n := g.AddNode("RMSNorm", nil, []value{g.NewValue("y")}, onnx.FloatAttr("axis", -1),
		onnx.IntAttr("epsilon", 2), onnx.FloatAttr("scale_after_cast", 0.5))
	typed(fused.Lookup("RMSNorm"), n)
	axis, epsilon, after := n.Attr("axis"), n.Attr("epsilon"), n.Attr("scale_after_cast")
	if axis.Type != onnx.AttrInt || axis.Int != -1 || epsilon.Type != onnx.AttrFloat || epsilon.Float != 2 ||
		after.Type != onnx.AttrFloat || axis.Float != 0 || epsilon.Int != 0 {
		t.Errorf("%v %v %v", axis, epsilon, after)
	}
}

// TestDrivenExperts: logits and gates of a trial choose its experts; logits without experts are any numbers.
func TestDrivenExperts(t *testing.T) {
	b := onnxtest.New(18)
	in := []value{b.Input("logits", onnx.Float, "n", 6), b.Input("gates", onnx.Float, "n", 6)}
	for _, driven := range []bool{true, false} {
		x := &routed{proof: &proof{Checker: &Checker{}, c: &Site{Types: []onnx.DataType{onnx.Float, onnx.Float},
			Match: &patterns.Match{Inputs: in}}}, r: &routing{experts: 6, chosen: 2, logits: driven,
			roles: []fused.Role{fused.RoleLogits, fused.RoleGates}}}
		got, ids, err := x.trialInputs(&trial{size: size{tokens: 4, shapes: [][]int64{{4, 6}, {4, 6}}},
			kind: prove.Zeros, hits: 5, start: 1}, true)
		if err != nil || !slices.Equal(ids, x.r.route(4, 5, 1)) {
			t.Fatalf("experts %v, %v", ids, err)
		}
		for token := range 4 {
			logits, gates := got[0].F[token*6:][:6], got[1].F[token*6:][:6]
			for e := range 6 {
				chosen := slices.Contains(ids[token*2:][:2], int64(e))
				if (gates[e] > 0) != chosen || (logits[e] > 0) != (chosen && driven) ||
					(logits[e] < 0) != (!chosen && driven) {
					t.Errorf("driven %v: token %d has logits %v and gates %v", driven, token, logits, gates)
				}
			}
		}
	}
}
