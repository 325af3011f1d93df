package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// nested returns an attribute with the graph that body writes.
func (b *builder) nested(name string, body func(s *builder)) *onnx.Attribute {
	g := b.Graph.NewSubgraph(name)
	body(&builder{&onnxtest.Builder{Model: b.Model, Graph: g}})
	return onnx.GraphAttr(name, g)
}

func TestIf(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	cond := b.input("cond", onnx.Bool, "")
	then := b.nested("then_branch", func(s *builder) {
		s.Output(s.Op("Relu", x))
		s.Output(s.Op("Shape", x))
	})
	other := b.nested("else_branch", func(s *builder) {
		s.Output(s.Op("Concat", x, x, onnx.IntAttr("axis", 2)))
		s.Output(s.Op("Shape", s.Op("Neg", x)))
	})
	out := b.Ops(2, "If", cond, then, other)
	taken := b.Ops(2, "If", b.Op("Equal", b.Ints(1), b.Ints(2)), then, other)
	f := Analyze(b.Model)
	wantShapes(t, f, out[0], "float32[2 3 -1][5 11 -1]")
	wantShapes(t, f, b.Op("Relu", out[1]), "undefined ?") // made later
	if v, ok := f.Known(out[1], 0); !ok || v.I[1] != 3 {
		t.Error("both branches give the same shape")
	}
	wantShapes(t, f, taken[0], "float32[2 3 16][5 11 16]")
}

func TestLoop(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	var inner *onnx.Value
	body := b.nested("body", func(s *builder) {
		s.input("i", onnx.Int64, "")
		c := s.input("c", onnx.Bool, "")
		a := s.Graph.AddInput("a", onnx.Type{})
		grows := s.Graph.AddInput("grows", onnx.Type{})
		inner = s.Op("Add", a, x)
		s.Output(c)
		s.Output(inner)
		s.Output(s.Op("Concat", grows, x, onnx.IntAttr("axis", 1)))
		s.Output(s.Op("ReduceSum", a, b.Ints(-1), onnx.IntAttr("keepdims", 0)))
	})
	out := b.Ops(3, "Loop", 7, nil, x, x, body)
	f := Analyze(b.Model)
	wantShapes(t, f, inner, "float32[2 3 8][5 11 8]")
	wantShapes(t, f, out[0], "float32[2 3 8][5 11 8]")
	wantShapes(t, f, out[1], "float32[2 -1 8][5 -1 8]")
	if rank, _ := f.Rank(out[2]); rank != 3 {
		t.Errorf("a scan output has the rank %d", rank)
	}
}

func TestScan(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	state := b.input("state", onnx.Float, "batch 8")
	body := b.nested("body", func(s *builder) {
		h, v := s.Graph.AddInput("h", onnx.Type{}), s.Graph.AddInput("v", onnx.Type{})
		n := s.Op("Add", h, v)
		s.Output(n)
		s.Output(s.Op("Concat", n, n, onnx.IntAttr("axis", 1)))
	})
	out := b.Ops(2, "Scan", state, x, body, onnx.IntAttr("num_scan_inputs", 1),
		onnx.IntsAttr("scan_input_axes", []int64{1}),
		onnx.IntsAttr("scan_output_axes", []int64{1}))
	f := Analyze(b.Model)
	wantShapes(t, f, out[0], "float32[2 8][5 8]")
	wantShapes(t, f, out[1], "float32[2 3 16][5 11 16]")
}

func TestFunctions(t *testing.T) {
	b := newBuilder(20)
	fn := onnx.NewFunction("vendor", "Heads", "", 20)
	fn.Attributes = []string{"size"}
	fb := &onnxtest.Builder{Graph: fn.Body}
	arg := fn.Body.AddInput("arg", onnx.Type{})
	size := fn.Body.NewValue("size")
	fn.Body.AddNode("Constant", nil, []*onnx.Value{size}, onnx.RefAttr("value_ints", onnx.AttrInts, "size"))
	res := fb.Op("Reshape", arg, fb.Op("Concat", fb.Op("Shape", arg, onnx.IntAttr("end", 2)), size,
		onnx.IntAttr("axis", 0)))
	same := fb.Op("Neg", res)
	fn.Body.AddOutput(same)
	b.Model.Functions = append(b.Model.Functions, fn)
	x := b.input("x", onnx.Float, "batch seq 64")
	y := b.Op("vendor:Heads", x, onnx.IntsAttr("size", []int64{4, 16}))
	z := b.Op("vendor:Heads", b.Op("Cast", x, onnx.IntAttr("to", int64(onnx.Float16))),
		onnx.IntsAttr("size", []int64{8, 8}))

	idle := onnx.NewFunction("vendor", "Idle", "", 20)
	ib := &onnxtest.Builder{Graph: idle.Body}
	iv := ib.Op("Shape", idle.Body.AddInput("arg", onnx.Type{}))
	idle.Body.AddOutput(iv)
	again := onnx.NewFunction("vendor", "Again", "", 20)
	ab := &onnxtest.Builder{Graph: again.Body}
	again.Body.AddOutput(ab.Op("vendor:Again", again.Body.AddInput("arg", onnx.Type{})))
	b.Model.Functions = append(b.Model.Functions, idle, again)
	endless := b.Op("vendor:Again", x)

	f := Analyze(b.Model)
	wantShapes(t, f, y, "float32[2 3 4 16][5 11 4 16]")
	wantShapes(t, f, z, "float16[2 3 8 8][5 11 8 8]")
	wantShapes(t, f, same, "undefined[2 3 -1 -1][5 11 -1 -1]") // the facts that both calls share
	wantShapes(t, f, iv, "int64[-1]")
	wantShapes(t, f, endless, "undefined ?")
}
