package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// after describes the processing of chosen scores. It is drawn before them, so that an edit does not change it.
type after struct {
	total   bool    // they are divided by their sum
	epsilon float64 // added to the sum
	scale   float64 // a factor, or 0
}

func newAfter(w *writer) after {
	return after{total: w.chance(2), epsilon: choose(w, 0, 0, 1e-20, 1e-6), scale: choose(w, 0, 0, 0, 2.5, 1, 1.5)}
}

// scale writes the processing of the chosen scores.
func (r *routed) scale() {
	sum := func(x *onnx.Value, axis int64) *onnx.Value { return r.reduce("ReduceSum", x, []int64{axis}, true) }
	last := r.lastAxis(2)
	switch {
	case r.outside("weights squared"):
		r.weights = r.op("Mul", r.weights, r.weights)
	case r.k > 1 && r.outside("divided by the greatest weight"):
		r.weights = r.op("Div", r.weights, r.reduce("ReduceMax", r.weights, []int64{1}, true))
	case r.scores != nil && r.outside("divided by the magnitude of all scores"):
		r.weights = r.op("Div", r.weights, sum(r.op("Mul", r.scores, r.scores), last))
	case r.outside("weights of a shifted scale"):
		r.weights = r.op("Add", r.weights, r.floats(onnx.Float, []int{}, []float64{0.5}))
	case r.outside("divided by the sum over the tokens"):
		r.weights = r.op("Div", r.weights, sum(r.weights, 0))
	case r.k > 1 && r.outside("divided by the first weight"):
		r.weights = r.op("Div", r.weights, r.op("Slice", r.weights, r.ints(0), r.ints(1), r.ints(1)))
	case r.after.total && r.k > 1:
		d := sum(r.weights, last)
		if r.after.epsilon > 0 {
			d = r.add(d, r.scalar(onnx.Float, r.after.epsilon))
		}
		if r.chance(4) {
			r.weights = r.product(r.weights, r.op("Reciprocal", d))
		} else {
			r.weights = r.op("Div", r.weights, d)
		}
	}
	if r.after.scale != 0 {
		r.weights = r.product(r.weights, r.scalar(onnx.Float, r.after.scale))
	}
	if r.k > 1 && r.outside("a scale for only one choice") {
		scales := make([]float64, r.k)
		for i := range scales {
			scales[i] = float64(1 + min(i, 1))
		}
		r.weights = r.op("Mul", r.weights, r.floats(onnx.Float, []int{r.k}, scales))
	}
}
