package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// routerForms are the forms of (*routed).router.
var routerForms = []string{"scores", "choice", "corrected", "groups", "one"}

// WriteRouter writes a router of a form, followed by experts of one product.
func WriteRouter(form string) func(w *writer.Writer) []*onnx.Value {
	return func(w *writer.Writer) []*onnx.Value {
		r := newRouted(w, form)
		e := r.Op("Gather", r.matrix(r.Type, r.experts, 5, r.hidden), r.ids)
		rows := r.Op("Squeeze", r.Op("MatMul", e, r.Op("Unsqueeze", r.x, r.Ints(1, 3))), r.Ints(3))
		return []*onnx.Value{r.combine(rows, r.weights, r.Type)}
	}
}

// router writes scores, the choice and the weights.
func (r *routed) router(form string) {
	if form == "groups" {
		r.experts, r.k = 8, writer.Choose(r.Writer, 2, 3)
	} else if form == "one" {
		r.k = 1
	}
	logits := r.logits()
	switch form {
	case "scores": // of all experts, then the choice
		r.scores = r.scored(logits)
		if r.weights, r.ids = r.top(r.scores); r.outside("scores of the next token") {
			r.weights = r.taken(r.nextRow(r.scores), r.ids)
		}
	case "choice": // scores of the chosen logits
		var values *onnx.Value
		if values, r.ids = r.top(logits); r.wrong("ids of another router") {
			_, ids := r.top(r.logits())
			values = r.taken(logits, ids)
		}
		if r.weights = r.scored(values); r.outside("weights less another function of the scores") {
			r.weights = r.Op("Sub", r.weights, r.Op("Exp", values))
		}
	case "corrected": // a number is added only for the choice
		r.scores = r.scored(logits)
		among := r.add(r.scores, r.random(onnx.Float, 0.03, r.experts))
		r.weights, r.ids = r.corrected(among, r.scores, true)
	case "groups": // of experts, some of which are left out
		r.scores = r.scored(logits)
		among, bias := r.scores, r.Chance(2)
		if bias {
			among = r.add(r.scores, r.random(onnx.Float, 0.03, r.experts))
		}
		r.weights, r.ids = r.corrected(r.grouped(among), r.scores, bias)
	case "one":
		r.weights, r.ids = r.best(logits)
	}
	r.scale()
}

// logits writes the product that the scores come from. Weights are small, so that no score is rounded to one or zero.
func (r *routed) logits() *onnx.Value {
	x, t := r.x, onnx.Float
	if r.Half() {
		if r.Chance(4) { // cast after the product
			t = r.Type
		} else {
			x = r.Cast(x, t)
		}
	}
	var y *onnx.Value
	switch r.Rand.IntN(4) {
	case 0:
		y = r.Op("Gemm", x, r.random(t, 0.15, r.experts, r.hidden), onnx.IntAttr("transB", 1))
	case 1:
		y = r.add(r.Op("MatMul", x, r.random(t, 0.15, r.hidden, r.experts)), r.random(t, 0.2, r.experts))
	case 2:
		y = r.Op("MatMul", x,
			r.Op("Transpose", r.random(t, 0.15, r.experts, r.hidden), onnx.IntsAttr("perm", []int64{1, 0})))
	default:
		y = r.Op("MatMul", x, r.random(t, 0.15, r.hidden, r.experts))
	}
	if t != onnx.Float {
		y = r.Cast(y, onnx.Float)
	}
	return y
}

// scored writes the scores of logits.
func (r *routed) scored(logits *onnx.Value) *onnx.Value {
	if r.Chance(2) {
		return r.softmax(logits, r.LastAxis(2))
	}
	if r.fixed {
		return r.Op("Sigmoid", logits)
	}
	// The inner sigmoid as the logits, and the rest after the weights.
	r.Smaller = r.Smaller || r.Change == "sigmoid twice" || r.Change == "one less the sigmoid"
	return r.Sigmoid(logits, onnx.Float)
}

