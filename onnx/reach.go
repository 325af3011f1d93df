package onnx

import (
	"iter"
	"math"
)

// Reach yields values or nodes, each once and the nearest first: those given, and those that next lists for each that
// was yielded. Nil is passed over.
func Reach[T comparable](next func(T) []T, from ...T) iter.Seq[T] {
	return Near(math.MaxInt, next, from...)
}

// Near is Reach for what lies so many steps away at most.
func Near[T comparable](steps int, next func(T) []T, from ...T) iter.Seq[T] {
	return func(yield func(T) bool) {
		var none T
		seen := map[T]bool{none: true}
		for level := from; len(level) > 0 && steps >= 0; steps-- {
			var behind []T
			for _, x := range level {
				if seen[x] {
					continue
				}
				if seen[x] = true; !yield(x) {
					return
				}
				behind = append(behind, next(x)...)
			}
			level = behind
		}
	}
}

// Upstream yields the values given and what they are computed from, but for those that stop says yes to and what lies
// behind these alone.
func Upstream(stop func(*Value) bool, from ...*Value) iter.Seq[*Value] {
	return Reach(func(v *Value) []*Value { return without(v.MadeFrom(), stop) }, from...)
}

// Downstream yields the values given and what is computed from them, but for those that stop says yes to and what lies
// behind these alone.
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

// MadeFrom lists what the node that makes v reads.
func (v *Value) MadeFrom() []*Value {
	if v.Producer == nil {
		return nil
	}
	return v.Producer.Inputs
}

// Results lists what the nodes that read v make.
func (v *Value) Results() []*Value {
	var list []*Value
	for _, u := range v.Uses() {
		list = append(list, u.Node.Outputs...)
	}
	return list
}

// SetOf returns the set of what is yielded.
func SetOf[T comparable](items iter.Seq[T]) map[T]bool {
	set := map[T]bool{}
	for x := range items {
		set[x] = true
	}
	return set
}
