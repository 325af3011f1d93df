package probe

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// places numbers the elements of weights, one initializer after the other. In a run, a weight is a lazy tensor of these
// numbers, its places. However nodes move them, the result shows where they come from.
type places struct {
	sources []*onnx.Value
	starts  []int               // of the sources
	known   map[*onnx.Value]int // the sources' indices
	next    int
}

// placesBetween keeps two initializers from looking like one.
const placesBetween = 1<<16 + 1

// of returns the places of the elements of a constant.
func (p *places) of(v *onnx.Value) (*reference.Tensor, error) {
	t := v.Constant()
	k, ok := p.known[v]
	if !ok {
		if k = len(p.sources); k == 0 {
			p.known = map[*onnx.Value]int{}
		}
		p.known[v] = k
		p.sources, p.starts = append(p.sources, v), append(p.starts, p.next)
		p.next += int(t.Len()) + placesBetween
	}
	start := p.starts[k]
	return reference.NewLazy(t.DataType, match.As[int](t.Dims), func(dst []float64, offset int) error {
		for i := range dst {
			dst[i] = float64(start + offset + i)
		}
		return nil
	})
}

// at returns the source that a place is in, and the index of its element there.
func (p *places) at(place float64) (k int, element int64) {
	k, found := slices.BinarySearch(p.starts, int(place))
	if !found {
		k--
	}
	return k, int64(int(place) - p.starts[k])
}

// matrix finds where a matrix is stored that begins at an offset of a tensor of places. It has no source if its
// elements are not evenly spaced in one.
func (p *places) matrix(t *reference.Tensor, offset, in, byIn, out, byOut int) *Matrix {
	m := &Matrix{In: int64(in), Out: int64(out)}
	row, column, last := make([]float64, in), make([]float64, out), make([]float64, 1)
	if t.Read(row, offset, byIn) != nil || t.Read(column, offset, byOut) != nil ||
		t.Read(last, offset+(in-1)*byIn+(out-1)*byOut, 1) != nil {
		return m
	}
	var even1, even2 bool
	m.ByIn, even1 = step(row)
	m.ByOut, even2 = step(column)
	first, element := p.at(row[0])
	end, _ := p.at(last[0])
	if even1 && even2 && first == end && last[0]-row[0] == float64((m.In-1)*m.ByIn+(m.Out-1)*m.ByOut) {
		m.Source, m.Offset = p.sources[first], element
	}
	return m
}

// step returns the distance between the numbers of a list; even is false if they are not evenly spaced.
func step(list []float64) (by int64, even bool) {
	if len(list) < 2 {
		return 1, true
	}
	d := list[1] - list[0]
	for i, x := range list {
		if x != list[0]+float64(i)*d {
			return 0, false
		}
	}
	return int64(d), true
}

// maxRead is the greatest number of elements of an initializer that may be decoded.
const maxRead = 1 << 20

// read decodes the elements at places.
func (p *places) read(t *reference.Tensor) (*reference.Tensor, error) {
	if t.Len() > maxRead {
		return nil, NoExperts("a weight is repeated to %v", t.Shape)
	}
	d, err := t.Dense()
	if err != nil {
		return nil, err
	}
	whole := map[int]*reference.Tensor{}
	numbers := make([]float64, len(d.F))
	for i, place := range d.F {
		k, element := p.at(place)
		if whole[k] == nil {
			c := p.sources[k].Constant()
			if c.Len() > maxRead {
				return nil, NoExperts("the weight %q of %v is not only moved or multiplied",
					p.sources[k].Name, c.Dims)
			}
			if whole[k], err = reference.FromONNX(c); err != nil {
				return nil, err
			}
		}
		numbers[i] = whole[k].F[element]
	}
	return reference.NewFloats(t.DataType, t.Shape, numbers), nil
}

// move evaluates a node that moves elements of lazy tensors, the first of which is t; nil if its results are not lazy.
func move(n *onnx.Node, s *reference.Scope, t *reference.Tensor) []*reference.Tensor {
	var out []*reference.Tensor
	if n.OpType == "Expand" {
		shape, unknown := s.Value(n.Inputs[1])
		if unknown != nil {
			return nil
		}
		out = []*reference.Tensor{expanded(t, match.As[int](shape.I))}
	} else {
		out, _ = s.Op(n) // nil if it fails
	}
	if slices.ContainsFunc(out, func(t *reference.Tensor) bool { return !t.IsLazy() }) {
		return nil
	}
	return out
}

// expanded repeats a lazy tensor like Expand; nil if the shapes do not fit or are too large.
func expanded(t *reference.Tensor, shape []int) *reference.Tensor {
	s, ok := onnx.InRow(match.As[int64](t.Shape)).Expand(match.As[int64](shape))
	if !ok {
		return nil
	}
	index := onnx.RowMajor(match.As[int](s.Dims))
	r, _ := reference.NewLazy(t.DataType, match.As[int](s.Dims), func(dst []float64, offset int) error {
		for i := range dst {
			at := 0
			for axis, by := range s.Strides {
				at += (offset + i) / index[axis] % int(s.Dims[axis]) * int(by)
			}
			if err := t.Read(dst[i:i+1], at, 1); err != nil {
				return err
			}
		}
		return nil
	})
	return r
}
