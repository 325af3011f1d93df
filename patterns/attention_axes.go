package patterns

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
)

// axesForm is how a tensor of other axes becomes one of the op's four, and how a result of these becomes one of others.
// Nothing there needs a length: a Reshape copies it or infers it.
type axesForm struct {
	layout    string  // of the op, that they come to
	turn      []int64 // a transposition before
	dims      []int64 // of a Reshape
	rowsFirst bool    // then rows stand before the batch
	back      []int64 // dimensions of the Reshape of a result, before its transposition
}

// What stands for numbers of heads, of channels of one, and of all channels in dimensions.
const (
	headsDim    = -2
	channelsDim = -3
	allDim      = -4
)

// The layouts of mojo.Attention.
const (
	byHeads = "bnsh"
	byRows  = "bsnh"
)

var axesForms = map[attention.Axes]axesForm{
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

// arranger makes nodes that give tensors of so many heads and channels other axes.
type arranger struct {
	*replacementBuilder
	name            string
	heads, channels int64
}

func (a arranger) reshape(v *onnx.Value, name, dimsName string, dims []int64) *onnx.Value {
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
	return a.node("Reshape", name, []*onnx.Value{v, a.integers(dimsName, list...)})
}

func (a arranger) transpose(v *onnx.Value, perm ...int64) *onnx.Value {
	return a.node("Transpose", a.name+"_rows", []*onnx.Value{v}, onnx.IntsAttr("perm", perm))
}

// from gives an operand the four dimensions of its layout.
func (a arranger) from(v *onnx.Value, axes attention.Axes) *onnx.Value {
	f := axesForms[axes]
	if f.turn != nil {
		v = a.transpose(v, f.turn...)
	}
	if f.dims != nil {
		v = a.reshape(v, a.name+"_heads", a.name+"_dims", f.dims)
	}
	if f.rowsFirst {
		v = a.transpose(v, 1, 0, 2, 3)
	}
	return v
}

// to gives a result of four dimensions others.
func (a arranger) to(v *onnx.Value, axes attention.Axes) *onnx.Value {
	f := axesForms[axes]
	if f.rowsFirst {
		v = a.transpose(v, 1, 0, 2, 3)
	}
	if f.back != nil {
		v = a.reshape(v, "rows", "all_heads", f.back)
	}
	if f.turn != nil { // of two dimensions, which is its own inverse
		v = a.transpose(v, f.turn...)
	}
	return v
}
