package golden_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestInner measures values inside of a model by their greatest magnitude, and by the model's precision.
func TestInner(t *testing.T) {
	given, err := golden.ParseTolerances([]string{"x:0.5"}, []string{"0.25"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tolerances golden.Tolerances
		name       string
		dt, half   onnx.DataType
		want       golden.Tolerance
	}{
		{dt: onnx.Float, want: golden.Tolerance{ULP: 1e-4 * (1 << 23), Rel: 1e-4}},
		{dt: onnx.Float16, want: golden.Tolerance{ULP: 4}},
		{dt: onnx.Int64, want: golden.Tolerance{}},
		{dt: onnx.Float, half: onnx.Float16, want: golden.Tolerance{ULP: 4 * (1 << 13)}},
		{dt: onnx.Float, half: onnx.BFloat16, want: golden.Tolerance{ULP: 4 * (1 << 16)}},
		{dt: onnx.Float16, half: onnx.Float16, want: golden.Tolerance{ULP: 4}},
		{dt: onnx.Int64, half: onnx.Float16, want: golden.Tolerance{}},
		{tolerances: given, name: "x", dt: onnx.Float16, half: onnx.Float16, want: golden.Tolerance{Abs: 0.5, Rel: 0.25}},
		{tolerances: given, name: "y", dt: onnx.Float16, want: golden.Tolerance{ULP: 4, Rel: 0.25}},
	} {
		if got := c.tolerances.Inner(c.name, c.dt, c.half); got != c.want {
			t.Errorf("%q %s in a model of %s: %s, want %s", c.name, c.dt, c.half, got, c.want)
		}
	}
}
