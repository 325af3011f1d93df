package pagedcache

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

const packedGraph = `graph main (float32[tokens, 8] inputs_embeds,
  float32[blocks, 16, 1, 4] past_k,
  float32[blocks, 16, 1, 4] past_v,
  int32[sequences_and_one] cumulative_sequence_lengths,
  int32[sequences] past_sequence_lengths,
  int32[sequences, blocks_of_sequence] block_table)
=> (float32[blocks, 16, 1, 4] attention_1,
  float32[blocks, 16, 1, 4] attention_2,
  float32[tokens, 8] neg,
  float32[sequences, 8] abs,
  float32[sequences, 8] exp) {
  add = Add({1, 0, 4}, {1})
  reducemax = ReduceMax(add)
  cast_1 = Cast<to=1>
    (reducemax)
  inputs_embeds_batch = Unsqueeze(inputs_embeds, {0})
  cumulative_lengths = Cast<to=7>
    (cumulative_sequence_lengths)
  sequence_starts = Slice(cumulative_lengths, {0}, {-1})
  sequence_ends = Slice(cumulative_lengths, {1}, {9223372036854775807})
  tokens_shape = Shape(inputs_embeds)
  token_count = Gather(tokens_shape, {0})
  token = Range({0}, token_count, {1})
  token_column = Unsqueeze(token, {-1})
  sequence_ended = LessOrEqual(sequence_ends, token_column)
  sequences_ended = Cast<to=7>
    (sequence_ended)
  sequence = ReduceSum<keepdims=0>
    (sequences_ended, {-1})
  past_lengths = Cast<to=7>
    (past_sequence_lengths)
  position_shifts = Sub(past_lengths, sequence_starts)
  position_shift = Gather(position_shifts, sequence)
  positions = Add(token, position_shift)
  packed_positions = Unsqueeze(positions, {0})
  position_ids_packed = Cast<to=6>
    (packed_positions)
  cast = Cast<to=1>
    (position_ids_packed)
  unsqueeze = Unsqueeze(cast, {-1})
  add_1 = Add(inputs_embeds_batch, unsqueeze)
  add_2 = Add(add_1, cast_1)
  reshape = Reshape(add_2, {0, 0, 2, 4})
  slice = Slice(reshape, {0}, {1}, {2})
  transpose_1 = Transpose<perm=[0, 2, 1, 3]>
    (slice)
  reshape_packed = Squeeze(reshape, {0})
  slice_packed = Squeeze(slice, {0})
  slice_packed_1 = Squeeze(slice, {0})
  attention_packed, attention_1, attention_2 =
    mojo.PagedAttention:causal_window_softcap<scale=0.5, causal=1, window=3, softcap=2.0, head_order="blocked">
    (reshape_packed, slice_packed, slice_packed_1, past_k, past_v, cumulative_sequence_lengths,
    past_sequence_lengths, block_table)
  attention = Unsqueeze(attention_packed, {0})
  transpose = Transpose<perm=[0, 2, 1, 3]>
    (attention)
  transpose_tokens = Transpose<perm=[0, 2, 1, 3]>
    (transpose)
  transpose_packed = Squeeze(transpose_tokens, {0})
  transpose_1_tokens = Transpose<perm=[0, 2, 1, 3]>
    (transpose_1)
  transpose_1_packed = Squeeze(transpose_1_tokens, {0})
  transpose_1_tokens_1 = Transpose<perm=[0, 2, 1, 3]>
    (transpose_1)
  transpose_1_packed_1 = Squeeze(transpose_1_tokens_1, {0})
  attention_3_packed =
    mojo.PagedAttention:causal_window_softcap_sink<scale=0.5, causal=1, window=3, softcap=2.0, head_order="blocked">
    (transpose_packed, transpose_1_packed, transpose_1_packed_1, past_k, past_v, cumulative_sequence_lengths,
    past_sequence_lengths, block_table, "", {0.25, 1.0})
  attention_3_tokens = Unsqueeze(attention_3_packed, {0})
  attention_3 = Transpose<perm=[0, 2, 1, 3]>
    (attention_3_tokens)
  transpose_2 = Transpose<perm=[0, 2, 1, 3]>
    (attention_3)
  reshape_1 = Reshape(transpose_2, {0, 0, 8})
  neg_packed = Neg(reshape_1)
  neg = Squeeze(neg_packed, {0})
  last_tokens = Sub(sequence_ends, {1})
  slice_1_packed = Gather<axis=1>
    (reshape_1, last_tokens)
  abs_packed = Abs(slice_1_packed)
  abs = Squeeze(abs_packed, {0})
  last_tokens_1 = Sub(sequence_ends, {1})
  gather_packed = Gather<axis=1>
    (reshape_1, last_tokens_1)
  exp_packed = Exp(gather_packed)
  exp = Squeeze(exp_packed, {0})
}
`

