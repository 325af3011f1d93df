//go:build cgo

package ort_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// fused is a model with one RMSNorm of the domain mojo without a body, so that only a kernel can run it.
func fused(t *testing.T) string {
	m := onnx.New(10, 21)
	m.Graph.Name = "fused"
	m.ImportOpset("mojo", 1)
	ty := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "rows"}, {Value: 4}}}
	x := m.Graph.AddInput("x", ty)
	scale := m.Graph.AddInitializer(onnx.NewFloat32s("scale", []int64{4}, []float32{1, 2, 3, 4}))
	y := m.Graph.NewValue("y")
	y.SetType(ty)
	n := m.Graph.AddNode("RMSNorm", []*onnx.Value{x, scale}, []*onnx.Value{y},
		onnx.IntAttr("axis", -1), onnx.FloatAttr("epsilon", 1e-6), onnx.IntAttr("scale_after_cast", 0))
	n.Domain = "mojo"
	m.Graph.AddOutput(y)
	return write(t, m)
}

func TestKernelsRun(t *testing.T) {
	kernels := orttest.Kernels(t)
	path := fused(t)
	if _, err := ort.Open(path, ort.WithLibrary(orttest.Library(t))); err == nil {
		t.Error("the model runs without its kernels, so the test shows nothing")
	}
	for _, level := range []ort.Optimization{ort.OptimizeNone, ort.OptimizeAll} {
		for _, option := range []ort.Option{ort.WithKernels(), ort.WithKernelLibrary(kernels)} {
			s := open(t, path, option, ort.WithOptimization(level))
			out, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{1, 4}, []float32{3, -3, 3, 3})})
			if err != nil {
				t.Fatal(err)
			}
			b, _ := out[0].Bytes()
			for i, want := range []float64{1, -2, 3, 4} {
				got := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
				if math.Abs(got-want) > 1e-5 {
					t.Errorf("element %d is %g, want %g", i, got, want)
				}
			}
		}
	}
}

func TestParseOptimization(t *testing.T) {
	for _, name := range []string{"none", "basic", "extended", "all"} {
		if o, err := ort.ParseOptimization(name); err != nil || o.String() != name {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
	if _, err := ort.ParseOptimization("most"); err == nil {
		t.Error("an unknown level was accepted")
	}
}
