package onnx

import (
	"iter"
	"math"
	"slices"
)

// Reach yields values or nodes, each once and the nearest first: from, then those that next lists for each yielded one.
// It skips nil.
func Reach[T comparable](next func(T) []T, from ...T) iter.Seq[T] {
	return Near(math.MaxInt, next, from...)
}

// Near is Reach for at most this many steps.
func Near[T comparable](steps int, next func(T) []T, from ...T) iter.Seq[T] {
	return func(yield func(T) bool) {
		var none T
		seen := seenSet[T]{few: append(make([]T, 0, 16), none)}
		for level := from; len(level) > 0 && steps >= 0; steps-- {
			var behind []T
			for _, x := range level {
				if seen.add(x) {
					if !yield(x) {
						return
					}
					behind = append(behind, next(x)...)
				}
			}
			level = behind
		}
	}
}

// seenSet is a set that starts as a list, which is faster than a map: most searches end near their start.
type seenSet[T comparable] struct {
	few  []T
	many map[T]bool // nil while the set is small
}

const maxFew = 64

// add adds x and reports whether it was missing.
func (s *seenSet[T]) add(x T) bool {
	switch {
	case s.many != nil:
		if s.many[x] {
			return false
		}
		s.many[x] = true
	case slices.Contains(s.few, x):
		return false
	default:
		if s.few = append(s.few, x); len(s.few) > maxFew {
			s.many = SetOf(slices.Values(s.few))
		}
	}
	return true
}

// Upstream yields the given values and the values they are computed from. It does not follow values that stop selects,
// or yield them.
func Upstream(stop func(*Value) bool, from ...*Value) iter.Seq[*Value] {
	return Reach(func(v *Value) []*Value { return without(v.MadeFrom(), stop) }, from...)
}

// Downstream yields the given values and the values computed from them. It does not follow values that stop selects, or
// yield them.
func Downstream(stop func(*Value) bool, from ...*Value) iter.Seq[*Value] {
	return Reach(func(v *Value) []*Value { return without(v.Results(), stop) }, from...)
}

func without(list []*Value, stop func(*Value) bool) []*Value {
	var left []*Value
	for _, v := range list {
		if v != nil && !stop(v) {
			left = append(left, v)
		}
	}
	return left
}

// MadeFrom lists the inputs of the node that computes v.
func (v *Value) MadeFrom() []*Value {
	if v.Producer == nil {
		return nil
	}
	return v.Producer.Inputs
}

// Results lists the outputs of the nodes that read v.
func (v *Value) Results() []*Value {
	var list []*Value
	for _, u := range v.Uses() {
		list = append(list, u.Node.Outputs...)
	}
	return list
}

// SetOf returns the set of the yielded items.
func SetOf[T comparable](items iter.Seq[T]) map[T]bool {
	set := map[T]bool{}
	for x := range items {
		set[x] = true
	}
	return set
}
