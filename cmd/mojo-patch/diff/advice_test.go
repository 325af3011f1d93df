package diff

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestRandomNode distinguishes models whose results change from run to run from others.
func TestRandomNode(t *testing.T) {
	constant := func(b *onnxtest.Builder, training byte) *onnx.Value {
		mode, err := onnx.NewTensor("mode", onnx.Bool, nil, []byte{training})
		if err != nil {
			t.Fatal(err)
		}
		return b.Constant(mode)
	}
	for name, c := range map[string]struct {
		build  func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value
		random bool
	}{
		"none":    {func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value { return b.Op("Neg", x) }, false},
		"noise":   {func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value { return b.Op("RandomNormalLike", x) }, true},
		"dropout": {func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value { return b.Op("Dropout", x) }, false},
		"dropout that may train": {func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Dropout", x, 0.5, b.Input("mode", onnx.Bool))
		}, true},
		"dropout that does not train": {func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Dropout", x, 0.5, constant(b, 0))
		}, false},
		"dropout that trains": {func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Dropout", x, 0.5, constant(b, 1))
		}, true},
	} {
		b := onnxtest.New(20)
		b.Output(c.build(b, b.Input("x", onnx.Float, 4)))
		if got := firstNode(b.Model, isRandom) != nil; got != c.random {
			t.Errorf("%s: %v", name, got)
		}
	}
}
