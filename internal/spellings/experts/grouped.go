package experts

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// sorted holds choices sorted by expert.
type sorted struct {
	*routed
	flat   *onnx.Value // the experts of the choices in their order, [T·k]
	order  *onnx.Value // the choices, sorted by expert
	expert *onnx.Value // of each choice in this order
	counts *onnx.Value // of each expert's choices
	cut    int         // how rows are split by expert
	listed bool        // the order is joined from lists, so that no shape has its length
}

func newSorted(r *routed) sorted {
	r.Empty = true
	s := sorted{routed: r, flat: r.Op("Reshape", r.ids, r.Ints(-1)), cut: r.Rand.IntN(3)}
	number := r.Op("Shape", s.flat)
	if s.listed = r.Opset >= 16 && r.Chance(3); s.listed { // the choices of each expert, concatenated
		parts := make([]any, r.experts)
		for i := range parts {
			e := r.Constant(writer.ScalarInt(int64(i)))
			parts[i] = r.Op("Squeeze", r.Op("NonZero", r.Op("Equal", s.flat, e)), r.Ints(0))
		}
		s.order = r.Op("Concat", append(parts, onnx.IntAttr("axis", 0))...)
		s.expert = r.Op("Gather", s.flat, s.order)
	} else {
		out := r.Ops("TopK", 2, s.flat, number, onnx.IntAttr("largest", 0), onnx.IntAttr("axis", r.LastAxis(1)))
		s.expert, s.order = out[0], out[1]
	}
	if r.Opset >= 16 && r.Chance(2) {
		zeros := r.Constant(onnx.NewInt64s("zeros", make([]int64, r.experts)))
		s.counts = r.Op("ScatterElements", zeros, s.expert, r.Op("Expand", r.Ints(1), number), onnx.IntAttr("axis", 0),
			onnx.StringAttr("reduction", "add"))
	} else {
		s.counts = r.Reduce("ReduceSum", r.Op("OneHot", s.flat, r.Ints(int64(r.experts)), r.Ints(0, 1)), []int64{0},
			false)
	}
	if r.wrong("numbers of choices in the other order") {
		s.counts = r.Op("Slice", s.counts, r.Ints(-1), r.Ints(-int64(r.experts)-1), r.Ints(0), r.Ints(-1))
	}
	return s
}

// parts splits rows by expert, in order.
func (s sorted) parts(rows *onnx.Value) []*onnx.Value {
	if s.cut == 0 {
		return s.Ops("Split", s.experts, rows, s.counts, onnx.IntAttr("axis", 0))
	}
	ends := s.Op("CumSum", s.counts, s.Constant(writer.ScalarInt(0)))
	parts := make([]*onnx.Value, s.experts)
	begin := s.Ints(0)
	for i := range parts {
		end := s.Op("Slice", ends, s.Ints(int64(i)), s.Ints(int64(i)+1), s.Ints(0))
		if s.cut == 1 {
			parts[i] = s.Op("Slice", rows, begin, end, s.Ints(0))
		} else {
			from, to := s.Op("Squeeze", begin, s.Ints(0)), s.Op("Squeeze", end, s.Ints(0))
			parts[i] = s.Op("Gather", rows, s.Op("Range", from, to, s.Constant(writer.ScalarInt(1))),
				onnx.IntAttr("axis", 0))
		}
		begin = end
	}
	return parts
}

// times multiplies the rows of each expert by its matrix, and adds all biases at once.
func (s sorted) times(l *linear, rows *onnx.Value, next int) *onnx.Value {
	products := make([]any, s.experts)
	plain := *l // without biases
	plain.b, plain.ownBias = nil, nil
	form := s.Rand.Uint64()
	for i, part := range s.parts(rows) {
		s.alike(form, func() { products[i] = s.linear(&plain, part, (i+next)%s.experts) })
	}
	y := s.Op("Concat", append(products, onnx.IntAttr("axis", 0))...)
	if l.b == nil {
		return y
	}
	of := s.expert
	if s.wrong("biases of the choices as they come") {
		of = s.flat
	}
	return s.add(y, s.Op("Gather", l.b, of))
}

