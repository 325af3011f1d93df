package ranges

import (
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/trace"
)

// evaluated runs pieces in the built-in evaluator.
type evaluated struct{ *reference.Evaluator }

func (e evaluated) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) { return e.RunTensors(inputs) }
func (e evaluated) Close() error                                      { return nil }

func evaluator(m *onnx.Model) (trace.Runner, error) {
	e, err := reference.New(m, reference.Options{})
	return evaluated{e}, err
}

// watched runs a model on cases within so much memory.
func watched(t *testing.T, m *onnx.Model, memory int64, cases ...[]*onnx.Tensor) (*Ranges, *trace.Watched) {
	t.Helper()
	r, all := New(), &trace.Watched{}
	w := trace.NewWatcher(m, trace.WatchOptions{Open: evaluator, MaxMemory: memory})
	for i, inputs := range cases {
		run, err := w.Run(inputs, r.Look(i))
		if err != nil {
			t.Fatal(err)
		}
		all.Add(run)
	}
	if r.Finish(nil); len(all.Skipped) > 0 {
		t.Errorf("not looked into: %q", all.Skipped)
	}
	return r, all
}

func (r *Ranges) row(t *testing.T, op string) *Row {
	t.Helper()
	for _, row := range r.Rows {
		if row.Op == op {
			return row
		}
	}
	t.Fatalf("no value of %s", op)
	return nil
}

func vector(v ...float32) []*onnx.Tensor {
	return []*onnx.Tensor{onnx.NewFloat32s("x", []int64{1, int64(len(v))}, v)}
}

// TestResidual makes a residual grow to 100,000 in the second of two runs. The first run only nears the limit.
func TestResidual(t *testing.T) {
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, 1, 4)
	const k = 24999
	product := b.Op("MatMul", x, b.Floats([]int64{4, 4}, k, 0, 0, 0, 0, k, 0, 0, 0, 0, k, 0, 0, 0, 0, k))
	b.Output(b.Op("Add", x, product))
	r, _ := watched(t, b.Model, 0, vector(1, 0.5, -2, 1), vector(1, 2, 3, -4))
	sum := r.row(t, "Add")
	if sum.Greatest != 100000 || sum.Over != 2./8 || sum.Case != 1 || sum.Elements != 8 ||
		sum.Float16.Infinite != 2./8 || sum.BFloat16.Infinite != 0 || sum.BFloat16.Error == 0 {
		t.Errorf("%+v", sum)
	}
	if first := r.First(); first == nil || first.Op != "MatMul" || first.Greatest != 99996 {
		t.Errorf("first %+v", first)
	}
	if r.Overflows() != 2 || r.row(t, "input").Over != 0 || r.Worst(1)[0] != sum {
		t.Errorf("%d overflow, worst %+v", r.Overflows(), r.Worst(1)[0])
	}
}

// TestVariance makes only the squares of a decomposed LayerNorm overflow.
func TestVariance(t *testing.T) {
	b := onnxtest.New(17)
	x := b.Input("x", onnx.Float, 1, 4)
	last := onnx.IntsAttr("axes", []int64{-1})
	centered := b.Op("Sub", x, b.Op("ReduceMean", x, last))
	variance := b.Op("ReduceMean", b.Op("Mul", centered, centered), last)
	b.Output(b.Op("Div", centered, b.Op("Sqrt", b.Op("Add", variance, 1e-5))))
	r, _ := watched(t, b.Model, 0, vector(310, -290, 310, -290))
	if first := r.First(); first == nil || first.Op != "Mul" || first.Greatest != 90000 || first.Over != 1 {
		t.Errorf("first %+v", first)
	}
	for _, row := range r.Rows {
		over := row.Op == "Mul" || row.Op == "ReduceMean" && row.Greatest > 100 || row.Op == "Add"
		if over != (row.Over > 0) {
			t.Errorf("%+v", row)
		}
	}
	r.Finish(map[string]bool{r.First().Value: true})
	if next := r.FirstIn16(); next == nil || next.Op != "ReduceMean" {
		t.Errorf("first that is not left in float32: %+v", next)
	}
}

