package attention_test

import (
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestAttentionDims refuses attention if nodes may broadcast its operands, which the op does not do: dimensions whose
// names differ, though they are equal in the worlds of shape inference.
func TestAttentionDims(t *testing.T) {
	dims := func(list ...any) []any { return list }
	for _, c := range []struct {
		name          string
		q, k, v, mask []any // the mask is added or, with two dimensions, used as a choice
		missed        string
	}{
		{"one batch", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 2, "l", 8), dims("b", 1, "s", "l"), ""},
		{"padding", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 2, "l", 8), dims("b", "l"), ""},
		{"a mask of one", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 2, "l", 8), dims(1, 1, 1, "l"), ""},
		{"keys of a batch of their own", dims("b", 2, "s", 8), dims("kb", 2, "l", 8), dims("kb", 2, "l", 8), nil,
			`the batch of "q" and of "k" may differ`},
		{"keys of one sequence", dims("b", 2, "s", 8), dims(1, 2, "l", 8), dims(1, 2, "l", 8), nil,
			"the scores are not products"},
		{"values of one head", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 1, "l", 8), nil,
			"the result is not a weighted sum"},
		{"a mask of a batch of its own", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 2, "l", 8),
			dims("mb", 1, "s", "l"), `the batch of "q" and of "mask" may differ`},
		{"a mask of rows of its own", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 2, "l", 8),
			dims("b", 1, "rows", "l"), `the rows of "q" and of "mask" may differ`},
		{"padding of a batch of its own", dims("b", 2, "s", 8), dims("b", 2, "l", 8), dims("b", 2, "l", 8),
			dims("mb", "l"), `the batch of "q" and of "mask" may differ`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := onnxtest.New(18)
			q, k := b.Input("q", onnx.Float, c.q...), b.Input("k", onnx.Float, c.k...)
			v := b.Input("v", onnx.Float, c.v...)
			s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
			s = b.Op("Mul", s, 0.35)
			switch len(c.mask) {
			case 2:
				is := b.Op("Cast", b.Input("mask", onnx.Int64, c.mask...), onnx.IntAttr("to", int64(onnx.Bool)))
				s = b.Op("Where", b.Op("Unsqueeze", is, []int64{1, 2}), s, -math.MaxFloat32)
			case 4:
				s = b.Op("Add", s, b.Input("mask", onnx.Float, c.mask...))
			}
			b.Output(b.Op("MatMul", b.Op("Softmax", s, onnx.IntAttr("axis", -1)), v))
			got := found(t, b.Model)
			if missed := strings.HasPrefix(got, "missed: "+c.missed); missed != (c.missed != "") {
				t.Errorf("%s, want %q", got, c.missed)
			}
		})
	}
}
