package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// rope holds the data that the writers of rotary embeddings share: x with n rotated channels and others before or after
// them.
type rope struct {
	channels    // the rotated ones
	x, cos, sin *onnx.Value
	pass        *onnx.Value // the channels that are not rotated, or nil
	passFirst   bool
}

// form is a way of pairing channels.
type form struct {
	in, out bool // interleaved
	wide    bool // tables are as wide as the rotated channels
	partial bool // some channels are not rotated
	normed  bool // the heads are normalized first
	whole   bool // x * cos + rotated x * sin; otherwise half by half
}

func writeRotary(f form) func(w *writer) []*onnx.Value {
	return func(w *writer) []*onnx.Value {
		r := w.newRope(f)
		var y *onnx.Value
		if f.whole {
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
func (w *writer) newRope(f form) *rope {
	n := choose(w, 4, 8, 8, 6)
	size := n
	if f.partial {
		size += choose(w, 2, 4, n)
	}
	dims := append(w.rows(2, 3, size), dim{"", size})
	rank := len(dims)
	table := []dim{dims[rank-2], {"", n / 2}}
	if f.wide {
		table[1].size = n
	}
	if rank == 4 {
		switch w.r.IntN(4) {
		case 0:
			table = append([]dim{{"", 1}}, table...)
		case 1:
			table = append([]dim{{"", 1}, {"", 1}}, table...)
		case 2:
			table = append([]dim{dims[0], {"", 1}}, table...)
		case 3: // heads after the positions
			table = []dim{dims[0], dims[1], {"", 1}, table[1]}
		}
	}
	r := &rope{channels: channels{w, rank, n}}
	var x *onnx.Value
	enter := w.enter
	if f.normed {
		x, enter = w.normedHeads(dims)
	} else {
		x = w.heads(dims)
	}
	switch w.r.IntN(4) {
	case 0:
		half := append([]dim{}, table...)
		half[len(half)-1].size = n / 2
		in := enter(x, w.input("angles", w.typ, half))
		r.x = in[0]
		r.cos, r.sin = w.tables(in[1], f, channels{w, len(half), n})
	case 1:
		if !f.wide { // cut from tables as wide as x
			table[len(table)-1].size = n
			in := enter(x, w.input("cos_table", w.typ, table), w.input("sin_table", w.typ, table))
			c := channels{w, len(table), n}
			r.x, r.cos, r.sin = in[0], c.part(in[1], 0, n/2), c.part(in[2], 0, n/2)
			break
		}
		fallthrough
	default:
		in := enter(x, w.input("cos_table", w.typ, table), w.input("sin_table", w.typ, table))
		r.x, r.cos, r.sin = in[0], in[1], in[2]
	}
	if f.partial {
		all := channels{w, rank, size}
		if r.passFirst = w.chance(2); r.passFirst {
			parts := all.cut(r.x, size-n, n)
			r.pass, r.x = parts[0], parts[1]
		} else {
			parts := all.cut(r.x, n, size-n)
			r.x, r.pass = parts[0], parts[1]
		}
	}
	return r
}

// heads declares x, or transposes an input whose heads follow the positions.
func (w *writer) heads(dims []dim) *onnx.Value {
	if len(dims) < 4 || w.chance(2) {
		return w.input("x", w.typ, dims)
	}
	before := []dim{dims[0], dims[2], dims[1], dims[3]}
	return w.op("Transpose", w.input("x", w.typ, before), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

// normedHeads declares x. enter normalizes it inside the block, before or after its heads move before the positions.
func (w *writer) normedHeads(dims []dim) (x *onnx.Value, enter func(...*onnx.Value) []*onnx.Value) {
	before, move := dims, len(dims) == 4 && w.chance(2)
	if move {
		before = []dim{dims[0], dims[2], dims[1], dims[3]}
	}
	n := w.newNorm(before)
	scale := n.scaleOf(w.typ, before)
	return w.input("x", w.typ, before), func(values ...*onnx.Value) []*onnx.Value {
		in := w.enter(append(values, scale)...)
		y := n.rmsNorm(in[0], in[len(values)], w.chance(2))
		if move {
			y = w.op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
		return append([]*onnx.Value{y}, in[1:len(values)]...)
	}
}

// tables computes cosines and sines of angles, each angle for both channels of a pair if tables are as wide as x.
func (w *writer) tables(angles *onnx.Value, f form, c channels) (cos, sin *onnx.Value) {
	t := w.typ
	if w.half() && w.chance(2) {
		angles, t = w.cast(angles, onnx.Float), onnx.Float
	}
	switch {
	case f.wide && f.out:
		angles = c.weave(angles, angles)
	case f.wide:
		angles = c.join(angles, angles)
	}
	scale := choose(w, 0.0, 1, 1.25)
	table := func(op string) *onnx.Value {
		v := w.op(op, angles)
		if scale != 0 {
			v = w.product(v, w.scalar(t, scale))
		}
		if t != w.typ {
			v = w.cast(v, w.typ)
		}
		return v
	}
	return table("Cos"), table("Sin")
}

// withPass joins the rotated channels and the others.
func (r *rope) withPass(y *onnx.Value) *onnx.Value {
	all := channels{r.writer, r.rank, 0}
	if r.passFirst {
		return all.join(r.pass, y)
	}
	return all.join(y, r.pass)
}

// pairs splits x into the first and the second elements of the pairs.
func (r *rope) pairs(in bool) (a, b *onnx.Value) {
	if in {
		a, b = r.every(r.x, 2, 0), r.every(r.x, 2, 1)
	} else {
		parts := r.cut(r.x, r.size/2, r.size/2)
		a, b = parts[0], parts[1]
	}
	switch {
	case r.wrong("second elements taken twice"):
		a = b
	case r.wrong("first elements taken twice"):
		b = a
	case r.wrong("elements of pairs exchanged"):
		a, b = b, a
	case r.wrong("second elements reversed"):
		last := r.ints(-1)
		b = r.op("Slice", b, last, r.ints(-1<<62), last, last)
	}
	return a, b
}

func (r *rope) put(out bool, p, q *onnx.Value) *onnx.Value {
	if r.wrong("results exchanged") {
		p, q = q, p
	}
	if out {
		return r.weave(p, q)
	}
	return r.join(p, q)
}

// whole writes x * cos + rotated * sin.
func (r *rope) whole(f form) *onnx.Value {
	a, b := r.pairs(f.in)
	minus := func(x *onnx.Value) *onnx.Value { return r.negated(x, r.typ) }
	var rotated *onnx.Value
	switch {
	case r.wrong("no sign"):
		rotated = r.put(f.out, b, a)
	case r.wrong("both signs"):
		rotated = r.put(f.out, minus(b), minus(a))
	case r.wrong("sign of a part of the channels"):
		sign := make([]float64, r.size/2)
		for i := range sign {
			sign[i] = -1
		}
		sign[0] = 1
		rotated = r.put(f.out, r.op("Mul", b, r.floats(r.typ, []int{len(sign)}, sign)), a)
	default:
		rotated = r.put(f.out, minus(b), a)
	}
	x, cos, sin := r.x, r.cos, r.sin
	switch {
	case r.wrong("x missing beside the cosines"):
		x = rotated
	case r.wrong("x missing beside the sines"):
		rotated = x
	case r.wrong("quotient instead of a product"):
		return r.sum(r.op("Div", x, r.op("Exp", cos)), r.op("Mul", rotated, sin))
	case r.wrong("product instead of the sum"):
		return r.op("Mul", r.product(x, cos), r.product(rotated, sin))
	case r.wrong("greater one instead of the sum"):
		return r.op("Max", r.product(x, cos), r.product(rotated, sin))
	case r.wrong("sum with x once more"):
		return r.sum(r.sum(x, r.product(x, cos)), r.product(rotated, sin))
	}
	return r.sum(r.product(x, cos), r.product(rotated, sin))
}

// byHalves writes a*cos - b*sin and b*cos + a*sin, and joins them.
func (r *rope) byHalves(f form) *onnx.Value {
	a, b := r.pairs(f.in)
	cos, sin, cos2, sin2 := r.cos, r.sin, r.cos, r.sin
	switch {
	case r.wrong("cosine instead of the sine, in one half"):
		sin2 = cos
	case r.wrong("sine instead of the cosine, in one half"):
		cos2 = sin
	case r.wrong("sine and cosine exchanged in one half"):
		sin2, cos2 = cos, sin
	case r.wrong("table of another position in one half"):
		cos2 = r.op("Slice", cos, r.ints(-1), r.ints(-1<<62), r.ints(-2), r.ints(-1))
	case r.wrong("table scaled in one half"):
		sin2 = r.op("Mul", sin, r.scalar(r.typ, 1.25))
	case r.wrong("table of other channels in one half"):
		last := r.ints(-1)
		sin2 = r.op("Slice", sin, last, r.ints(-1<<62), last, last)
	}
	p := r.minus(r.product(a, cos), r.product(b, sin))
	q := r.sum(r.product(b, cos2), r.product(a, sin2))
	switch {
	case r.wrong("sum instead of the difference"):
		p = r.op("Add", r.op("Mul", a, cos), r.op("Mul", b, sin))
	case r.wrong("difference instead of the sum"):
		q = r.op("Sub", r.op("Mul", b, cos), r.op("Mul", a, sin))
	case r.wrong("one result of both halves"):
		q = p
	case r.wrong("one result of the rotated halves"):
		q = r.sum(r.product(p, cos2), r.product(a, sin2))
	}
	return r.put(f.out, p, q)
}

func (w *writer) minus(a, b *onnx.Value) *onnx.Value {
	if w.chance(5) {
		return w.sum(a, w.negated(b, w.typ))
	}
	return w.op("Sub", a, b)
}
