package probe

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestReadings reads layers of a graph. A layer of a known form gets the reading with its own weights; only layers of
// other forms are read again.
func TestReadings(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "n", 2)
	layer := func(op string, factor float32) (w, y *onnx.Value) {
		w = b.Input("", onnx.Float, 2)
		y = b.Op(op, b.Op("Mul", x, b.Floats([]int64{1}, factor)), w)
		b.Output(y)
		return w, y
	}
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	budget := g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1})
	known, reads := Readings[onnx.Value]{}, 0
	read := func(most int, w, y *onnx.Value) *onnx.Value {
		var f *Form
		f = NewForm(g, most, func(v *onnx.Value) bool {
			if c := v.Constant(); c != nil {
				f.Tensor(c)
			}
			return v.Producer == nil
		})
		f.Value(y)
		type values = func(*onnx.Value) *onnx.Value
		found, _ := known.Of(f, budget, func() (*onnx.Value, *reason.Reason) {
			reads++
			return w, nil
		}, func(of *onnx.Value, _ *reason.Reason, stands values) (*onnx.Value, *reason.Reason, bool) {
			return stands(of), nil, true
		})
		return found
	}
	for _, test := range []struct {
		name   string
		op     string
		factor float32
		most   int
		reads  int
	}{
		{"the first", "Add", 2, 10, 1},
		{"the same form", "Add", 2, 10, 1},
		{"another op", "Sub", 2, 10, 2},
		{"another number", "Add", 3, 10, 3},
		{"too long a form", "Add", 2, 2, 4},
		{"the first form again", "Add", 2, 10, 4},
	} {
		w, y := layer(test.op, test.factor)
		if got := read(test.most, w, y); got != w || reads != test.reads {
			t.Errorf("%s: %v after %d readings, want %v after %d", test.name, got, reads, w, test.reads)
		}
	}
}
