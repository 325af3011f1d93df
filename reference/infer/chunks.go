package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// Exporters also unroll loops over chunks: a Gather of its own reads each place along the axis of the chunks. Fewer
// chunks fail, and nothing reads more of them. So the numbers of tokens must make as many chunks as are read.

// chunks is an axis of a value.
type chunks struct {
	v    *onnx.Value
	axis int
}

// unrolled finds the axes of chunks that are too short in world 0, and how many of their places are read in order.
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

// fillsChunks makes numbers of the tokens for which there are as many chunks as the model reads the symbol's, if there
// are such.
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

// first returns the first number of a symbol between two others with at least count chunks, or the higher one. More
// tokens never make fewer chunks. It reports false if the number of chunks is unknown.
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

// unlike returns a number between two others that is not a fixed size, so that it is known as that of the tokens.
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
