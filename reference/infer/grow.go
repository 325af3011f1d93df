package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// The numbers of symbols start small: an image of 3 by 5 points has no patch of 16 by 16, so values computed from its
// patches have no elements. If a window does not fit, or a length is divided down to nothing, the symbols of the tensor
// become multiples of the stride.

const (
	// maxGrowth bounds the factor of a symbol.
	maxGrowth = 1 << 12
	// leastPatches is the number of patches, in world 2, along the first side that grows.
	leastPatches = 23
)

// grow multiplies the numbers of symbols that are too small for the model. It reports whether it changed any: then the
// analysis must restart.
func (an *analysis) grow(f *Facts) bool {
	factors := map[*symbol]int64{}
	an.windowFactors(factors)
	if len(factors) == 0 && an.vanishes(f) {
		an.quotientFactors(f, factors)
	}
	grows := false
	for _, s := range an.symbols.list { // in order: the numbers must not depend on map order
		k := factors[s]
		if k < 2 || s.start[0] > maxGrowth {
			continue
		}
		if !an.grown[s] {
			s.start[2] = an.nextPatches()
		}
		if an.grown == nil {
			an.grown = map[*symbol]bool{}
		}
		an.grown[s], grows = true, true
		for w := range s.start {
			s.start[w] *= k
		}
	}
	return grows
}

func (an *analysis) nextPatches() int64 {
	n := int64(leastPatches)
	for range an.grown {
		n = nextPrime(n)
	}
	return n
}

// windowFactors finds the factors of symbols for which all windows fit: the product of the strides of consecutive
// nodes.
func (an *analysis) windowFactors(factors map[*symbol]int64) {
	if len(an.Short) == 0 {
		return
	}
	product := map[*onnx.Value]int64{}
	for _, n := range an.model.Graph.Nodes {
		k := int64(1)
		for _, v := range n.Inputs {
			k = max(k, product[v])
		}
		if stride := an.Short[n]; stride > 0 {
			k = min(k*max(stride, 2), maxGrowth)
			for _, s := range an.symbolsOf(n.Input(0)) {
				factors[s] = max(factors[s], k)
			}
		}
		if k > 1 {
			for _, v := range n.Outputs {
				product[v] = k
			}
		}
	}
}

