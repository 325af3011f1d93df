package staticcache

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// decoder returns a layer of attention behind a mask, with readers of lengths, positions of both kinds and tokens that
// the mask multiplies; and its change, before any step. The facts know that the mask is as long as the tokens.
func decoder(t *testing.T, o Options, mask onnx.DataType) (*made, *cacheChange) {
	t.Helper()
	m := &made{Builder: onnxtest.New(20)}
	m.Model.ImportOpset(fused.Domain, fused.Version)
	n := m.attends(t, "batch", 2, "past", 8)
	valid := m.Input("attention_mask", mask, "batch", "total")
	x := m.Input("x", onnx.Float, "batch", "new", 1)
	to := func(v *onnx.Value, t onnx.DataType) *onnx.Value { return m.Op("Cast", v, onnx.IntAttr("to", int64(t))) }
	m.Op("MatMul", m.Op("Unsqueeze", to(valid, onnx.Float), []int64{1, 2}), n.Outputs[1])
	facts := infer.Analyze(m.Model)
	if err := new(edit.Change).RemoveUnreadNodes(m.Graph); err != nil {
		t.Fatal(err)
	}
	n.SetInput(fused.AttentionKeyValid, to(valid, onnx.Int64))
	m.define(t, n)
	count := m.Op("Slice", m.Op("Shape", x), []int64{1}, []int64{2})
	columns := m.Op("Slice", valid, m.Op("Neg", count), []int64{1 << 40}, []int64{1})
	y := m.Op("Mul", x, m.Op("Unsqueeze", to(columns, onnx.Float), []int64{2}))
	if o.RowLengths { // positions show how long the mask is
		facts = nil
		past := m.Op("Gather", m.Op("Shape", m.pasts[1]), 2)
		steps := m.Op("Range", past, m.Op("Add", past, m.Op("Squeeze", count)), 1)
		y = m.Op("Add", y, to(m.Op("Unsqueeze", steps, []int64{0, 2}), onnx.Float))
		sums := m.Op("Sub", m.Op("CumSum", to(valid, onnx.Int64), 1), 1)
		from := m.Op("Shape", m.pasts[0], onnx.IntAttr("start", 2), onnx.IntAttr("end", 3))
		y = m.Op("Sub", y, to(m.Op("Unsqueeze", m.Op("Slice", sums, from, []int64{1 << 40}, []int64{1}), []int64{2}),
			onnx.Float))
	} else {
		m.Output(m.Op("Shape", m.pasts[0], onnx.IntAttr("start", 1)))
		m.Output(m.Op("Neg", m.Op("Shape", n.Outputs[2], onnx.IntAttr("start", 2), onnx.IntAttr("end", 3))))
		m.Output(m.Op("Neg", m.Op("Shape", valid)))
	}
	m.Output(y)
	if err := m.Graph.Sort(); err != nil {
		t.Fatal(err)
	}
	return m, newChange(runOf(m.Model, facts), o, "")
}

func runOf(m *onnx.Model, facts *infer.Facts) *pass.Run {
	return &pass.Run{Editor: edit.Editor{Model: m}, Facts: facts, Skips: func(*onnx.Function) bool { return true }}
}