// WriteGrouped writes experts that work on the rows of all choices, sorted by expert.
func WriteGrouped(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	e := r.newExpert(true)
	s := newSorted(r)
	rows := s.Op("Div", s.order, s.Constant(writer.ScalarInt(int64(r.k))))
	if r.Chance(2) {
		rows = s.Op("Gather", r.x, rows)
	} else {
		rows = s.Op("GatherND", r.x, s.Op("Unsqueeze", rows, s.Ints(-1)))
	}
	if s.wrong("rows of the next choice") {
		rows = s.nextRow(rows)
	}
	var y *onnx.Value
	if r.Chance(3) { // each expert separately
		outs, form := make([]any, r.experts), r.Rand.Uint64()
		for i, part := range s.parts(rows) {
			outs[i] = r.each(e, form, part, i)
		}
		y = s.Op("Concat", append(outs, onnx.IntAttr("axis", 0))...)
	} else {
		next := 0
		a := s.hiddenOf(e, e.act, 2, func(l *linear) *onnx.Value { return s.times(l, rows, 0) })
		if s.outside("down products of the next expert") {
			next = 1
		}
		if y = s.times(e.down, a, next); s.wrong("outputs activated") {
			y = s.Op("Tanh", y)
		}
	}
	return r.result(s.back(y))
}

// back weights the rows, and sums the rows of each token.
func (s sorted) back(y *onnx.Value) *onnx.Value {
	flat := s.Op("Reshape", s.weightsOf(), s.Ints(-1))
	weights := s.Op("Gather", flat, s.order)
	if s.wrong("weights of the choices as they come") {
		weights = flat
	}
	if !s.listed && s.Chance(3) {
		inverse := s.inverse()
		if s.wrong("rows left in the order of the experts") {
			inverse = s.Op("Abs", s.order)
		}
		return s.finish(s.Op("Gather", y, inverse))
	}
	y = s.Product(y, s.Op("Unsqueeze", weights, s.Ints(s.LastAxis(2))))
	switch {
	case s.listed, s.Opset >= 16 && s.Chance(2): // by token
		token := s.Op("Unsqueeze", s.Op("Div", s.order, s.Constant(writer.ScalarInt(int64(s.k)))), s.Ints(1))
		add := []any{onnx.StringAttr("reduction", "add")}
		if s.k > 1 && s.wrong("rows replaced by others") {
			add = nil
		}
		zeros := s.Op("ConstantOfShape", s.Op("Shape", s.x),
			onnx.TensorAttr("value", writer.Tensor(s.Type, []int{1}, []float64{0})))
		if s.Chance(2) {
			token = s.Op("Expand", token, s.Op("Shape", y))
			return s.Op("ScatterElements", append([]any{zeros, token, y, onnx.IntAttr("axis", 0)}, add...)...)
		}
		return s.Op("ScatterND", append([]any{zeros, token, y}, add...)...)
	case s.Chance(3): // by choice
		at := s.Op("Expand", s.Op("Unsqueeze", s.order, s.Ints(1)), s.Op("Shape", y))
		y = s.Op("ScatterElements", s.Op("Sub", y, y), at, y, onnx.IntAttr("axis", 0))
	default:
		y = s.Op("Gather", y, s.inverse())
	}
	return s.sumOf(y)
}

// inverse returns the positions of the choices in the sorted order.
func (s sorted) inverse() *onnx.Value {
	number := s.Op("Shape", s.flat)
	if s.Chance(2) {
		return s.Ops("TopK", 2, s.order, number, onnx.IntAttr("largest", 0))[1]
	}
	all := s.Op("Range", s.Constant(writer.ScalarInt(0)), s.Op("Squeeze", number, s.Ints(0)),
		s.Constant(writer.ScalarInt(1)))
	if s.Chance(2) {
		return s.Op("ScatterElements", s.Op("Expand", s.Ints(0), number), s.order, all, onnx.IntAttr("axis", 0))
	}
	return s.Op("ScatterND", s.Op("Expand", s.Ints(0), number), s.Op("Unsqueeze", s.order, s.Ints(1)), all)
}
