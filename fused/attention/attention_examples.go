package attention

import (
	"github.com/mojo-patch/mojo-patch/fused/op"
)

// attentionForm is a way to use Attention: its attributes, with the plainest as zero values, and its inputs.
type attentionForm struct {
	causal, window, softcap, mean, cyclic bool
	layouts                               string // of q, k, v and y; "" means all bnsh
	batch, heads, keyHeads                int64
	queries, keys                         int64 // S and N
	width, valueWidth                     int64
	past                                  int64 // P, or M if lengths > 0; -1: no cache
	lengths                               int64 // elements of past_length; 0: not given
	valid, sink                           bool
	bias                                  []int64
}

// attentionForms covers every attribute and every input, groups of 1 to 7 heads, decode steps, and prompts of several
// blocks.
var attentionForms = []attentionForm{
	{batch: 2, heads: 2, keyHeads: 2, queries: 3, keys: 5, width: 10, valueWidth: 10, past: -1},
	{causal: true, batch: 2, heads: 6, keyHeads: 2, queries: 1, keys: 1, width: 16, valueWidth: 16, past: 20,
		valid: true, mean: true, layouts: "bnsh bnsh bsnh bsnh"},
	{causal: true, window: true, batch: 2, heads: 4, keyHeads: 4, queries: 5, keys: 5, width: 24, valueWidth: 16,
		past: 3, valid: true},
	{causal: true, softcap: true, batch: 1, heads: 3, keyHeads: 1, queries: 4, keys: 4, width: 9, valueWidth: 7,
		past: -1, bias: []int64{3, 1, 4}, layouts: "bsnh bsnh bsnh bsnh"},
	{causal: true, cyclic: true, batch: 1, heads: 6, keyHeads: 2, queries: 4, keys: 4, width: 8, valueWidth: 8,
		past: 0, sink: true},
	{causal: true, mean: true, batch: 2, heads: 7, keyHeads: 1, queries: 2, keys: 2, width: 8, valueWidth: 12,
		past: 150, lengths: 2, valid: true, layouts: "bnsh bsnh bnsh bsnh"},
	{softcap: true, batch: 2, heads: 2, keyHeads: 2, queries: 3, keys: 3, width: 6, valueWidth: 5,
		past: 6, lengths: 1, bias: []int64{1, 2, 1, 1}, sink: true},
	{causal: true, batch: 1, heads: 4, keyHeads: 2, queries: 150, keys: 150, width: 20, valueWidth: 33, past: 40,
		valid: true, layouts: "bsnh bsnh bsnh bsnh"},
	{causal: true, window: true, batch: 1, heads: 3, keyHeads: 3, queries: 70, keys: 70, width: 8, valueWidth: 8,
		past: -1, sink: true},
	{causal: true, batch: 1, heads: 6, keyHeads: 2, queries: 1, keys: 1, width: 64, valueWidth: 64, past: 300},
	{causal: true, batch: 2, heads: 2, keyHeads: 1, queries: 0, keys: 0, width: 8, valueWidth: 8, past: 4},
}

// attentionExamples lists the forms that have these attributes.
func attentionExamples(s op.Site) [][][]int64 {
	var list [][][]int64
	for _, f := range attentionForms {
		if f.matches(s) {
			list = append(list, f.dims(s))
		}
	}
	return list
}

func (f attentionForm) matches(s op.Site) bool {
	attrs := op.Read[Attention](s.Attributes)
	layouts := attrs.QLayout + " " + attrs.KLayout + " " + attrs.VLayout + " " +
		attrs.YLayout
	want := f.layouts
	if want == "" {
		want = "bnsh bnsh bnsh bnsh"
	}
	return layouts == want && f.causal == attrs.Causal && f.window == (attrs.Window > 0) &&
		f.softcap == (attrs.Softcap > 0) && f.mean == (attrs.Empty == emptyMean) &&
		f.cyclic == (attrs.HeadOrder == headCyclic)
}

// dims are the shapes of the inputs.
func (f attentionForm) dims(s op.Site) [][]int64 {
	attrs := op.Read[Attention](s.Attributes)
	dims := make([][]int64, AttentionSink+1)
	dims[AttentionQ] = headDims{f.batch, f.heads, f.queries, f.width}.in(attrs.QLayout)
	dims[AttentionK] = headDims{f.batch, f.keyHeads, f.keys, f.width}.in(attrs.KLayout)
	dims[AttentionV] = headDims{f.batch, f.keyHeads, f.keys, f.valueWidth}.in(attrs.VLayout)
	length := f.keys
	if f.past >= 0 {
		dims[AttentionPastKey] = []int64{f.batch, f.keyHeads, f.past, f.width}
		dims[AttentionPastValue] = []int64{f.batch, f.keyHeads, f.past, f.valueWidth}
		length += f.past
	}
	if f.lengths > 0 {
		dims[AttentionPastLength] = []int64{f.lengths}
	}
	if f.valid {
		dims[AttentionKeyValid] = []int64{f.batch, length}
	}
	dims[AttentionBias] = f.bias
	if f.sink {
		dims[AttentionSink] = []int64{f.heads}
	}
	return dims
}