// softmax writes e^x over its sum along an axis.
func (r *routed) softmax(x *onnx.Value, axis int64) *onnx.Value {
	if r.wrong("softmax over the tokens") {
		axis = 0
	}
	switch r.Rand.IntN(5) {
	case 0: // the logarithms as the logits, with a separate softmax over the chosen experts
		r.Smaller = r.Smaller || r.Change == "softmax over the tokens"
		return r.Op("Exp", r.Op("LogSoftmax", x, onnx.IntAttr("axis", axis)))
	case 1:
		e := r.Op("Exp", r.Op("Sub", x, r.Reduce("ReduceMax", x, []int64{axis}, true)))
		return r.Op("Div", e, r.Reduce("ReduceSum", e, []int64{axis}, true))
	}
	return r.Op("Softmax", x, onnx.IntAttr("axis", axis))
}

// top writes the k greatest scores and their indices.
func (r *routed) top(scores *onnx.Value) (values, ids *onnx.Value) {
	switch {
	case r.outside("scores squared before the choice"):
		scores = r.Op("Mul", scores, r.Op("Abs", scores))
	case r.outside("an expert that is never chosen"): // other scores for the choice
		open := make([]int64, r.experts)
		for i := range open[1:] {
			open[i+1] = 1
		}
		scores = r.Op("Where", r.bools(open...), scores, r.Floats(onnx.Float, []int{}, []float64{-100}))
	}
	args := []any{scores, r.Ints(int64(r.k))}
	if r.Chance(2) {
		args = append(args, onnx.IntAttr("axis", r.LastAxis(2)))
	}
	if r.Chance(4) {
		args = append(args, onnx.IntAttr("sorted", 1))
	}
	if r.wrong("the least instead of the greatest") {
		args = append(args, onnx.IntAttr("largest", 0))
	}
	out := r.Ops("TopK", 2, args...)
	return out[0], out[1]
}

// taken returns the scores of the ids.
func (r *routed) taken(scores, ids *onnx.Value) *onnx.Value {
	return r.Op("GatherElements", scores, ids, onnx.IntAttr("axis", r.LastAxis(2)))
}

// corrected chooses by some numbers, and returns the scores of the chosen experts.
func (r *routed) corrected(among, scores *onnx.Value, bias bool) (weights, ids *onnx.Value) {
	values, ids := r.top(among)
	switch {
	case bias && r.wrong("weights with the correction"):
		return values, ids
	case r.wrong("scores of the next token"):
		scores = r.nextRow(scores)
	case r.wrong("scores of another router"):
		scores = r.Op("Sigmoid", r.logits())
	case r.wrong("ids of another router"):
		_, other := r.top(r.Op("Sigmoid", r.logits()))
		return r.taken(scores, other), ids
	}
	return r.taken(scores, ids), ids
}

// best chooses one expert: by ArgMax, or as the first of one.
func (r *routed) best(logits *onnx.Value) (weight, id *onnx.Value) {
	r.scores = r.scored(logits)
	if r.Chance(3) {
		return r.top(r.scores)
	}
	at, keep := r.LastAxis(2), int64(r.Rand.IntN(2))
	among := writer.Choose(r.Writer, r.scores, logits)
	if r.wrong("the least instead of the greatest") {
		id = r.Op("ArgMin", among, onnx.IntAttr("axis", at), onnx.IntAttr("keepdims", keep))
	} else {
		id = r.Op("ArgMax", among, onnx.IntAttr("axis", at), onnx.IntAttr("keepdims", keep))
	}
	if keep == 0 {
		id = r.Op("Unsqueeze", id, r.Ints(r.LastAxis(2)))
	}
	switch {
	case r.wrong("scores of the next token"):
		return r.taken(r.nextRow(r.scores), id), id
	case r.wrong("the least score"):
		return r.Reduce("ReduceMin", r.scores, []int64{r.LastAxis(2)}, true), id
	case r.Chance(2):
		return r.Reduce("ReduceMax", r.scores, []int64{r.LastAxis(2)}, true), id
	}
	return r.taken(r.scores, id), id
}
