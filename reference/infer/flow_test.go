package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// nested reads a model with graphs in its nodes, which have no constructor, from its parts: body makes each graph.
func (b *builder) nested(name string, body func(s *builder)) *onnx.Attribute {
	g := *onnx.New(10, 20).Graph
	g.Parent, g.Name = b.g, name
	s := &builder{b.m, &g}
	body(s)
	return &onnx.Attribute{Name: name, Type: onnx.AttrGraph, Graph: &g}
}

func TestIf(t *testing.T) {
	b := newBuilder(20)
	x := b.input("x", onnx.Float, "batch seq 8")
	cond := b.input("cond", onnx.Bool, "")
	then := b.nested("then_branch", func(s *builder) {
		s.g.AddOutput(s.op("Relu", in(x)))
		s.g.AddOutput(s.op("Shape", in(x)))
	})
	other := b.nested("else_branch", func(s *builder) {
		s.g.AddOutput(s.op("Concat", in(x, x), onnx.IntAttr("axis", 2)))
		s.g.AddOutput(s.op("Shape", in(s.op("Neg", in(x)))))
	})
	out := b.ops("If", in(cond), 2, then, other)
	taken := b.ops("If", in(b.op("Equal", in(b.ints(1), b.ints(2)))), 2, then, other)
	f := Analyze(b.m)
	wantShapes(t, f, out[0], "float32[2 3 -1][5 11 -1]")
	wantShapes(t, f, b.op("Relu", in(out[1])), "undefined ?") // made later
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
		a := s.g.AddInput("a", onnx.Type{})
		grows := s.g.AddInput("grows", onnx.Type{})
		inner = s.op("Add", in(a, x))
		s.g.AddOutput(c)
		s.g.AddOutput(inner)
		s.g.AddOutput(s.op("Concat", in(grows, x), onnx.IntAttr("axis", 1)))
		s.g.AddOutput(s.op("ReduceSum", in(a, b.ints(-1)), onnx.IntAttr("keepdims", 0)))
	})
	out := b.ops("Loop", in(b.scalar(7), nil, x, x), 3, body)
	f := Analyze(b.m)
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
		h, v := s.g.AddInput("h", onnx.Type{}), s.g.AddInput("v", onnx.Type{})
		n := s.op("Add", in(h, v))
		s.g.AddOutput(n)
		s.g.AddOutput(s.op("Concat", in(n, n), onnx.IntAttr("axis", 1)))
	})
	out := b.ops("Scan", in(state, x), 2, body, onnx.IntAttr("num_scan_inputs", 1), onnx.IntsAttr("scan_input_axes", []int64{1}),
		onnx.IntsAttr("scan_output_axes", []int64{1}))
	f := Analyze(b.m)
	wantShapes(t, f, out[0], "float32[2 8][5 8]")
	wantShapes(t, f, out[1], "float32[2 3 16][5 11 16]")
}

func TestFunctions(t *testing.T) {
	b := newBuilder(20)
	fn := onnx.NewFunction("vendor", "Heads", "", 20)
	fn.Attributes = []string{"size"}
	fb := &builder{b.m, fn.Body}
	arg := fn.Body.AddInput("arg", onnx.Type{})
	size := fn.Body.NewValue("size")
	fn.Body.AddNode("Constant", nil, in(size), onnx.RefAttr("value_ints", onnx.AttrInts, "size"))
	res := fb.op("Reshape", in(arg, fb.op("Concat", in(fb.op("Shape", in(arg), onnx.IntAttr("end", 2)), size), onnx.IntAttr("axis", 0))))
	same := fb.op("Neg", in(res))
	fn.Body.AddOutput(same)
	b.m.Functions = append(b.m.Functions, fn)
	x := b.input("x", onnx.Float, "batch seq 64")
	y := b.op("vendor:Heads", in(x), onnx.IntsAttr("size", []int64{4, 16}))
	z := b.op("vendor:Heads", in(b.op("Cast", in(x), onnx.IntAttr("to", int64(onnx.Float16)))), onnx.IntsAttr("size", []int64{8, 8}))

	idle := onnx.NewFunction("vendor", "Idle", "", 20)
	ib := &builder{b.m, idle.Body}
	iv := ib.op("Shape", in(idle.Body.AddInput("arg", onnx.Type{})))
	idle.Body.AddOutput(iv)
	again := onnx.NewFunction("vendor", "Again", "", 20)
	ab := &builder{b.m, again.Body}
	again.Body.AddOutput(ab.op("vendor:Again", in(again.Body.AddInput("arg", onnx.Type{}))))
	b.m.Functions = append(b.m.Functions, idle, again)
	endless := b.op("vendor:Again", in(x))

	f := Analyze(b.m)
	wantShapes(t, f, y, "float32[2 3 4 16][5 11 4 16]")
	wantShapes(t, f, z, "float16[2 3 8 8][5 11 8 8]")
	wantShapes(t, f, same, "undefined[2 3 -1 -1][5 11 -1 -1]") // what both calls have in common
	wantShapes(t, f, iv, "int64[-1]")
	wantShapes(t, f, endless, "undefined ?")
}
