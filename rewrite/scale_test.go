package rewrite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// deep is a chain of residual blocks, 30 nodes each.
func deep(blocks int) *onnx.Model {
	b := newBuilder(nil, 20, onnx.Float)
	x := b.input("x", "batch", "seq", 16)
	two, epsilon, axis := b.scalar(onnx.Float, 2), b.scalar(onnx.Float, 1e-6), b.ints(-1)
	norm := func(x, scale *onnx.Value) *onnx.Value { // constants shared by all, as exporters share them
		mean := b.op("ReduceMean", b.op("Pow", x, two), axis, onnx.IntAttr("keepdims", 1))
		return b.op("Mul", b.op("Mul", x, b.op("Reciprocal", b.op("Sqrt", b.op("Add", mean, epsilon)))), scale)
	}
	h := x
	for range blocks {
		h = b.op("Add", h, b.mlp(norm(h, b.weight("w", 16)), 16, 24))
		n := norm(h, b.weight("w", 16))
		for range 7 {
			n = b.op("Tanh", n)
		}
		h = b.op("Add", h, n)
	}
	b.output(h, "batch", "seq", 16)
	return b.m
}

// TestTimeIsLinear rewrites models of two sizes. The bound is wide, for busy machines: what is quadratic goes beyond it.
func TestTimeIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	took := map[int]time.Duration{}
	for _, blocks := range []int{350, 3500} {
		m := deep(blocks)
		nodes := len(m.Graph.Nodes)
		if err := onnx.Write(path, m); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		m, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		r := apply(t, m, WithVerify(VerifyOff))
		if err := onnx.Write(path+".out", m); err != nil {
			t.Fatal(err)
		}
		took[blocks] = time.Since(start)
		m.Close()
		t.Logf("%d nodes: %v, %d fused, %+v", nodes, took[blocks], r.Fused(), r.TimeMS)
		if want := 3 * blocks; r.Fused() != want {
			t.Errorf("%d fused, want %d", r.Fused(), want)
		}
	}
	if took[3500] > 40*took[350]+5*time.Second {
		t.Errorf("ten times the nodes took %v against %v", took[3500], took[350])
	}
}

func BenchmarkApply(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		m := deep(7)
		b.StartTimer()
		if _, err := ApplyDefaultKernels(m, Auto, AssumeAvailable()); err != nil {
			b.Fatal(err)
		}
	}
}