// TestSmall counts the elements below the smallest subnormal, and those at or below half of it, which become zero.
func TestSmall(t *testing.T) {
	b := onnxtest.New(18)
	b.Output(b.Op("Neg", b.Input("x", onnx.Float, 1, 4)))
	r, _ := watched(t, b.Model, 0, vector(0, 1e-8, 4e-8, 1))
	row := r.row(t, "Neg")
	if row.Under != 0.5 || row.Float16.Zero != 0.25 || row.BFloat16.Zero != 0 || row.Over != 0 {
		t.Errorf("%+v", row)
	}
	r, _ = watched(t, b.Model, 0, vector(2049, 0, 0, 0),
		vector(float32(math.NaN()), float32(math.Inf(1)), 65519, 65520))
	row = r.row(t, "Neg") // 2049 lies between 2048 and 2050
	if row.NaN != 1 || row.Infinite != 1 || row.Over != 2./8 || row.Float16.Infinite != 1./8 || row.Greatest != 65520 {
		t.Errorf("%+v", row)
	}
	off := math.Hypot(1, 65519-65504) / math.Hypot(2049, 65519)
	if math.Abs(row.Float16.Error-off) > 1e-9 {
		t.Errorf("error %g, want %g", row.Float16.Error, off)
	}
}

// TestMasks counts numbers separately only if they mask scores.
func TestMasks(t *testing.T) {
	masked := func(given bool) *Ranges {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, 1, 4)
		mask := b.Op("Mul", b.Op("Cast", b.Op("Less", x, 0.0), onnx.IntAttr("to", int64(onnx.Float))), -3e38)
		b.Output(b.Op("Softmax", b.Op("Add", x, b.Op("Unsqueeze", mask, []int64{0}))))
		if given {
			b.Output(mask)
		}
		r, _ := watched(t, b.Model, 0, vector(1, -2, 3, 4))
		return r
	}
	r := masked(false)
	if r.First() != nil || r.row(t, "Mul").Masked != 0.25 {
		t.Errorf("%+v, %+v", r.First(), r.row(t, "Mul"))
	}
	if sum := r.row(t, "Add"); sum.Masked != 0.25 || sum.Greatest != 4 {
		t.Errorf("%+v", sum)
	}
	if first := masked(true).First(); first == nil || first.Op != "Mul" {
		t.Errorf("a mask that is an output: %+v", first)
	}
}

// TestLoop multiplies in a loop and expects the iteration with the greatest element.
func TestLoop(t *testing.T) {
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, 1, 2)
	body := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph("body")}
	body.Input("number", onnx.Int64)
	going, state := body.Input("going", onnx.Bool), body.Input("state", onnx.Float, 1, 2)
	body.Output(body.Op("Identity", going))
	body.Output(body.Op("Tanh", body.Op("Mul", state, 300.0)))
	b.Output(b.Op("Neg", b.Op("Loop", 3, nil, x, onnx.GraphAttr("body", body.Graph))))
	r, run := watched(t, b.Model, 0, vector(1, 1000))
	first := r.First()
	if first == nil || first.Op != "Mul" || first.Greatest != 300000 || first.Elements != 6 || first.Over != 1./6 {
		t.Fatalf("%+v", first)
	}
	if len(first.Path) != 1 || *first.Path[0].Iteration != 0 || run.Pieces < 4 {
		t.Errorf("in %s, %d pieces", first.Where(), run.Pieces)
	}
}

// TestMemory expects the same ranges for a decoder of branches in little memory.
func TestMemory(t *testing.T) {
	m, err := onnx.Read(filepath.Join("..", "..", "models", "llama-merged-ts-fp32.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	inputs, err := golden.RandomInputs(m, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	const most = 100 << 10
	all, free := watched(t, m, 0, inputs)
	r, run := watched(t, m, most, inputs)
	if run.Peak > most || free.Peak < 4*most || run.Pieces < 2*free.Pieces {
		t.Errorf("%d bytes were held at once in %d pieces, %d in %d without a limit", run.Peak, run.Pieces, free.Peak,
			free.Pieces)
	}
	if len(r.Rows) < 150 || len(r.Rows) != len(all.Rows) {
		t.Fatalf("%d values, %d without a limit", len(r.Rows), len(all.Rows))
	}
	blocks := map[string]bool{}
	for i, row := range r.Rows {
		if blocks[row.Block] = true; !reflect.DeepEqual(row, all.Rows[i]) {
			t.Errorf("%+v, without a limit %+v", row, all.Rows[i])
		}
	}
	for _, block := range []string{trace.Inputs, trace.Embedding, "layer 0 attention", "layer 1 mlp", trace.Head} {
		if !blocks[block] {
			t.Errorf("no value of %s", block)
		}
	}
	if _, err := trace.NewWatcher(m, trace.WatchOptions{Open: evaluator, MaxMemory: 1000}).Run(inputs,
		New().Look(0)); err == nil {
		t.Error("1000 bytes were enough")
	}
}
