package attacks_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// rowsOfZeros fills every second row with zeros.
func rowsOfZeros(name string) trial {
	return trial{fill: map[string]func(int) float64{name: func(i int) float64 {
		return float64(i/width%2) * (float64(i%5) - 1.75)
	}}}
}

// halved returns the halves of heads with 8 channels.
func (b *maker) halved(x *onnx.Value) (lower, upper *onnx.Value) {
	lower = b.Op("Slice", x, []int64{0}, []int64{4}, []int64{-1})
	return lower, b.Op("Slice", x, []int64{4}, []int64{1 << 62}, []int64{-1})
}

// sigmoidRouter chooses experts by sigmoids, and divides by their sum plus DeepSeek's epsilon.
func (b *maker) sigmoidRouter(shift float64) {
	x := b.input("x", "seq", width)
	logits := b.Op("Add", b.Op("MatMul", x, b.weight(width, 8)), b.number(shift))
	top := b.Ops(2, "TopK", b.Op("Sigmoid", logits), []int64{2}, last())
	w := b.Op("Div", top[0], b.Op("Add", b.Op("ReduceSum", top[0], []int64{-1}), b.number(1e-20)))
	b.Output(b.experts(x, w, top[1], b.swiglu))
}

// blocks are rare forms that are fused, with numbers at which the op must equal the nodes.
var blocks = []attack{
	{name: "a norm without epsilon", at: rowsOfZeros("x"), write: func(b *maker) {
		x := b.rows("x")
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1}, onnx.IntAttr("keepdims", 1))
		b.Output(b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", mean)), b.weight(width)))
	}},
	{name: "a norm with an epsilon of 0", at: rowsOfZeros("x"), write: func(b *maker) {
		b.Output(b.norm(b.rows("x"), b.number(0)))
	}},
	{name: "a norm of a sum without epsilon", at: rowsOfZeros("x"), write: func(b *maker) {
		s := b.Op("Add", b.rows("x"), b.rows("x2"))
		mean := b.Op("ReduceMean", b.Op("Mul", s, s), []int64{-1}, onnx.IntAttr("keepdims", 1))
		b.Output(s)
		b.Output(b.Op("Mul", b.Op("Div", s, b.Op("Sqrt", mean)), b.weight(width)))
	}},
	{name: "a rotation backwards", write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		b.Output(b.Op("Sub", b.Op("Mul", x, cos), b.Op("Mul", b.turned(x, 8), sin)))
	}},
	{name: "a rotation backwards by the other sign", write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		lower, upper := b.halved(x)
		turned := b.Op("Concat", upper, b.Op("Neg", lower), last())
		b.Output(b.Op("Add", b.Op("Mul", x, cos), b.Op("Mul", turned, sin)))
	}},
	{name: "a rotation backwards by halves", write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		c, _ := b.halved(cos)
		s, _ := b.halved(sin)
		lower, upper := b.halved(x)
		b.Output(b.Op("Concat", b.Op("Add", b.Op("Mul", lower, c), b.Op("Mul", upper, s)),
			b.Op("Sub", b.Op("Mul", upper, c), b.Op("Mul", lower, s)), last()))
	}},
	{name: "a rotation backwards by pairs", write: func(b *maker) {
		x := b.input("x", "batch", 2, "seq", 8)
		cos, sin := b.angles(b.size(x, 2), 4)
		c, _ := b.halved(cos)
		s, _ := b.halved(sin)
		two := func(from int64) *onnx.Value {
			return b.Op("Slice", x, []int64{from}, []int64{1 << 62}, []int64{-1}, []int64{2})
		}
		even, odd := two(0), two(1)
		first := b.Op("Add", b.Op("Mul", even, c), b.Op("Mul", odd, s))
		second := b.Op("Sub", b.Op("Mul", odd, c), b.Op("Mul", even, s))
		both := b.Op("Concat", b.Op("Unsqueeze", first, []int64{-1}), b.Op("Unsqueeze", second, []int64{-1}), last())
		b.Output(b.Op("Reshape", both, b.Op("Shape", x)))
	}},
}

func TestBlocks(t *testing.T) {
	for _, a := range blocks {
		a.same = true
		t.Run(a.name, a.run)
	}
}

// TestSigmoidRouters has routers whose choice depends on the last bit of the scores.
func TestSigmoidRouters(t *testing.T) {
	if runtime.GOARCH != "amd64" || orttest.CUDA() || os.Getenv("MOJO_CPU_ISA") == "portable" {
		t.Skip("the kernel computes what onnxruntime does on x86 processors with FMA")
	}
	for _, a := range []attack{
		{name: "a router whose scores are all 0", write: func(b *maker) { b.sigmoidRouter(-60) }},
		{name: "a router of few distinct scores", at: trial{sizes: map[string]int{"seq": 500}},
			write: func(b *maker) { b.sigmoidRouter(16.5) }},
	} {
		a.same = true
		t.Run(a.name, a.run)
	}
}
