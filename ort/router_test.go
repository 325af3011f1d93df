//go:build cgo

package ort_test

import (
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestRouterSigmoid compares the scores of the router's kernel with onnxruntime's Sigmoid, bit by bit: if they round
// differently, ties of large scores choose other experts.
func TestRouterSigmoid(t *testing.T) {
	if runtime.GOARCH != "amd64" || orttest.CUDA() || os.Getenv("MOJO_CPU_ISA") == "portable" {
		t.Skip("the kernel computes what onnxruntime does on x86 processors with FMA")
	}
	b := onnxtest.New(20)
	b.Model.IRVersion = 10
	b.Model.ImportOpset("mojo", 1)
	x := b.Input("x", onnx.Float, "n", 1)
	b.Output(b.Op("Sigmoid", x))
	b.Output(b.Ops(2, "mojo:TopKRouter", x, onnx.IntAttr("top_k", 1), onnx.StringAttr("score", "sigmoid"),
		onnx.StringAttr("order", "score_first"), onnx.IntAttr("renormalize", 0), onnx.IntAttr("groups", 1),
		onnx.IntAttr("group_top_k", 1), onnx.StringAttr("group_score", "max"), onnx.FloatAttr("excluded_score", 0),
		onnx.FloatAttr("epsilon", 0), onnx.FloatAttr("scale", 1))[0])
	model, err := onnx.Marshal(b.Model)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.OpenBytes(model, "", ort.WithLibrary(orttest.Library(t)),
		ort.WithKernelLibrary(orttest.Kernels(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list := []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, 1e-40, 3e38, -3e38, 17.89196}
	for x := -40.0; x < 40; x += 0x1p-11 {
		list = append(list, x)
	}
	given, err := reference.NewFloats(onnx.Float, []int{len(list), 1}, list).ToONNX("x")
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Run([]*onnx.Tensor{given})
	if err != nil {
		t.Fatal(err)
	}
	want, err1 := reference.FromONNX(out[0])
	got, err2 := reference.FromONNX(out[1])
	if err1 != nil || err2 != nil || len(want.F) != len(list) || len(got.F) != len(list) {
		t.Fatalf("%v, %v: %d and %d scores of %d", err1, err2, len(want.F), len(got.F), len(list))
	}
	for i, w := range want.F {
		if g := got.F[i]; g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
			t.Fatalf("the score of %.9g is %.9g, and onnxruntime's sigmoid %.9g", list[i], g, w)
		}
	}
}
