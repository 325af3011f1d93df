package trace

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestBranches compares a decoder with two branches, as optimum merges them, with its patched model, in little memory.
// The layers are in the branches.
func TestBranches(t *testing.T) {
	a, b := read(t, "llama-merged-ts-fp32"), patched(t, "llama-merged-ts-fp32")
	const most = 300 << 10
	r := compare(t, a, b, Options{MaxMemory: most})
	if first := r.First(); first != nil || len(r.Skipped) > 0 {
		t.Errorf("%+v, %q", first, r.Skipped)
	}
	inside := map[string]bool{}
	for _, row := range r.Rows {
		if len(row.Path) > 0 {
			inside[row.Block] = true
		}
	}
	for _, block := range []string{"layer 0 attention", "layer 0 mlp", "layer 1 norm", "layer 1 attention",
		"layer 1 mlp", "head"} {
		if !inside[block] {
			t.Errorf("no value of %s was compared: %v", block, inside)
		}
	}
	if r.Peak > most || r.Pieces < 4 {
		t.Errorf("%d bytes were held at once in %d pieces", r.Peak, r.Pieces)
	}
}

// TestWrongBranch changes a norm inside both branches and expects the first value out of tolerance with its branch.
func TestWrongBranch(t *testing.T) {
	a, b := read(t, "llama-merged-ts-fp32"), patched(t, "llama-merged-ts-fp32")
	b.Graph.Walk(func(g *onnx.Graph) {
		norms := 0
		for _, n := range g.Nodes {
			if n.OpType == "AddRMSNorm" {
				if norms++; norms == 3 {
					n.SetAttr(onnx.FloatAttr("epsilon", 0.1))
				}
			}
		}
	})
	first := compare(t, a, b, Options{}).First()
	if first == nil || first.Block != "layer 1 norm" || !strings.Contains(first.Where(), `_branch of "choose"`) ||
		first.Before == nil || *first.Before > 1e-5 {
		t.Errorf("%+v", first)
	}
}

// running is a model with a Loop or a Scan over the rows of x. The first body adds a row to a state and scales the sum;
// from the iteration wrong on, the scale differs.
func running(op string, wrong float64) *onnx.Model {
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, "rows", 4)
	zero := b.Floats([]int64{4}, 0, 0, 0, 0)
	body := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph("body")}
	var row, state, number *onnx.Value
	if op == "Loop" {
		number = body.Input("number", onnx.Int64)
		going := body.Input("going", onnx.Bool)
		state = body.Input("state", onnx.Float, 4)
		row = body.Op("Gather", x, number)
		body.Output(body.Op("Identity", going))
	} else {
		count := body.Input("count", onnx.Int64)
		state = body.Input("state", onnx.Float, 4)
		row = body.Input("row", onnx.Float, 4)
		number = body.Op("Add", count, 1)
		body.Output(number)
	}
	late := body.Op("Cast", body.Op("Greater", number, b.Ints(1)), onnx.IntAttr("to", int64(onnx.Float)))
	scale := body.Op("Add", 1.0, body.Op("Mul", late, wrong))
	next := body.Op("Tanh", body.Op("Mul", body.Op("Add", state, row), scale))
	body.Output(next)
	if op == "Loop" {
		rows := b.Op("Gather", b.Op("Shape", x), 0)
		b.Output(b.Ops(1, "Loop", rows, nil, zero, onnx.GraphAttr("body", body.Graph))[0])
		return b.Model
	}
	out := b.Ops(2, "Scan", b.Ints(0), zero, x, onnx.GraphAttr("body", body.Graph), onnx.IntAttr("num_scan_inputs", 1),
		onnx.IntsAttr("scan_input_directions", []int64{1}))
	b.Output(out[1])
	return b.Model
}

// TestIterations finds the iteration of a loop at which two models diverge.
func TestIterations(t *testing.T) {
	for op, at := range map[string]int{"Loop": 2, "Scan": 1} { // the Scan counts from 1
		r := compare(t, running(op, 0.5), running(op, 0.5), Options{})
		if first := r.First(); first != nil || len(r.Skipped) > 0 {
			t.Fatalf("%s: %+v, %q", op, first, r.Skipped)
		}
		inputs, err := golden.RandomInputs(running(op, 0.5), 1, map[string]int64{"rows": 5})
		if err != nil {
			t.Fatal(err)
		}
		a, b := running(op, 0.5), running(op, 0.25)
		r, err = NewComparer(a, b, Options{OpenA: evaluator, OpenB: evaluator}).Run(inputs, inputs, 0)
		if err != nil {
			t.Fatal(err)
		}
		first := r.First()
		if first == nil || len(first.Path) != 1 || first.Path[0].Iteration == nil {
			t.Fatalf("%s: %+v, not looked into %q", op, first, r.Skipped)
		}
		if *first.Path[0].Iteration != at || first.Op != "Mul" {
			t.Errorf("%s: first %+v in %s", op, first, first.Where())
		}
		rows := 0
		for _, row := range r.Rows {
			if len(row.Path) == 0 {
				continue
			}
			rows++
			if row.Iterations != 5 {
				t.Errorf("%s: %q has %d iterations", op, row.Value, row.Iterations)
			}
			if row.Op == "Tanh" && (row.FirstOut == nil || *row.FirstOut != at || *row.Path[0].Iteration < at) {
				t.Errorf("%s: %+v of %s", op, row, row.Where())
			}
		}
		if rows < 5 {
			t.Errorf("%s: %d values inside", op, rows)
		}
	}
}

