package page_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/mojo-patch/mojo-patch/trace/ranges"
)

// TestRangesShown opens the page about a model whose residual grows to 100,000 after a norm.
func TestRangesShown(t *testing.T) {
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, 1, 4)
	norm := b.Op("Div", x, b.Op("Sqrt", b.Op("Add", b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}), 1e-6)))
	b.Output(b.Op("Add", x, b.Op("Mul", norm, 99999.0)))
	w := trace.NewWatcher(b.Model, trace.WatchOptions{Open: evaluator})
	r := ranges.New()
	run, err := w.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{1, 4}, []float32{1, 1, -1, 1})}, r.Look(0))
	if err != nil {
		t.Fatal(err)
	}
	r.Finish(nil)
	p := &page.Ranges{Tool: "test", Model: "grown.onnx", Backend: "the evaluator", Inputs: "random", Cases: 1,
		MaxMemory: 1 << 30, Run: *run, Values: r}
	var html bytes.Buffer
	if err := p.Write(&html); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(html.String(), `class="off"><circle`) {
		t.Error("no part of the model is marked as one that overflows")
	}
	s := opened(t, html.String(), 390, 1800, true, []string{"Ranges of grown.onnx", "first to overflow float16",
		"which reaches 99999", "use apply --dtype float16 --safe to scale", "1e6", "2 of 8", "99999", "100 %"})
	if s.Marks < 2 {
		t.Errorf("%d marks", s.Marks)
	}
}
