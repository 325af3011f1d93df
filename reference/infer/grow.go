package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
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
