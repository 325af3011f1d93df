package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// after describes the processing of chosen scores. It is drawn before them, so that an edit does not change it.
type after struct {
	total   bool    // they are divided by their sum
	epsilon float64 // added to the sum
	scale   float64 // a factor, or 0
}

func newAfter(w *writer.Writer) after {
	return after{total: w.Chance(2), epsilon: writer.Choose(w, 0, 0, 1e-20, 1e-6),
		scale: writer.Choose(w, 0, 0, 0, 2.5, 1, 1.5)}
}

// scale writes the processing of the chosen scores.
func (r *routed) scale() {
	sum := func(x *onnx.Value, axis int64) *onnx.Value { return r.Reduce("ReduceSum", x, []int64{axis}, true) }
	last := r.LastAxis(2)
	switch {
	case r.outside("weights squared"):
		r.weights = r.Op("Mul", r.weights, r.weights)
	case r.k > 1 && r.outside("divided by the greatest weight"):
		r.weights = r.Op("Div", r.weights, r.Reduce("ReduceMax", r.weights, []int64{1}, true))
	case r.scores != nil && r.outside("divided by the magnitude of all scores"):
		r.weights = r.Op("Div", r.weights, sum(r.Op("Mul", r.scores, r.scores), last))
	case r.outside("weights of a shifted scale"):
		r.weights = r.Op("Add", r.weights, r.Floats(onnx.Float, []int{}, []float64{0.5}))
	case r.outside("divided by the sum over the tokens"):
		r.weights = r.Op("Div", r.weights, sum(r.weights, 0))
	case r.k > 1 && r.outside("divided by the first weight"):
		r.weights = r.Op("Div", r.weights, r.Op("Slice", r.weights, r.Ints(0), r.Ints(1), r.Ints(1)))
	case r.after.total && r.k > 1:
		d := sum(r.weights, last)
		if r.after.epsilon > 0 {
			d = r.add(d, r.Scalar(onnx.Float, r.after.epsilon))
		}
		if r.Chance(4) {
			r.weights = r.Product(r.weights, r.Op("Reciprocal", d))
		} else {
			r.weights = r.Op("Div", r.weights, d)
		}
	}
	if r.after.scale != 0 {
		r.weights = r.Product(r.weights, r.Scalar(onnx.Float, r.after.scale))
	}
	if r.k > 1 && r.outside("a scale for only one choice") {
		scales := make([]float64, r.k)
		for i := range scales {
			scales[i] = float64(1 + min(i, 1))
		}
		r.weights = r.Op("Mul", r.weights, r.Floats(onnx.Float, []int{r.k}, scales))
	}
}
