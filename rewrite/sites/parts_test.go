package sites

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// TestCut finds the nodes between the inputs and outputs of matches, and refuses matches that depend on anything else.
func TestCut(t *testing.T) {
	b := onnxtest.New(20)
	type list = []*onnx.Value
	x, w := b.Input("x", onnx.Float, "n", 4), b.Input("w", onnx.Float, "n", 4)
	wide := func(last float32) *onnx.Value {
		v := make([]float32, maxConstantBytes/4+1)
		v[len(v)-1] = last
		return b.Floats([]int64{int64(len(v))}, v...)
	}
	copies := list{b.Floats([]int64{2, 1}, 1, 2), b.Floats([]int64{2, 1}, 1, 2), b.Floats([]int64{2, 1}, 1, 3)}
	a, e, again := b.Op("Abs", x), b.Op("Exp", x), b.Op("Exp", x)
	sum, twice := b.Op("Add", a, e), b.Op("Sub", e, again)
	loop := b.Graph.NewSubgraph("body")
	loop.AddOutput((&onnxtest.Builder{Graph: loop}).Op("Neg", a))
	loop.AddOutput((&onnxtest.Builder{Graph: loop}).Op("Mul", a, loop.AddInitializer(onnx.NewFloat32s("two", nil,
		[]float32{2}))))
	within := b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", loop))
	inner := func(v *onnx.Value) bool { return v.Name == "two" }
	for name, c := range map[string]struct {
		in, out list
		want    string
	}{
		"all":               {list{x}, list{sum}, "abs exp add"},
		"part":              {list{a, e}, list{sum}, "add"},
		"a repeated value":  {list{e}, list{twice}, "sub"},
		"no repeated value": {list{a}, list{b.Op("Mul", a, again)}, `depend on "x", which is not an input`},
		"a branch":          {list{a, b.Graph.Value("c")}, list{within}, "if"},
		"a branch's value":  {list{b.Graph.Value("c"), x}, list{within}, "abs if"},
		"a shape":           {list{x}, list{b.Op("Reshape", x, b.Op("Shape", x))}, "reshape"},
		"an unread input":   {list{x, w}, list{sum}, `do not read "w"`},
		"another input":     {list{a}, list{sum}, `depend on "x", which is not an input`},
		"its output":        {list{sum}, list{sum}, `output "add" of the match is also its input`},
		"no node":           {list{x}, list{w}, `output "w" of the match is not computed`},
		"random":            {list{x}, list{b.Op("RandomNormalLike", x)}, "depend on random numbers of node"},
		"an attribute": {list{x}, list{b.Op("Elu", x, onnx.RefAttr("alpha", onnx.AttrFloat, "slope"))},
			`depend on the attribute "slope"`},
		"many zeros":   {list{x}, list{b.Op("Div", x, wide(0))}, "div"},
		"many numbers": {list{x}, list{b.Op("Div", x, wide(1))}, "of 1048580 bytes, which is not an input"},
		"a copy":       {copies[:1], list{b.Op("Min", copies[0], copies[1])}, "min"},
		"a rough size": {list{x}, list{b.Op("Mul", x, b.Op("Cast", b.Op("Mod", b.Op("Gather", b.Op("Shape", x), 0), 2),
			onnx.IntAttr("to", int64(onnx.Float))))}, "depends on the sizes of inputs by more than sums and products"},
		"a known size": {list{x}, list{b.Op("Mul", x, b.Op("Cast", b.Op("Gather", b.Op("Shape", x), 0),
			onnx.IntAttr("to", int64(onnx.Float))))}, "mul"},
		"a number":       {list{x}, list{b.Op("Mul", x, b.Op("Squeeze", b.Floats([]int64{1}, 2)))}, "mul"},
		"an outer value": {list{b.Graph.Value("c")}, list{within}, `depend on "x", which is not an input`},
		"another weight": {copies[:1], list{b.Op("Max", copies[0], copies[2])}, "max"},
	} {
		m := &patterns.Match{Op: "Any", Inputs: c.in, Outputs: c.out,
			Replacement: onnx.NewFunction("", "", "", 20).Body}
		for range c.in {
			m.Replacement.AddInput("in", onnx.Type{})
		}
		s, err := cut(m, b.Graph, infer.Analyze(b.Model))
		got := fmt.Sprint(err)
		if err == nil {
			var ops []string
			for _, n := range s.nodes {
				ops = append(ops, strings.ToLower(n.OpType))
			}
			got = strings.Join(ops, " ")
			if equal := name == "a repeated value" || name == "a copy"; (len(s.equal) == 1) != equal ||
				s.varying != (name == "a shape" || name == "a known size") ||
				(len(s.numbers) == 1) != (name == "a number") ||
				strings.Contains(name, "branch") != slices.ContainsFunc(s.consts, inner) {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestCongruent: values are congruent if nodes with equal attributes compute them from the same values.
func TestCongruent(t *testing.T) {
	b := onnxtest.New(20)
	x, y := b.Input("x", onnx.Float, 4), b.Input("y", onnx.Float, 4)
	elu := func(v *onnx.Value, alpha float32) *onnx.Value { return b.Op("Elu", v, onnx.FloatAttr("alpha", alpha)) }
	split := func() (parts []*onnx.Value) {
		n := b.Op("Split", x, onnx.IntAttr("num_outputs", 2)).Producer
		n.Outputs = append(n.Outputs, b.Graph.NewValue("second"))
		n.Outputs[1].Producer, n.Outputs[1].Output = n, 1
		return n.Outputs
	}
	chain := func(n int) *onnx.Value {
		v := x
		for range n {
			v = b.Op("Neg", v)
		}
		return v
	}
	first, second := split(), split()
	for name, c := range map[string]struct {
		a, b *onnx.Value
		same bool
	}{
		"one value":           {x, x, true},
		"two inputs":          {x, y, false},
		"nodes":               {elu(x, 1), elu(x, 1), true},
		"another attribute":   {elu(x, 1), elu(x, 2), false},
		"another input":       {elu(x, 1), elu(y, 1), false},
		"another op":          {b.Op("Abs", x), b.Op("Neg", x), false},
		"more inputs":         {b.Op("Max", x), b.Op("Max", x, x), false},
		"another domain":      {b.Op("local:Abs", x), b.Op("Abs", x), false},
		"an input and a node": {x, b.Op("Neg", x), false},
		"outputs":             {first[1], second[1], true},
		"other outputs":       {first[0], second[1], false},
		"random":              {b.Op("RandomNormalLike", x), b.Op("RandomNormalLike", x), false},
		"numbers":             {b.Floats(nil, 2), b.Floats(nil, 2), true},
		"other numbers":       {b.Floats(nil, 2), b.Floats(nil, 3), false},
		"a number and a node": {b.Floats(nil, 2), b.Op("Neg", x), false},
		"left out":            {b.Op("Clip", x, nil, y), b.Op("Clip", x, nil, y), true},
		"the other left out":  {b.Op("Clip", x, nil, y), b.Op("Clip", x, y), false},
		"deep":                {chain(maxCongruence), chain(maxCongruence), true},
		"too deep":            {chain(maxCongruence + 1), chain(maxCongruence + 1), false},
	} {
		if congruent(c.a, c.b, maxCongruence) != c.same || congruent(c.b, c.a, maxCongruence) != c.same {
			t.Errorf("%s: congruent %v", name, !c.same)
		}
	}
}

// TestCycles: a match must not read a value that depends on its outputs.
func TestCycles(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 4)
	y := b.Op("Abs", x)
	before, after := b.Op("Exp", x), b.Op("Neg", b.Op("Exp", y))
	z := b.Op("Add", before, after)
	s := pass.Scopes(b.Model, nil)[0]
	type list = []*onnx.Value
	for _, c := range []struct {
		in, out list
		refused bool
	}{{list{x, before}, list{y, z}, false}, {list{x, after}, list{y, z}, true}, {list{x, nil, y}, list{z, y}, true},
		{list{after, before}, list{z}, false}} {
		site := &Site{Scope: s, Match: &patterns.Match{Inputs: c.in, Outputs: c.out}}
		if err := site.CheckOrder(); (err != nil) != c.refused {
			t.Errorf("from %q to %q: %v", onnx.Names(c.in), onnx.Names(c.out), err)
		}
	}
}

// TestRepeatedInputs: tables that hold every number twice, for ops that read half of them.
func TestRepeatedInputs(t *testing.T) {
	for neighbors, want := range map[bool][]float64{true: {1, 1, 3, 3, 5, 5, 7, 7}, false: {1, 2, 1, 2, 5, 6, 5, 6}} {
		c := &Site{twice: map[int]bool{1: neighbors}}
		for i := range 2 {
			x := reference.NewFloats(onnx.Float, []int{2, 4}, []float64{1, 2, 3, 4, 5, 6, 7, 8})
			if c.repeatInput(i, x); slices.Equal(x.F, want) != (i == 1) {
				t.Errorf("input %d, neighbors %v: %v", i, neighbors, x.F)
			}
		}
	}
	for of, want := range map[string]bool{"A B C": true, "A B": false, "A B B C": true, "B C C": false} {
		if got := isPart([]string{"A", "B", "C"}, strings.Fields(of)); got != want {
			t.Errorf("A B C is part of %s: %v", of, got)
		}
	}
}
