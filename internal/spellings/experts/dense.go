package experts

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// each sends rows through expert i, with edits.
func (r *routed) each(e *expert, form uint64, x *onnx.Value, i int) *onnx.Value {
	first, last := i == 0, i == r.experts-1
	if last && r.wrong("another input for an expert") {
		x = r.Op("Add", x, r.Floats(r.Type, []int{}, []float64{1}))
	}
	act := e.act
	if last && r.wrong("another activation for an expert") {
		act = map[string]string{"relu": "silu"}[act]
		if act == "" {
			act = "relu"
		}
	}
	of := i
	if first && r.outside("weights of the next expert for an expert") {
		of++
	}
	var y *onnx.Value
	r.alike(form, func() { y = r.one(e, act, x, of) })
	switch {
	case first && r.wrong("an expert counts twice"):
		y = r.Op("Add", y, y)
	case first && r.wrong("an expert's outputs activated"):
		y = r.Op("Tanh", y)
	case last && r.wrong("an expert's inputs added to its outputs"):
		y = r.Op("Add", y, x)
	}
	return y
}

// WriteDense writes experts that all work on all tokens, with separate weights and masks.
func WriteDense(w *writer.Writer) []*onnx.Value {
	r := newRouted(w, "")
	e := r.newExpert(r.Chance(2))
	gate, form, masked := r.gates(true), r.Rand.Uint64(), r.Chance(4)
	var parts []*onnx.Value
	for i := range r.experts {
		if i == r.experts-1 && r.wrong("the last expert missing") {
			continue
		}
		x := r.x
		var hit *onnx.Value
		zero := r.Floats(r.Type, []int{}, []float64{0})
		if masked {
			hit = r.hit(i)
			x = r.Op("Where", hit, x, zero)
		}
		y, g := r.each(e, form, x, i), gate(i)
		switch {
		case i == 1 && r.wrong("an expert without its weight"):
			g = r.Cast(r.hit(i), r.Type)
		case i == 1 && r.wrong("an expert with its weight squared"):
			g = r.Op("Mul", g, g)
		case i == 1 && r.wrong("an expert that serves two tokens"):
			one := r.Cast(r.hit(i), onnx.Float)
			full := r.Op("Less", r.Op("CumSum", one, r.Constant(writer.ScalarInt(0))),
				r.Floats(onnx.Float, []int{}, []float64{2.5}))
			g = r.Op("Mul", g, r.Cast(full, r.Type))
		case i == 1 && r.wrong("weights of the next token for an expert"):
			g = r.nextRow(g)
		}
		if y = r.Product(y, g); masked {
			y = r.Op("Where", hit, y, zero)
		}
		parts = append(parts, y)
	}
	return r.result(r.total(parts))
}

// total sums values one by one, or at once.
func (r *routed) total(parts []*onnx.Value) *onnx.Value {
	if r.wrong("the greatest of the experts' outputs") {
		return r.Op("Max", anyList(parts)...)
	}
	if r.Chance(4) {
		return r.Op("Sum", anyList(parts)...)
	}
	if r.Chance(4) {
		for i, v := range parts {
			parts[i] = r.Op("Unsqueeze", v, r.Ints(0))
		}
		return r.Reduce("ReduceSum", r.Op("Concat", append(anyList(parts), onnx.IntAttr("axis", 0))...), []int64{0},
			false)
	}
	y := parts[0]
	for _, v := range parts[1:] {
		y = r.add(y, v)
	}
	return y
}

func anyList(values []*onnx.Value) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// is compares the ids with expert i, a number or a value.
func (r *routed) is(i any) *onnx.Value {
	e, ok := i.(*onnx.Value)
	if !ok {
		e = r.Constant(onnx.NewInt64s(fmt.Sprint("expert", i), []int64{int64(i.(int))}))
	}
	return r.Op("Equal", r.ids, e)
}

// hit returns which tokens go to expert i, [T, 1].
func (r *routed) hit(i any) *onnx.Value {
	t := writer.Choose(r.Writer, onnx.Float, onnx.Int32, onnx.Int64)
	return r.Cast(r.Reduce("ReduceMax", r.Cast(r.is(i), t), []int64{r.LastAxis(2)}, true), onnx.Bool)
}

// gates returns, for each expert i (a number or a value without axes), the column [T, 1] of weights, 0 for tokens that
// did not choose it.
func (r *routed) gates(split bool) func(i any) *onnx.Value {
	weights := r.weightsOf()
	if all := r.allGates(weights, r.Rand.IntN(4)); all != nil {
		if r.Chance(4) && split {
			columns := writer.Channels{Writer: r.Writer, Rank: 2, Size: r.experts}.Split(all, true,
				slices.Repeat([]int{1}, r.experts))
			return func(i any) *onnx.Value { return columns[i.(int)] }
		}
		return func(i any) *onnx.Value {
			at, ok := i.(int)
			switch {
			case !ok:
				return r.Op("Unsqueeze", r.Op("Gather", all, i, onnx.IntAttr("axis", 1)), r.Ints(1))
			case r.Chance(3):
				return r.Op("Gather", all, r.Ints(int64(at)), onnx.IntAttr("axis", r.LastAxis(2)))
			}
			return r.Op("Slice", all, r.Ints(int64(at)), r.Ints(int64(at)+1), r.Ints(r.LastAxis(2)))
		}
	}
	where := r.Chance(2)
	return func(i any) *onnx.Value {
		mask := r.is(i)
		if where {
			mask = r.Op("Where", mask, weights, r.Floats(r.Type, []int{}, []float64{0}))
		} else {
			mask = r.Product(r.Cast(mask, r.Type), weights)
		}
		return r.Reduce("ReduceSum", mask, []int64{1}, true)
	}
}

// allGates returns the weights of all experts [T, experts], or nil for other forms than 0 and 1.
func (r *routed) allGates(weights *onnx.Value, form int) *onnx.Value {
	switch form {
	case 0: // one_hot
		hot := r.Op("OneHot", r.ids, r.Ints(int64(r.experts)), r.Floats(r.Type, []int{2}, []float64{0, 1}))
		return r.Reduce("ReduceSum", r.Product(hot, r.Op("Unsqueeze", weights, r.Ints(-1))), []int64{1}, false)
	case 1: // scatter
		shape := r.Op("Concat", r.Op("Slice", r.Op("Shape", r.ids), r.Ints(0), r.Ints(1)), r.Ints(int64(r.experts)),
			onnx.IntAttr("axis", 0))
		zeros := r.Op("Expand", r.Floats(r.Type, []int{1}, []float64{0}), shape)
		return r.Op("ScatterElements", zeros, r.ids, weights, onnx.IntAttr("axis", 1))
	}
	return nil
}