// symbolsOf returns the free symbols of the inputs that a value is computed from, except batch sizes.
func (an *analysis) symbolsOf(v *onnx.Value) (list []*symbol) {
	for in := range onnx.Upstream(func(*onnx.Value) bool { return false }, v) {
		t, ok := in.Type()
		if in.Producer != nil || !in.IsInput || !ok {
			continue
		}
		for axis, d := range t.Dims {
			var s *symbol
			if unnamed := an.unnamed[in]; axis < len(unnamed) && unnamed[axis] != nil {
				s = unnamed[axis]
			} else if d.Param != "" {
				s = an.symbols.byName[d.Param]
			}
			if axis > 0 && s != nil && s.free() && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
	}
	return list
}

// vanishes reports whether a float tensor has no elements in a world of small numbers but has some in the world of
// large ones.
func (an *analysis) vanishes(f *Facts) bool {
	for _, n := range an.model.Graph.Nodes {
		for _, v := range n.Outputs {
			if x := f.of(v); x.DataType.IsFloat() && !x.Same && !slices.Contains(x.Shape[2], 0) &&
				(slices.Contains(x.Shape[0], 0) || slices.Contains(x.Shape[1], 0)) {
				return true
			}
		}
		if n.Is("Reshape") && f.reshapesToNothing(n.Input(1)) {
			return true
		}
	}
	return false
}

// reshapesToNothing reports whether a shape has a 0 that it does not have in the world of large numbers.
func (f *Facts) reshapesToNothing(shape *onnx.Value) bool {
	large, ok := f.Known(shape, 2)
	if !ok {
		return false
	}
	for w := range 2 {
		small, ok := f.Known(shape, w)
		for i, d := range large.I {
			if ok && i < len(small.I) && small.I[i] == 0 && d != 0 {
				return true
			}
		}
	}
	return false
}

// quotientFactors finds the symbols that are divided by a larger number.
func (an *analysis) quotientFactors(f *Facts, factors map[*symbol]int64) {
	for _, n := range an.model.Graph.Nodes {
		by, ok := f.Constant(n.Input(1))
		if !n.Is("Div") || !ok || len(by.I) != 1 || by.I[0] < 2 || by.I[0] > maxGrowth {
			continue
		}
		var of [Worlds]int64
		for w := range of {
			if x, ok := f.Known(n.Input(0), w); ok && len(x.I) == 1 {
				of[w] = x.I[0]
			}
		}
		if of[0] <= 0 || of[0] >= by.I[0] {
			continue
		}
		if e := an.symbols.read(of); e != nil && e.op == 's' && e.sym.free() {
			factors[e.sym] = max(factors[e.sym], by.I[0])
		}
	}
}

// Exporters unroll a loop over blocks of tokens for the number of blocks in their example. Such a graph may run only if
// each block has tokens, so for numbers of tokens that are in a range.

// maxFills bounds the numbers that are tried for a symbol.
const maxFills = 24

// fills searches for numbers of the symbol that blocks are cut from, for which all sizes in the model fit. It reports
// whether there are such numbers and the present ones do not fit: then the analysis must restart.
func (an *analysis) fills(f *Facts) bool {
	if !an.grows || an.filled {
		return false
	}
	if an.fillsChunks(f) {
		an.filled = true
		return true
	}
	if an.clashes[0] == 0 {
		return false
	}
	an.filled = true
	s, list := an.cuts(f)
	if s == nil {
		return false
	}
	start := s.start
	defer func() { s.start = start }()
	var fit []int64 // the last ones without a number between them that does not fit
	gap := false
	for len(list) > 0 {
		for w := range s.start {
			s.start[w] = list[min(w, len(list)-1)]
		}
		an.pass()
		for w := range min(Worlds, len(list)) {
			if an.clashes[w] > 0 {
				gap = true
				continue
			}
			if gap {
				fit, gap = nil, false
			}
			fit = append(fit, list[w])
		}
		list = list[min(Worlds, len(list)):]
	}
	if len(fit) == 0 {
		return false
	}
	// The last block should have several tokens in world 0.
	start = [Worlds]int64{fit[len(fit)/2], fit[0], fit[len(fit)-1]}
	return true
}

// cuts returns the symbol whose axis is cut into blocks, or into tokens, and numbers near the ends of these, in order.
func (an *analysis) cuts(f *Facts) (of *symbol, list []int64) {
	for _, n := range an.model.Graph.Nodes {
		if !n.Is("Slice") && !n.Is("Gather") || !f.DataType(n.Input(0)).IsFloat() {
			continue
		}
		start, ok := f.Constant(n.Input(1)) // or the place of the token
		axes := []int64{n.AttrInt("axis", 0)}
		if n.Is("Slice") {
			t, known := f.Constant(n.Input(3))
			if !known {
				continue
			}
			axes = t.I
		}
		x := f.of(n.Input(0)).Shape
		if !ok || len(start.I) != 1 || len(axes) != 1 {
			continue
		}
		axis, ok := rules.Axis(axes[0], len(x[0]))
		if !ok {
			continue
		}
		e := an.symbols.read(sizesOf(x, int(axis)))
		if e == nil || e.op != 's' || of != nil && e.sym != of {
			continue
		}
		of = e.sym
		switch end, known := f.Known(n.Input(2), 2); {
		case n.Is("Gather"):
			list = append(list, start.I[0]+1)
		case start.I[0] > 1:
			list = append(list, start.I[0]+1, start.I[0]+2, start.I[0]+3)
			if known && len(end.I) == 1 {
				list = append(list, end.I[0])
			}
		case known && len(end.I) == 1 && end.I[0] < x[2][axis]:
			list = append(list, end.I[0])
		}
	}
	list = slices.DeleteFunc(list, func(d int64) bool { return d < 2 || d > maxGrowth })
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > maxFills {
		list = list[len(list)-maxFills:]
	}
	return of, list
}

// Of an unrolled loop over chunks, a Gather reads each. Fewer fail, and nothing reads more of them.

// chunks is an axis of a value.
type chunks struct {
	v    *onnx.Value
	axis int
}

// unrolled finds the axes of chunks that are too short in world 0, and how many of their places are read.
func (an *analysis) unrolled(f *Facts) (list []chunks, read map[chunks]int64) {
	read = map[chunks]int64{}
	for _, n := range an.model.Graph.Nodes {
		v := n.Input(0)
		if !n.Is("Gather") || v == nil || v.Constant() != nil || !f.DataType(v).IsFloat() {
			continue
		}
		at, ok := f.Constant(n.Input(1))
		axis, valid := rules.Axis(n.AttrInt("axis", 0), len(f.of(v).Shape[0]))
		c := chunks{v, int(axis)}
		if !ok || !valid || len(at.I) != 1 || at.I[0] != read[c] {
			continue
		}
		if read[c]++; read[c] == 2 {
			list = append(list, c)
		}
	}
	return slices.DeleteFunc(list, func(c chunks) bool {
		n := sizesOf(f.of(c.v).Shape, c.axis)
		e := an.symbols.read(n)
		return n[0] <= 0 || n[0] >= read[c] || n[2] < read[c] || e != nil && e.op == 's' // tokens
	}), read
}

// fillsChunks searches for numbers of tokens that make as many chunks as the model reads.
func (an *analysis) fillsChunks(f *Facts) bool {
	list, read := an.unrolled(f)
	if len(list) == 0 {
		return false
	}
	for _, s := range an.symbolsOf(list[0].v) {
		start, least, most := s.start, int64(2), int64(maxGrowth)
		for _, c := range list {
			a, known := an.first(s, least, most, c, read[c])
			b, also := an.first(s, a, most+1, c, read[c]+1)
			if known && also {
				least, most = a, min(most, b-1)
			}
		}
		if least < most && most < maxGrowth {
			s.start = [Worlds]int64{f.unlike(least, most), least, most}
			return true
		}
		s.start = start
	}
	return false
}

// first returns the first number of a symbol between two others with at least count chunks, or the higher one. It
// reports false if the number of chunks is unknown.
func (an *analysis) first(s *symbol, low, high int64, c chunks, count int64) (int64, bool) {
	for low < high {
		for w := range s.start {
			s.start[w] = low + (high-low)*int64(w+1)/(Worlds+1)
		}
		tried := s.start
		f := an.pass()
		for w, n := range tried {
			shape := f.of(c.v).Shape[w]
			if c.axis >= len(shape) || shape[c.axis] < 0 {
				return 0, false
			}
			if shape[c.axis] >= count {
				high = n
				break
			}
			low = n + 1
		}
	}
	return high, true
}

// unlike returns a number between two others that is not a fixed size.
func (f *Facts) unlike(least, most int64) int64 {
	n := (least + most) / 2
	for v, x := range f.facts {
		if axis := slices.Index(x.Shape[0], n); v.Constant() == nil && axis >= 0 && n < most {
			if _, fixed := f.Dim(v, axis); fixed {
				return f.unlike(n+1, most)
			}
		}
	}
	return n
}
