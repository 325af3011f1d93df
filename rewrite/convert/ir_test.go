package convert

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestConstantsStay: initializers that are also inputs are constants in IR 3 and defaults in IR 4. Raising the opset,
// and the IR version with it, changes neither.
func TestConstantsStay(t *testing.T) {
	for ir, inputs := range map[int64]int{3: 1, 4: 2} {
		b := onnxtest.New(11)
		b.Model.IRVersion = ir
		x := b.Input("x", onnx.Float, "n", 4)
		w := b.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{4}, []float32{1, 2, 3, 4}))
		b.Output(b.Op("Add", x, w))
		w.IsInput = true
		b.Graph.Inputs = append(b.Graph.Inputs, w)
		if err := Opset(b.Model, 13); err != nil {
			t.Fatal(err)
		}
		if n := len(b.Graph.Inputs); n != inputs || w.IsConstant() != (ir == 3) || b.Model.IRVersion < 7 {
			t.Errorf("of IR %d: %d inputs, constant: %v, IR %d", ir, n, w.IsConstant(), b.Model.IRVersion)
		}
	}
}
