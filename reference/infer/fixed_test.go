package infer

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestDeclareFixed declares the width of a cache that an op fixes, and leaves lengths open.
func TestDeclareFixed(t *testing.T) {
	b := onnxtest.New(21)
	past := []*onnx.Value{b.Input("past_k", onnx.Float, "batch", 2, "past", "width"),
		b.Input("past_v", onnx.Float, "batch", 2, "past", "width")}
	out := b.Ops(3, "com.microsoft:GroupQueryAttention", b.Input("qkv", onnx.Float, "batch", "queries", 64), nil, nil,
		past[0], past[1], b.Input("lengths", onnx.Int32, "batch"), b.Input("total", onnx.Int32),
		onnx.IntAttr("num_heads", 4), onnx.IntAttr("kv_num_heads", 2))
	b.Output(out[0])
	DeclareFixed(b.Model)
	for _, v := range past {
		decl, _ := v.Type()
		if d := decl.Dims; d[3].Value != 8 || d[3].Param != "" || d[2].Param != "past" || d[0].Param != "batch" {
			t.Errorf("%s is declared as %v", v.Name, d)
		}
	}
}
