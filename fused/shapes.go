package fused

import "slices"

// OutputShapes returns the shapes of the outputs at a site, as far as those of the inputs tell: nil for an unknown
// rank, -1 for an unknown dimension. equal is called with dimensions that must be equal, and returns what they are.
func (o *Op) OutputShapes(s Site, equal func(a, b int64) int64) [][]int64 {
	if o.shapes != nil {
		return o.shapes(s, equal)
	}
	shape := s.dims(0)
	for _, i := range o.SameShape {
		shape = unify(shape, s.dims(i), equal)
	}
	shapes := make([][]int64, len(o.Outputs))
	for i := range shapes {
		shapes[i] = shape
	}
	return shapes
}

// unify returns the shape that a and b, which must be equal, are.
func unify(a, b []int64, equal func(a, b int64) int64) []int64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case len(a) != len(b):
		return nil
	}
	shape := slices.Clone(a)
	for i, d := range b {
		shape[i] = equal(shape[i], d)
	}
	return shape
}

// withLast is a shape with another last dimension.
func withLast(shape []int64, dim int64) []int64 {
	if len(shape) == 0 {
		return shape
	}
	shape = slices.Clone(shape)
	shape[len(shape)-1] = dim
	return shape
}
