package blocks

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// WriteNormQuantize writes an RMSNorm, of a sum or not, that is rounded to 8 bits with a scale for each row.
func WriteNormQuantize(to onnx.DataType, add bool) func(w *writer.Writer) []*onnx.Value {
	return func(w *writer.Writer) []*onnx.Value {
		last := writer.Choose(w, 4, 6, 8)
		dims := append(w.Rows(1, 3, last), writer.Dim{Name: "", Size: last})
		n := newNorm(w, dims)
		read := []*onnx.Value{w.Input("x", w.Type, dims), n.scaleOf(w.Type, dims)}
		if add {
			read = append(read, residual(w, dims))
		}
		in := w.Enter(read...)
		x := in[0]
		if add {
			x = residualSum(w, x, in[2])
			w.Smaller = slices.Contains(residualEdits, w.Change) // a norm of something else
		}
		q := quantizer{n, to, 127, x}
		if to == onnx.Float8E4M3FN {
			q.most = 448
		}
		var y *onnx.Value
		if add && w.Half() || w.Chance(2) {
			y = n.rmsNorm(x, in[1], true)
		} else { // the norm rounds nothing
			scale := n.widen(in[1])
			n.scaleType = n.wide
			y = n.normalize(n.widen(x), n.spread(scale, x))
		}
		out := q.quantize(y)
		if add {
			out = append(out, x)
		}
		// The edit was offered by a branch that was not taken this time.
		w.Smaller = w.Smaller || w.Change != "" && !slices.Contains(w.Offered, w.Change)
		return out
	}
}

// quantizer writes the rounding of a norm to 8 bits.
type quantizer struct {
	norm
	to   onnx.DataType
	most float64
	x    *onnx.Value // the norm's input
}

// quantize returns the numbers of 8 bits and the scales, or the inverses of the scales.
func (q quantizer) quantize(y *onnx.Value) []*onnx.Value {
	wide := q.widen(y)
	most := q.rowMost(writer.Choose(q.Writer, y, wide))
	if q.Half() {
		most = q.Cast(most, onnx.Float)
	}
	limit, floor := q.most, writer.Choose(q.Writer, 1e-5, 1e-12, 1e-3)
	switch {
	case q.Wrong("another greatest number"):
		limit = writer.Choose(q.Writer, limit+1, limit-7, 15)
	case q.Wrong("floor added"):
		return q.rounded(wide, q.Op("Div", q.Sum(most, q.number(0.05)), q.number(limit)))
	case q.Wrong("floor of another operation"):
		return q.rounded(wide, q.Op("Min", q.Op("Div", most, q.number(limit)), q.number(1e-3)))
	}
	if q.Chance(4) {
		bounded := q.floored(most, floor)
		factor := q.Op("Div", q.number(limit), bounded)
		return []*onnx.Value{q.narrow(q.Product(wide, factor)), factor}
	}
	if q.Chance(3) {
		return q.rounded(wide, q.floored(q.per(most, limit), floor))
	}
	return q.rounded(wide, q.per(q.floored(most, floor), limit))
}

func (q quantizer) number(x float64) *onnx.Value { return q.Scalar(onnx.Float, x) }

// rowMost returns the greatest magnitude of each row.
func (q quantizer) rowMost(y *onnx.Value) *onnx.Value {
	over := []int64{q.LastAxis(q.rank)}
	switch {
	case q.Wrong("scale of the whole tensor"):
		over = nil
	case q.Wrong("scale along another axis"):
		over = []int64{0}
	case q.Wrong("greatest of the norm's input"):
		y = q.x
	case q.Wrong("greatest number"):
		return q.Reduce("ReduceMax", y, over, true)
	case q.Wrong("mean of the magnitudes"):
		return q.Reduce("ReduceMean", q.Op("Abs", y), over, true)
	}
	switch {
	case over == nil || over[0] == 0:
	case q.Chance(4):
		return q.Op("Unsqueeze", q.Reduce("ReduceMax", q.Op("Abs", y), over, false), q.Ints(over[0]))
	case q.Chance(6):
		least := q.Op("Neg", q.Reduce("ReduceMin", y, over, true))
		return q.Op("Max", q.Reduce("ReduceMax", y, over, true), least)
	}
	return q.Reduce("ReduceMax", q.Op("Abs", y), over, true)
}

// floored returns the greater of v and a number.
func (q quantizer) floored(v *onnx.Value, least float64) *onnx.Value {
	if q.Chance(2) {
		return q.Op("Max", v, q.number(least))
	}
	return q.Op("Clip", v, q.Floats(onnx.Float, []int{}, []float64{least}))
}

// per divides by a number.
func (q quantizer) per(v *onnx.Value, by float64) *onnx.Value {
	if q.Chance(3) {
		return q.Product(v, q.number(1/by))
	}
	return q.Op("Div", v, q.number(by))
}

// rounded divides by the scale and rounds.
func (q quantizer) rounded(v, scale *onnx.Value) []*onnx.Value {
	switch {
	case q.Wrong("times the scale"):
		return []*onnx.Value{q.narrow(q.Op("Mul", v, scale)), scale}
	case q.Opset >= 21 && q.Chance(4):
		block := []any{v, scale, onnx.IntAttr("axis", -1), onnx.IntAttr("block_size", int64(q.size)),
			onnx.IntAttr("output_dtype", int64(q.to))}
		return []*onnx.Value{q.Op("QuantizeLinear", block...), scale}
	case q.Chance(3):
		return []*onnx.Value{q.narrow(q.Product(v, q.Op("Reciprocal", scale))), scale}
	}
	return []*onnx.Value{q.narrow(q.Op("Div", v, scale)), scale}
}

// narrow rounds to the type of the result.
func (q quantizer) narrow(v *onnx.Value) *onnx.Value {
	least := -q.most
	switch {
	case q.to == onnx.Float8E4M3FN:
	case q.Wrong("cut off"):
		return q.Cast(v, q.to)
	case q.Wrong("rounded down"):
		return q.Cast(q.Op("Floor", v), q.to)
	case q.Wrong("shifted by a zero point"):
		return q.Cast(q.Op("Sub", q.Op("Round", v), q.number(11)), q.to)
	default:
		least -= float64(q.Rand.IntN(2))
	}
	most := q.most
	if q.Wrong("clipped to less") {
		most /= 2
	}
	clip := func(v *onnx.Value) *onnx.Value {
		if most == q.most && q.Chance(4) { // nothing is greater
			return v
		}
		of := func(x float64) *onnx.Value { return q.Floats(onnx.Float, []int{}, []float64{x}) }
		return q.Op("Clip", v, of(least), of(most))
	}
	switch {
	case q.to == onnx.Float8E4M3FN:
		v = clip(v)
	case q.Chance(3):
		v = q.Op("Round", clip(v))
	default:
		v = clip(q.Op("Round", v))
	}
	return q.Cast(v, q.to)
}
