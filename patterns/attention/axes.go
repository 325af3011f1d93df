package attention

import (
	"strings"
	"unicode/utf8"

	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// Axes names the dimensions of a tensor: b is the batch, n the heads, s the rows of queries, keys or values, h the
// channels of a row, and l the keys of scores. Letters written together share one dimension, as in "b s nh". Without b
// the batch is 1, and without n there is one head.
type Axes string

// The usual axes of operands and scores.
const (
	byHeads Axes = "b n s h"
	byRows  Axes = "b s n h"
	scores  Axes = "b n s l"
)

// Fields returns the letters of each dimension.
func (a Axes) Fields() []string { return strings.Fields(string(a)) }

// letters returns the letters of all dimensions.
func (a Axes) letters() string { return strings.ReplaceAll(string(a), " ", "") }

// Has reports whether some dimension contains the letter.
func (a Axes) Has(letter string) bool { return strings.Contains(string(a), letter) }

// LayoutAxes returns the axes of an operand of mojo.Attention in the given layout.
func LayoutAxes(layout string) Axes {
	if layout == byRows.letters() {
		return byRows
	}
	return byHeads
}

// sizes holds the size of each letter.
type sizes map[rune]int

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

// long returns the letters of all dimensions that are larger than 1.
func (a Axes) long(n sizes) string {
	return strings.Map(func(letter rune) rune {
		if letter == ' ' || n[letter] == 1 {
			return -1
		}
		return letter
	}, string(a))
}

// arranged returns the elements with their axes in another order. An axis that only one order has must be of size 1.
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
		if len(rest) == 1 { // saves a call for each element
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

// axis holds the size of a dimension and the stride between its elements.
type axis struct{ size, stride int }

// axesForm converts a tensor of other axes to the op's four, and a result back. No step needs a length: a Reshape
// copies or infers it.
type axesForm struct {
	layout    Axes    // the resulting layout of the op
	turn      []int64 // a transposition before the Reshape
	dims      []int64 // of a Reshape
	rowsFirst bool    // after the Reshape, rows are before the batch
	back      []int64 // dims of the Reshape of a result, before its transposition
}

// Placeholders in dims for the number of heads, the channels of one head, and the channels of all heads.
const (
	headsDim    = -2
	channelsDim = -3
	allDim      = -4
)

var axesForms = map[Axes]axesForm{
	"b s n h": {layout: byRows},
	"b n s h": {layout: byHeads},
	"b s nh":  {layout: byRows, dims: []int64{0, 0, headsDim, -1}, back: []int64{0, 0, -1}},
	"s b n h": {layout: byRows, rowsFirst: true},
	"s b nh":  {layout: byRows, dims: []int64{0, 0, headsDim, -1}, rowsFirst: true, back: []int64{0, 0, -1}},
	"s bn h": {layout: byRows, dims: []int64{0, -1, headsDim, channelsDim}, rowsFirst: true,
		back: []int64{0, -1, channelsDim}},
	"b sn h": {layout: byRows, dims: []int64{0, -1, headsDim, channelsDim}, back: []int64{0, -1, channelsDim}},
	"b ns h": {layout: byHeads, dims: []int64{0, headsDim, -1, channelsDim}, back: []int64{0, -1, channelsDim}},
	"bn s h": {layout: byRows, turn: []int64{1, 0, 2}, dims: []int64{0, -1, headsDim, channelsDim}, rowsFirst: true,
		back: []int64{0, -1, channelsDim}},
	"n s h":   {layout: byHeads, dims: []int64{1, headsDim, -1, channelsDim}, back: []int64{headsDim, -1, channelsDim}},
	"s n h":   {layout: byRows, dims: []int64{1, -1, headsDim, channelsDim}, back: []int64{-1, headsDim, channelsDim}},
	"s nh":    {layout: byRows, dims: []int64{1, -1, headsDim, channelsDim}, back: []int64{-1, allDim}},
	"b n h s": {layout: byHeads, turn: []int64{0, 1, 3, 2}},
	"bn h s":  {layout: byRows, turn: []int64{2, 0, 1}, dims: []int64{0, -1, headsDim, channelsDim}, rowsFirst: true},
	"bs nh":   {layout: byRows, back: []int64{-1, allDim}},
	"sb nh":   {layout: byRows, rowsFirst: true, back: []int64{-1, allDim}},
}

// arranger adds nodes that convert tensors of the given heads and channels between axes.
type arranger struct {
	*builder
	name            string
	heads, channels int64
}

func (a arranger) reshape(v *site.Operand, name, dimsName string, dims []int64) *site.Operand {
	list := make([]int64, len(dims))
	for i, d := range dims {
		switch list[i] = d; d {
		case headsDim:
			list[i] = a.heads
		case channelsDim:
			list[i] = a.channels
		case allDim:
			list[i] = a.heads * a.channels
		}
	}
	return v.With("Reshape", name, dimsName, list...)
}

// from converts an operand to the four dimensions of its layout.
func (a arranger) from(v *site.Operand, axes Axes) *site.Operand {
	f := axesForms[axes]
	v = v.Transpose(a.name+"_rows", f.turn...)
	if f.dims != nil {
		v = a.reshape(v, a.name+"_heads", a.name+"_dims", f.dims)
	}
	if f.rowsFirst {
		v = v.Transpose(a.name+"_rows", 1, 0, 2, 3)
	}
	return v
}

// to converts a four-dimensional result to the given axes.
func (a arranger) to(v *site.Operand, axes Axes) *site.Operand {
	f := axesForms[axes]
	if f.rowsFirst {
		v = v.Transpose(a.name+"_rows", 1, 0, 2, 3)
	}
	if f.back != nil {
		v = a.reshape(v, "rows", "all_heads", f.back)
	}
	return v.Transpose(a.name+"_rows", f.turn...) // swaps two dimensions: its own inverse
}
