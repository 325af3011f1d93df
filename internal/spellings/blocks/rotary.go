package blocks

import (
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// rope holds the data that the writers of rotary embeddings share: x with n rotated channels and others before or after
// them.
type rope struct {
	writer.Channels // the rotated ones
	x, cos, sin     *onnx.Value
	pass            *onnx.Value // the channels that are not rotated, or nil
	passFirst       bool
}

// Form is a way of pairing channels.
type Form struct {
	In, Out bool // interleaved
	Wide    bool // tables are as wide as the rotated channels
	partial bool // some channels are not rotated
	normed  bool // the heads are normalized first
	Whole   bool // x * cos + rotated x * sin; otherwise half by half
}

// WriteRotary writes a rotary embedding in a form.
func WriteRotary(f Form) func(w *writer.Writer) []*onnx.Value {
	return func(w *writer.Writer) []*onnx.Value {
		r := newRope(w, f)
		var y *onnx.Value
		if f.Whole {
			y = r.whole(f)
		} else {
			y = r.byHalves(f)
		}
		if y == nil || r.pass == nil {
			return []*onnx.Value{y}
		}
		return []*onnx.Value{r.withPass(y)}
	}
}

// newRope declares x and the tables, and selects the rotated channels.
func newRope(w *writer.Writer, f Form) *rope {
	n := writer.Choose(w, 4, 8, 8, 6)
	size := n
	if f.partial {
		size += writer.Choose(w, 2, 4, n)
	}
	dims := append(w.Rows(2, 3, size), writer.Dim{Name: "", Size: size})
	rank := len(dims)
	table := []writer.Dim{dims[rank-2], {Name: "", Size: n / 2}}
	if f.Wide {
		table[1].Size = n
	}
	if rank == 4 {
		switch w.Rand.IntN(4) {
		case 0:
			table = append([]writer.Dim{{Name: "", Size: 1}}, table...)
		case 1:
			table = append([]writer.Dim{{Name: "", Size: 1}, {Name: "", Size: 1}}, table...)
		case 2:
			table = append([]writer.Dim{dims[0], {Name: "", Size: 1}}, table...)
		case 3: // heads after the positions
			table = []writer.Dim{dims[0], dims[1], {Name: "", Size: 1}, table[1]}
		}
	}
	r := &rope{Channels: writer.Channels{Writer: w, Rank: rank, Size: n}}
	var x *onnx.Value
	enter := w.Enter
	if f.normed {
		x, enter = normedHeads(w, dims)
	} else {
		x = headsOf(w, dims)
	}
	switch w.Rand.IntN(4) {
	case 0:
		half := append([]writer.Dim{}, table...)
		half[len(half)-1].Size = n / 2
		in := enter(x, w.Input("angles", w.Type, half))
		r.x = in[0]
		r.cos, r.sin = tablesOf(w, in[1], f, writer.Channels{Writer: w, Rank: len(half), Size: n})
	case 1:
		if !f.Wide { // cut from tables as wide as x
			table[len(table)-1].Size = n
			in := enter(x, w.Input("cos_table", w.Type, table), w.Input("sin_table", w.Type, table))
			c := writer.Channels{Writer: w, Rank: len(table), Size: n}
			r.x, r.cos, r.sin = in[0], c.Part(in[1], 0, n/2), c.Part(in[2], 0, n/2)
			break
		}
		fallthrough
	default:
		in := enter(x, w.Input("cos_table", w.Type, table), w.Input("sin_table", w.Type, table))
		r.x, r.cos, r.sin = in[0], in[1], in[2]
	}
	if f.partial {
		all := writer.Channels{Writer: w, Rank: rank, Size: size}
		if r.passFirst = w.Chance(2); r.passFirst {
			parts := all.Cut(r.x, size-n, n)
			r.pass, r.x = parts[0], parts[1]
		} else {
			parts := all.Cut(r.x, n, size-n)
			r.x, r.pass = parts[0], parts[1]
		}
	}
	return r
}

// headsOf declares x, or transposes an input whose heads follow the positions.
func headsOf(w *writer.Writer, dims []writer.Dim) *onnx.Value {
	if len(dims) < 4 || w.Chance(2) {
		return w.Input("x", w.Type, dims)
	}
	before := []writer.Dim{dims[0], dims[2], dims[1], dims[3]}
	return w.Op("Transpose", w.Input("x", w.Type, before), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

// normedHeads declares x. enter normalizes it inside the block, before or after its heads move before the positions.
func normedHeads(w *writer.Writer, dims []writer.Dim) (x *onnx.Value, enter func(...*onnx.Value) []*onnx.Value) {
	before, move := dims, len(dims) == 4 && w.Chance(2)
	if move {
		before = []writer.Dim{dims[0], dims[2], dims[1], dims[3]}
	}
	n := newNorm(w, before)
	scale := n.scaleOf(w.Type, before)
	return w.Input("x", w.Type, before), func(values ...*onnx.Value) []*onnx.Value {
		in := w.Enter(append(values, scale)...)
		y := n.rmsNorm(in[0], in[len(values)], w.Chance(2))
		if move {
			y = w.Op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
		return append([]*onnx.Value{y}, in[1:len(values)]...)
	}
}

// tablesOf computes cosines and sines of angles, each angle for both channels of a pair if tables are as wide as x.
func tablesOf(w *writer.Writer, angles *onnx.Value, f Form, c writer.Channels) (cos, sin *onnx.Value) {
	t := w.Type
	if w.Half() && w.Chance(2) {
		angles, t = w.Cast(angles, onnx.Float), onnx.Float
	}
	switch {
	case f.Wide && f.Out:
		angles = c.Weave(angles, angles)
	case f.Wide:
		angles = c.Join(angles, angles)
	}
	scale := writer.Choose(w, 0.0, 1, 1.25)
	table := func(op string) *onnx.Value {
		v := w.Op(op, angles)
		if scale != 0 {
			v = w.Product(v, w.Scalar(t, scale))
		}
		if t != w.Type {
			v = w.Cast(v, w.Type)
		}
		return v
	}
	return table("Cos"), table("Sin")
}

// withPass joins the rotated channels and the others.
func (r *rope) withPass(y *onnx.Value) *onnx.Value {
	all := writer.Channels{Writer: r.Writer, Rank: r.Rank, Size: 0}
	if r.passFirst {
		return all.Join(r.pass, y)
	}
	return all.Join(y, r.pass)
}

// pairs splits x into the first and the second elements of the pairs.
func (r *rope) pairs(in bool) (a, b *onnx.Value) {
	if in {
		a, b = r.Every(r.x, 2, 0), r.Every(r.x, 2, 1)
	} else {
		parts := r.Cut(r.x, r.Size/2, r.Size/2)
		a, b = parts[0], parts[1]
	}
	switch {
	case r.Wrong("second elements taken twice"):
		a = b
	case r.Wrong("first elements taken twice"):
		b = a
	case r.Wrong("elements of pairs exchanged"):
		a, b = b, a
	case r.Wrong("second elements reversed"):
		last := r.Ints(-1)
		b = r.Op("Slice", b, last, r.Ints(-1<<62), last, last)
	}
	return a, b
}

func (r *rope) put(out bool, p, q *onnx.Value) *onnx.Value {
	if r.Wrong("results exchanged") {
		p, q = q, p
	}
	if out {
		return r.Weave(p, q)
	}
	return r.Join(p, q)
}

// whole writes x * cos + rotated * sin.
func (r *rope) whole(f Form) *onnx.Value {
	a, b := r.pairs(f.In)
	minus := func(x *onnx.Value) *onnx.Value { return r.Negated(x, r.Type) }
	var rotated *onnx.Value
	switch {
	case r.Wrong("no sign"):
		rotated = r.put(f.Out, b, a)
	case r.Wrong("both signs"):
		rotated = r.put(f.Out, minus(b), minus(a))
	case r.Wrong("sign of a part of the channels"):
		sign := make([]float64, r.Size/2)
		for i := range sign {
			sign[i] = -1
		}
		sign[0] = 1
		rotated = r.put(f.Out, r.Op("Mul", b, r.Floats(r.Type, []int{len(sign)}, sign)), a)
	default:
		rotated = r.put(f.Out, minus(b), a)
	}
	x, cos, sin := r.x, r.cos, r.sin
	switch {
	case r.Wrong("x missing beside the cosines"):
		x = rotated
	case r.Wrong("x missing beside the sines"):
		rotated = x
	case r.Wrong("quotient instead of a product"):
		return r.Sum(r.Op("Div", x, r.Op("Exp", cos)), r.Op("Mul", rotated, sin))
	case r.Wrong("product instead of the sum"):
		return r.Op("Mul", r.Product(x, cos), r.Product(rotated, sin))
	case r.Wrong("greater one instead of the sum"):
		return r.Op("Max", r.Product(x, cos), r.Product(rotated, sin))
	case r.Wrong("sum with x once more"):
		return r.Sum(r.Sum(x, r.Product(x, cos)), r.Product(rotated, sin))
	}
	return r.Sum(r.Product(x, cos), r.Product(rotated, sin))
}

// byHalves writes a*cos - b*sin and b*cos + a*sin, and joins them.
func (r *rope) byHalves(f Form) *onnx.Value {
	a, b := r.pairs(f.In)
	cos, sin, cos2, sin2 := r.cos, r.sin, r.cos, r.sin
	switch {
	case r.Wrong("cosine instead of the sine, in one half"):
		sin2 = cos
	case r.Wrong("sine instead of the cosine, in one half"):
		cos2 = sin
	case r.Wrong("sine and cosine exchanged in one half"):
		sin2, cos2 = cos, sin
	case r.Wrong("table of another position in one half"):
		cos2 = r.Op("Slice", cos, r.Ints(-1), r.Ints(-1<<62), r.Ints(-2), r.Ints(-1))
	case r.Wrong("table scaled in one half"):
		sin2 = r.Op("Mul", sin, r.Scalar(r.Type, 1.25))
	case r.Wrong("table of other channels in one half"):
		last := r.Ints(-1)
		sin2 = r.Op("Slice", sin, last, r.Ints(-1<<62), last, last)
	}
	p := minus(r.Writer, r.Product(a, cos), r.Product(b, sin))
	q := r.Sum(r.Product(b, cos2), r.Product(a, sin2))
	switch {
	case r.Wrong("sum instead of the difference"):
		p = r.Op("Add", r.Op("Mul", a, cos), r.Op("Mul", b, sin))
	case r.Wrong("difference instead of the sum"):
		q = r.Op("Sub", r.Op("Mul", b, cos), r.Op("Mul", a, sin))
	case r.Wrong("one result of both halves"):
		q = p
	case r.Wrong("one result of the rotated halves"):
		q = r.Sum(r.Product(p, cos2), r.Product(a, sin2))
	}
	return r.put(f.Out, p, q)
}

func minus(w *writer.Writer, a, b *onnx.Value) *onnx.Value {
	if w.Chance(5) {
		return w.Sum(a, w.Negated(b, w.Type))
	}
	return w.Op("Sub", a, b)
}
