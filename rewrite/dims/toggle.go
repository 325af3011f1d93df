package dims

import (
	"maps"
	"math"
)

// toggles lists variants in which one more number depends on the dimension, or all equal numbers do.
func (e *search) toggles(v *variant) (list []*variant) {
	size := e.dims[e.dim].Size
	for _, c := range e.constants {
		if c.hasSizes() {
			for k, number := range c.tensor.I {
				at := slot{c.node, c.input, k}
				if f := v.factors[at]; f != nil && f[e.dim].num != 0 {
					continue
				}
				for _, f := range coincident(number, size) {
					list = append(list, &variant{reading: v.with(e.dim, len(e.dims), map[slot]rat{at: f}), toggled: c})
				}
			}
		}
		if at := (slot{c.node, c.input, diagonal}); c.family.counts() >= 0 && v.factors[at] == nil {
			for _, f := range coincident(c.family.first(), size) { // of a count with this length, or one that grows
				for _, more := range append([]option{{}}, c.lengthOptions(size)...) {
					set := map[slot]rat{at: f}
					for s, g := range more.set {
						if s.part != diagonal && more.how == 0 {
							set[s] = g
						}
					}
					list = append(list, &variant{reading: v.with(e.dim, len(e.dims), set), toggled: c})
				}
			}
		}
		if c.tensor.F != nil && c.tensor.Len() == 1 {
			for _, f := range functions {
				if x := f(size); x != 0 && math.Abs(x-c.tensor.F[0]) <= 1e-6*math.Abs(x) {
					list = append(list, &variant{reading: v.reading, toggled: c,
						numbers: map[*constant]func(int64) float64{c: f}})
				}
			}
		}
	}
	return append(append(list, e.together(v)...), e.shifted(v)...)
}

// shifted lists variants in which the positions before the first row follow a dimension: the diagonals of masks whose
// columns do, one of them or all, all counts and angles that start at the size, and both.
func (e *search) shifted(v *variant) (list []*variant) {
	diagonals, starts := map[slot]rat{}, map[slot]rat{}
	var first *constant
	for _, c := range e.constants {
		by := func(part int) rat {
			if f := v.factors[slot{c.node, c.input, part}]; f != nil {
				return f[e.dim]
			}
			return rat{0, 1}
		}
		f, at := &c.family, slot{c.node, c.input, diagonal}
		columns := by(lengthOf(f.columns))
		switch {
		case by(diagonal).num != 0:
			continue
		case f.step && columns.num != 0 && by(lengthOf(f.rows)).num == 0:
			diagonals[at] = columns
			set := map[slot]rat{at: columns}
			list = append(list, &variant{reading: v.with(e.dim, len(e.dims), set), toggled: c})
		case f.counts() >= 0 && f.first() == e.dims[e.dim].Size:
			starts[at] = rat{1, 1}
		default:
			continue
		}
		if first == nil {
			first = c
		}
	}
	both := maps.Clone(diagonals)
	maps.Copy(both, starts)
	for _, set := range []map[slot]rat{diagonals, starts, both} {
		if len(set) > 1 {
			list = append(list, &variant{reading: v.with(e.dim, len(e.dims), set), toggled: first})
		}
	}
	return list
}

// together lists variants in which several numbers depend on the dimension: equal ones, in the same position of the
// same op or anywhere, and tables of its length.
func (e *search) together(v *variant) (list []*variant) {
	size := e.dims[e.dim].Size
	type class struct {
		op           string
		input, part  int
		number       int64
		factor       rat
		tables, near bool
	}
	alike, order := map[class]map[slot]rat{}, []class{}
	put := func(k class, at slot, f rat) {
		if alike[k] == nil {
			alike[k], order = map[slot]rat{}, append(order, k)
		}
		alike[k][at] = f
	}
	for _, c := range e.constants {
		if c.hasSizes() {
			for i, number := range c.tensor.I {
				at := slot{c.node, c.input, i}
				if f := v.factors[at]; f != nil && f[e.dim].num != 0 {
					continue
				}
				for _, f := range coincident(number, size) {
					put(class{op: c.node.OpType, input: c.input, part: i, number: number, factor: f}, at, f)
					put(class{number: number, factor: f}, at, f)
					if c.node.Is("Reshape") || c.node.Is("Expand") || c.node.Is("ConstantOfShape") {
						put(class{number: number, factor: f, near: true}, at, f)
					}
				}
			}
		}
		for _, o := range c.lengthOptions(size) {
			if len(o.set) > 1 && o.how <= 1 {
				list = append(list, &variant{reading: v.with(e.dim, len(e.dims), o.set), toggled: c})
			}
			for at, f := range o.set {
				if g := v.factors[at]; o.how == 0 && len(o.set) == 1 && (g == nil || g[e.dim].num == 0) {
					put(class{op: c.node.OpType, input: c.input, part: at.part, tables: true}, at, f)
				}
			}
		}
	}
	for _, k := range order {
		var c *constant
		for at := range alike[k] {
			if x := e.constantOf(at); c == nil || e.place[x.node] < e.place[c.node] {
				c = x
			}
		}
		list = append(list, &variant{reading: v.with(e.dim, len(e.dims), alike[k]), toggled: c})
	}
	return list
}

// coincident lists the factors of a number that may equal a size by chance.
func coincident(number, size int64) (list []rat) {
	switch {
	case number >= unbounded:
	case number == size, number == size-1 && size > 2, number == size+1:
		list = append(list, rat{1, 1})
	case number == -size:
		list = append(list, rat{-1, 1})
	case number > 0 && number%size == 0 && size > 2, number > 2 && size%number == 0:
		list = append(list, ratio(number, size))
	}
	return list
}

// functions are numbers that models compute from a size.
var functions = []func(n int64) float64{
	func(n int64) float64 { return float64(n) },
	func(n int64) float64 { return -float64(n) },
	func(n int64) float64 { return float64(n - 1) },
	func(n int64) float64 { return float64(n + 1) },
	func(n int64) float64 { return 1 / float64(n) },
	func(n int64) float64 { return 1 / float64(n-1) },
	func(n int64) float64 { return math.Sqrt(float64(n)) },
	func(n int64) float64 { return 1 / math.Sqrt(float64(n)) },
	func(n int64) float64 { return math.Log(float64(n)) },
	func(n int64) float64 { return float64(n) * float64(n) },
	func(n int64) float64 { return 2 / float64(n) },
	func(n int64) float64 { return 2 / float64(n-1) },
}

func (a *analysis) constantOf(s slot) *constant {
	for _, c := range a.byInput[s.node] {
		if c.input == s.input {
			return c
		}
	}
	return nil
}