// routedInside is the router's model in a branch, or in a loop of two iterations that sums the results.
func routedInside(op string, nudge float32) *onnx.Model {
	b := onnxtest.New(21)
	x := b.Input("x", onnx.Float, "n", 4)
	if op == "If" {
		branch := func(name string) *onnx.Attribute {
			g := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph(name)}
			g.Output(routed(g, x, nudge))
			return onnx.GraphAttr(name, g.Graph)
		}
		holds := b.Op("Greater", b.Op("ReduceMax", x, onnx.IntAttr("keepdims", 0)), -1.0)
		b.Output(b.Op("If", holds, branch("then_branch"), branch("else_branch")))
		return b.Model
	}
	body := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph("body")}
	body.Input("number", onnx.Int64)
	going, sum := body.Input("going", onnx.Bool), body.Input("sum", onnx.Float, "n", 2)
	body.Output(body.Op("Identity", going))
	body.Output(body.Op("Add", sum, routed(body, x, nudge)))
	b.Output(b.Op("Loop", 2, nil, b.Op("Mul", b.Op("Slice", x, b.Ints(0), b.Ints(2), b.Ints(1)), 0.0),
		onnx.GraphAttr("body", body.Graph)))
	return b.Model
}

// TestRouterTiesInside makes tied tokens in a branch or loop follow the first model's experts.
func TestRouterTiesInside(t *testing.T) {
	inputs := []*onnx.Tensor{onnx.NewFloat32s("x", []int64{2, 4}, []float32{1, 0.5, 0.5 - 1e-6, 0, 1, 0.5, 0.2, 0})}
	for op, times := range map[string]int{"If": 1, "Loop": 2} {
		for _, follow := range []bool{false, true} {
			o := Options{OpenA: evaluator, OpenB: evaluator, RouterTies: follow}
			r, err := NewComparer(routedInside(op, 0), routedInside(op, 2e-6), o).Run(inputs, inputs, 0)
			if err != nil {
				t.Fatal(err)
			}
			if golden.Passed(r.Outputs) != follow || r.ties() != times || len(r.Skipped) > 0 {
				t.Errorf("%s, ties followed %v: passed %v, %d ties, not looked into %q", op, follow,
					golden.Passed(r.Outputs), r.ties(), r.Skipped)
			}
		}
	}
}

// TestOtherWay checks the names of bodies that cannot be compared: a branch that only one model takes, and a loop that
// ends earlier in one.
func TestOtherWay(t *testing.T) {
	branches := func(least float64) *onnx.Model {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, 4)
		attr := func(name, op string) *onnx.Attribute {
			g := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph(name)}
			g.Output(g.Op(op, x))
			return onnx.GraphAttr(name, g.Graph)
		}
		most := b.Op("ReduceMax", x, onnx.IntAttr("keepdims", 0))
		b.Output(b.Op("If", b.Op("Greater", most, least), attr("then_branch", "Exp"), attr("else_branch", "Neg")))
		return b.Model
	}
	r := compare(t, branches(-100), branches(100), Options{})
	if len(r.Skipped) != 1 || !strings.Contains(r.Skipped[0], "model takes then_branch and the second else_") {
		t.Errorf("%q", r.Skipped)
	}
	loop := func(times int) *onnx.Model {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, 4)
		body := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph("body")}
		body.Input("number", onnx.Int64)
		going, state := body.Input("going", onnx.Bool), body.Input("state", onnx.Float, 4)
		body.Output(body.Op("Identity", going))
		body.Output(body.Op("Sin", state))
		b.Output(b.Op("Loop", times, nil, x, onnx.GraphAttr("body", body.Graph)))
		return b.Model
	}
	r = compare(t, loop(2), loop(3), Options{})
	if len(r.Skipped) != 1 || !strings.Contains(r.Skipped[0], "ends after 2 iterations in the first model") {
		t.Errorf("%q", r.Skipped)
	}
}