// TestPackedGraph: the whole graph of a small model with pools. Two attention nodes share buffers, one with heads first
// and a sink; positions are int32; shapes of a buffer and of the mask are read; two outputs have only the last rows.
func TestPackedGraph(t *testing.T) {
	b := onnxtest.New(18)
	x := b.Input("inputs_embeds", onnx.Float, "batch", "tokens", 8)
	length := b.Input("past_length", onnx.Int64, "batch")
	valid := b.Input("attention_mask", onnx.Int64, "batch", "room")
	at := b.Input("position_ids", onnx.Int32, "batch", "tokens")
	b.Input("use_cache_branch", onnx.Bool, 1)
	k := b.Input("past_k", onnx.Float, "batch", 1, "room", 4)
	v := b.Input("past_v", onnx.Float, "batch", 1, "room", 4)
	to := func(v *onnx.Value, t onnx.DataType) *onnx.Value { return b.Op("Cast", v, onnx.IntAttr("to", int64(t))) }
	sizes := b.Op("Add", b.Op("Shape", k, onnx.IntAttr("start", 1)), b.Op("Shape", valid, onnx.IntAttr("end", 1)))
	x = b.Op("Add", x, b.Op("Unsqueeze", to(at, onnx.Float), []int64{-1}))
	x = b.Op("Add", x, to(b.Op("ReduceMax", sizes), onnx.Float))
	heads := b.Op("Reshape", x, []int64{0, 0, 2, 4})
	row := b.Op("Slice", heads, []int64{0}, []int64{1}, []int64{2})
	attend := func(layout string, presents int, in ...*onnx.Value) *onnx.Value {
		attrs := fused.Attention{Scale: 0.5, Causal: true, Window: 3, Softcap: 2, Empty: "zero", HeadOrder: "blocked",
			QLayout: layout, KLayout: layout, VLayout: layout, YLayout: layout}
		out := b.Ops(1+presents, "mojo:"+fused.AttentionName, in, attrs.Attributes())
		for _, present := range out[1:] {
			b.Output(present)
		}
		return out[0]
	}
	y := attend("bsnh", 2, heads, row, row, to(valid, onnx.Int32), k, v, length)
	turn := onnx.IntsAttr("perm", []int64{0, 2, 1, 3})
	q, kv := b.Op("Transpose", y, turn), b.Op("Transpose", row, turn)
	z := attend("bnsh", 0, q, kv, kv, nil, k, v, length, nil, b.Floats([]int64{2}, 0.25, 1))
	rows := b.Op("Reshape", b.Op("Transpose", z, turn), []int64{0, 0, 8})
	b.Output(b.Op("Neg", rows))
	b.Output(b.Op("Abs", b.Op("Slice", rows, []int64{-1}, []int64{99}, []int64{1})))
	b.Output(b.Op("Exp", b.Op("Gather", rows, -1, onnx.IntAttr("axis", 1))))

	c := &Change{Run: &pass.Run{Editor: edit.Editor{Model: b.Model}}, facts: infer.Analyze(b.Model), block: 16,
		report: &Report{}}
	for _, step := range []func() error{c.find, c.inputs, c.change, c.declare} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	numbers := regexp.MustCompile(`(?m)^  (\w+) = \w+\[\d*\] (\{.*\})\n`)
	text := b.Graph.Text()
	got := numbers.ReplaceAllString(text, "")
	for _, c := range numbers.FindAllStringSubmatch(text, -1) { // constants where they are read
		got = regexp.MustCompile(`([(,] ?)`+c[1]+`([,)])`).ReplaceAllString(got, "$1"+c[2]+"$2")
	}
	got = strings.NewReplacer(">(", ">\n    (", ") => (", ")\n=> (", ", float32", ",\n  float32", ", int32",
		",\n  int32", " = mojo", " =\n    mojo", ", past_s", ",\n    past_s").Replace(got)
	if got != packedGraph {
		t.Errorf("the graph is\n%s\nwant\n%s", got, packedGraph)
	}
	r := c.report
	if !c.lastOnly || r.BytesPerToken != 32 || strings.Join(r.Pools, " ") != "past_k past_v" ||
		strings.Join(r.Removed, " ") != "attention_mask position_ids use_cache_branch" ||
		strings.Join(r.Packed, " ") != "inputs_embeds" {
		t.Errorf("%+v", r)
	}
}