// TestChangedGraphs: the nodes that the buffers change, for each way to tell the number of tokens.
func TestChangedGraphs(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^  (\w+) = \w+\[\d*\] (\{.*\})\n`)
	lines := func(m *made) []string {
		text := m.Graph.Text()
		got := constant.ReplaceAllString(text, "")
		for _, c := range constant.FindAllStringSubmatch(text, -1) { // constants where they are read
			got = regexp.MustCompile(`([(,] ?)`+c[1]+`([,)])`).ReplaceAllString(got, "$1"+c[2]+"$2")
		}
		_, body, _ := strings.Cut(got, "\n")
		body = strings.NewReplacer("mojo.", "\nmojo.", "scale=", "\nscale=", ">(q0", "\n(q0").Replace(body)
		return strings.Split(body, "\n")
	}
	for name, c := range map[string]struct {
		o            Options
		mask         onnx.DataType
		want, report string
	}{
		"lengths of a mask": {Options{Length: 12}, onnx.Int64, `  shape_1_of_buffer = Shape<start=1>(past_key0)
  total_length_shape = Shape(attention_mask)
  total_length = Gather(total_length_shape, {1})
  neg_1 = Neg(total_length)
  new_length_shape = Shape(q0)
  new_length = Gather(new_length_shape, {2})
  past_length = Sub(total_length, new_length)
mojo.Attention:causal_mean_key_valid_past_key_past_length<
(q0, k0, v0, cast_1, past_key0, past_value0, past_length)
  shape_1 = Where({false, true, false}, past_length, shape_1_of_buffer)`,
			"[] [node_shape_1 node_shape_2] []"},
		"an input": {Options{PastLength: true}, onnx.Int32, `mojo.Attention:causal_mean_key_valid_past_key_past_length<
(q0, k0, v0, cast_1, past_key0, past_value0, past_length)
  shape_1_of_buffer = Shape<start=1>(past_key0)
  shape_3_of_buffer = Shape(attention_mask)
  new_length_shape = Shape(q0)
  new_length = Gather(new_length_shape, {2})
  total_length = Add(past_length, new_length)
  neg_1 = Neg(total_length)
  slice_1_of_new = Slice(attention_mask, past_length, total_length, {1})
  cast_2 = Cast<to=1>(slice_1_of_new)
  shape_1 = Where({false, true, false}, past_length, shape_1_of_buffer)
  shape_3 = Where({false, true}, total_length, shape_3_of_buffer)`,
			"[] [node_shape_1 node_shape_2 node_shape_3] []"},
		"a length of each": {Options{RowLengths: true}, onnx.Int64, `mojo.Attention:causal_mean_key_valid_past_key_past_length<
(q0, k0, v0, cast_1, past_key0, past_value0, past_length)
  new_length_of_shape = Shape(q0)
  new_length_of = Gather(new_length_of_shape, {2})
  new_length = Squeeze(new_length_of)
  new_tokens = Range({0}, new_length, {1})
  first_position = Unsqueeze(past_length, {1})
  row_positions = Add(first_position, new_tokens)
  mask = Cast<to=7>(attention_mask)
  mask_sum = CumSum<exclusive=1>(mask, {1})
  tokens_before = GatherElements<axis=1>(mask_sum, row_positions)
  unsqueeze_3 = Unsqueeze(tokens_before, {2})
  unsqueeze_2_of_rows = Reshape(row_positions, {0, 0, 1})
  cast_3 = Cast<to=1>(unsqueeze_2_of_rows)
  slice_1_of_new = GatherElements<axis=1>(attention_mask, row_positions)
  cast_2 = Cast<to=1>(slice_1_of_new)`,
			"[slice_2 unsqueeze_2] [] [row_positions tokens_before]"},
	} {
		m, change := decoder(t, c.o, c.mask)
		before := lines(m)
		r, err := Apply(change.Run, c.o, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		added := slices.DeleteFunc(lines(m), func(s string) bool { return slices.Contains(before, s) })
		if got := strings.Join(added, "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
		if got := fmt.Sprint(r.Positions, r.Readers, onnx.Names(r.Counted)); got != c.report {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.report)
		}
	}
}

// TestOtherReadersOfMasks: beside attention and the columns of the new tokens, nothing may read a mask that becomes as
// long as the buffers.
func TestOtherReadersOfMasks(t *testing.T) {
	for name, c := range map[string]struct {
		read func(m *made, mask *onnx.Value)
		want string
	}{
		"sums": {func(m *made, mask *onnx.Value) { m.Output(m.Op("CumSum", mask, 1)) },
			`node "node_cumsum" (CumSum) reads "attention_mask", which must be as long as the buffers`},
		"columns as an output": {func(m *made, mask *onnx.Value) { m.Output(m.Graph.Value("slice_1")) },
			`node "node_slice_1" (Slice) reads "attention_mask"`},
		"in a branch": {func(m *made, mask *onnx.Value) {
			body := m.Graph.NewSubgraph("body")
			body.AddOutput((&onnxtest.Builder{Model: m.Model, Graph: body}).Op("Neg", mask))
			m.Output(m.Op("If", m.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", body),
				onnx.GraphAttr("else_branch", body)))
		}, `(Neg) reads "attention_mask"`},
		"its size": {func(m *made, mask *onnx.Value) { m.Output(m.Op("Neg", m.Op("Shape", mask))) }, ""},
		"unread":   {func(m *made, mask *onnx.Value) { m.Op("Neg", m.Op("CumSum", mask, 1)) }, ""},
	} {
		m, change := decoder(t, Options{PastLength: true}, onnx.Int64)
		c.read(m, m.Graph.Value("attention_mask"))
		_, err := Apply(change.Run, Options{PastLength: true}, "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestFreeNames: the length of the buffers has a name that no dimension of an input has.
func TestFreeNames(t *testing.T) {
	for name, dims := range map[string][]any{"cache_length": {"other"}, "cache_length_": {3, "cache_length"},
		"cache_length__": {"cache_length", "cache_length_"}} {
		m, c := changeOf(t, Options{PastLength: true}, func(m *made) { m.Input("more", onnx.Float, dims...) })
		if got := c.freeSymbol(cacheSymbol); got != name {
			t.Errorf("beside %v the length is %q, want %q", dims, got, name)
		}
		if _, err := Apply(c.Run, Options{PastLength: true}, ""); err != nil {
			t.Error(err)
		} else if typ, _ := m.pasts[0].Type(); typ.Dims[2].Param != name {
			t.Errorf("a buffer is %s", typ)
		}
	}
}
