package attention

import (
	"strings"
	"unicode/utf8"
)

// Axes names the dimensions of a tensor: b is the batch, n are heads, s rows of queries, keys or values, h the channels
// of a row, and l the keys of scores. Letters that stand together are one dimension, such as "b s nh"; without a b
// there is a batch of one, and without an n there is one head.
type Axes string

// The usual axes of operands and scores.
const (
	byHeads Axes = "b n s h"
	byRows  Axes = "b s n h"
	scores  Axes = "b n s l"
)

// Fields returns the letters of each dimension.
func (a Axes) Fields() []string { return strings.Fields(string(a)) }

// letters are those of all dimensions.
func (a Axes) letters() string { return strings.ReplaceAll(string(a), " ", "") }

// Has reports whether a dimension is, or is part of, one of the tensor.
func (a Axes) Has(letter string) bool { return strings.Contains(string(a), letter) }

// LayoutAxes are those of an operand of mojo.Attention in a layout of it.
func LayoutAxes(layout string) Axes {
	if layout == byRows.letters() {
		return byRows
	}
	return byHeads
}

// sizes are how many there are of each letter.
type sizes map[rune]int

// shape returns the dimensions.
func (a Axes) shape(n sizes) []int {
	var shape []int
	for _, f := range a.Fields() {
		d := 1
		for _, letter := range f {
			d *= n[letter]
		}
		shape = append(shape, d)
	}
	return shape
}

// long returns the letters of all dimensions but those of one element.
func (a Axes) long(n sizes) string {
	return strings.Map(func(letter rune) rune {
		if letter == ' ' || n[letter] == 1 {
			return -1
		}
		return letter
	}, string(a))
}

// arranged returns elements with their axes in another order. Those that one of the two has not are of one.
func arranged(data []float64, from, to Axes, n sizes) []float64 {
	order, letters := to.long(n), from.long(n)
	if letters == order {
		return data
	}
	stride := 1
	var strides [utf8.RuneSelf]int
	for i := len(letters) - 1; i >= 0; i-- {
		strides[letters[i]] = stride
		stride *= n[rune(letters[i])]
	}
	out := make([]float64, 0, len(data))
	var walk func(at int, rest []axis)
	walk = func(at int, rest []axis) {
		if len(rest) == 0 {
			out = append(out, data[at])
			return
		}
		if len(rest) == 1 { // which costs no call for each element
			for range rest[0].size {
				out = append(out, data[at])
				at += rest[0].stride
			}
			return
		}
		for range rest[0].size {
			walk(at, rest[1:])
			at += rest[0].stride
		}
	}
	axes := make([]axis, len(order))
	for i, letter := range order {
		axes[i] = axis{n[letter], strides[letter]}
	}
	walk(0, axes)
	return out
}

// axis says how many elements are along a dimension, and how far apart they are.
type axis struct{ size, stride int }
