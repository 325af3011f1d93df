package staticcache

import (
	"errors"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// made is a model of attention with caches, as patching writes it.
type made struct {
	*onnxtest.Builder
	sites []*onnx.Node
	pasts []*onnx.Value // keys and values of each site
}

// attends adds attention with a cache of these dimensions.
func (m *made) attends(t *testing.T, past ...any) *onnx.Node {
	t.Helper()
	name := func(s string) string { return s + string(rune('0'+len(m.sites))) }
	in := make([]*onnx.Value, fused.AttentionPastValue+1)
	for i, s := range []string{fused.AttentionQ: "q", fused.AttentionK: "k", fused.AttentionV: "v"} {
		in[i] = m.Input(name(s), onnx.Float, "batch", 2, "new", 8)
	}
	in[fused.AttentionPastKey] = m.Input(name("past_key"), onnx.Float, past...)
	in[fused.AttentionPastValue] = m.Input(name("past_value"), onnx.Float, past...)
	m.pasts = append(m.pasts, in[fused.AttentionPastKey], in[fused.AttentionPastValue])
	out := []*onnx.Value{m.Graph.NewValue(name("y")), m.Graph.NewValue(name("key")), m.Graph.NewValue(name("value"))}
	n := m.Graph.AddNode(fused.AttentionName, in, out, fused.Attention{Scale: 0.25, Causal: true, Empty: "mean",
		HeadOrder: "blocked", QLayout: "bnsh", KLayout: "bnsh", VLayout: "bnsh", YLayout: "bnsh"}.Attributes()...)
	n.Domain, n.Name = fused.Domain, name("attention")
	m.define(t, n)
	for _, v := range out {
		m.Output(v)
	}
	m.sites = append(m.sites, n)
	return n
}

// define makes attention call the definition for its inputs.
func (m *made) define(t *testing.T, n *onnx.Node) {
	t.Helper()
	f, err := fused.Lookup(n.OpType).Function(pass.FusedSite(m.Model, infer.Analyze(m.Model), n))
	if err != nil {
		t.Fatal(err)
	}
	n.Overload = f.Overload
	new(edit.Change).AddFunction(m.Model, f)
}

// TestWhichCachesBecomeBuffers: all caches of a model become buffers, or the error names the obstacle and the model
// stays.
func TestWhichCachesBecomeBuffers(t *testing.T) {
	cache := []any{"batch", 2, "past", 8}
	for name, c := range map[string]struct {
		past   []any
		change func(m *made)
		want   string // "" if the caches become buffers
	}{
		"one layer":  {cache, nil, ""},
		"two layers": {cache, func(m *made) { m.attends(t, cache...) }, ""},
		"readers of lengths": {cache, func(m *made) {
			m.Output(m.Op("Shape", m.pasts[0]))
			m.Output(m.Op("Shape", m.sites[0].Outputs[1]))
		}, ""},
		"copies": {cache, func(m *made) {
			m.sites[0].SetInput(fused.AttentionPastKey, m.Op("Identity", m.pasts[0]))
			m.Graph.Nodes = []*onnx.Node{m.Graph.Nodes[1], m.Graph.Nodes[0]}
		}, ""},
		"a reader of a copied present": {cache, func(m *made) {
			m.Output(m.Op("Shape", m.Op("Identity", m.sites[0].Outputs[2])))
		}, ""},
		"copied presents": {cache, func(m *made) {
			new(edit.Change).SetOutput(m.Graph, 1, m.Op("Identity", m.sites[0].Outputs[1]))
			new(edit.Change).SetOutput(m.Graph, 2, m.Op("Identity", m.sites[0].Outputs[2]))
		}, ""},
		"unread readers": {cache, func(m *made) { m.Op("Neg", m.sites[0].Outputs[1]) }, ""},
		"another length": {cache, func(m *made) { m.attends(t, "batch", 2, "other", 8) },
			`inputs "past_key0" and "past_key1" are not known to hold the same number of tokens`},
		"a fixed length": {[]any{"batch", 2, 7, 8}, nil, `input "past_key0" always holds 7 tokens`},
		"unknown heads":  {[]any{"batch", "heads", "past", 8}, nil, "expected a cache [batch, heads, tokens, width]"},
		"a computed past": {cache, func(m *made) {
			m.sites[0].SetInput(fused.AttentionPastKey, m.Op("Neg", m.pasts[0]))
			m.Graph.Nodes = []*onnx.Node{m.Graph.Nodes[1], m.Graph.Nodes[0]}
		}, `(Neg) computes the past of node "attention0" from the cache "past_key0"`},
		"no present": {cache, func(m *made) { new(edit.Change).SetOutput(m.Graph, 2, m.sites[0].Outputs[1]) },
			`does not output the new cache of input "past_value0"`},
		"another reader of the past": {cache, func(m *made) { m.Output(m.Op("Neg", m.pasts[1])) },
			`(Neg) also reads "past_value0"`},
		"another reader of the present": {cache, func(m *made) { m.Output(m.Op("Abs", m.sites[0].Outputs[1])) },
			`(Abs) also reads "key0"`},
		"another cache": {cache, func(m *made) {
			m.Output(m.Op("Neg", m.Input("more", onnx.Float, "batch", "past", 4)))
		}, `input "more" is not a cache of fused attention`},
		"an input of another length": {cache, func(m *made) {
			m.Output(m.Op("Neg", m.Input("more", onnx.Float, "batch", "others", 4)))
		}, ""},
		"a short input of that length": {cache, func(m *made) {
			m.Output(m.Op("Neg", m.Input("more", onnx.Float, "batch", "past")))
		}, ""},
		"a joined cache": {cache, func(m *made) {
			m.Output(m.Op("Concat", m.Input("more", onnx.Float, "batch", 2, "past", 8), m.Graph.Value("k0"),
				onnx.IntAttr("axis", -2)))
		}, `no fused attention reads the cache "more", which node "node_concat" (Concat) joins with new rows ` +
			`(inspect --why shows why), but all caches must be buffers`},
		"a cache joined elsewhere": {cache, func(m *made) {
			m.Output(m.Op("Concat", m.Input("more", onnx.Float, "batch", 2, "new", 16), m.Graph.Value("k0"),
				onnx.IntAttr("axis", -1)))
		}, `joins the cache "more" and new rows along axis 3 of 4: expected a cache [batch, heads, tokens, width]`},
		"a copy as an output": {cache, func(m *made) { m.Output(m.Op("Identity", m.pasts[0])) },
			`(Identity) also reads "past_key0"`},
		"no caches": {cache, func(m *made) {
			m.Graph.Nodes, m.Graph.Outputs = nil, nil
			m.Output(m.Op("Neg", m.Graph.Inputs[0]))
		}, ErrNoCache.Error()},
		"buffers": {cache, func(m *made) {
			length := m.Input("length", onnx.Int64, 1)
			new(edit.Change).SetInput(m.sites[0], fused.AttentionPastLength, length)
		}, "already writes into buffers"},
	} {
		m := &made{Builder: onnxtest.New(20)}
		m.Model.ImportOpset(fused.Domain, fused.Version)
		m.attends(t, c.past...)
		if c.change != nil {
			c.change(m)
		}
		before := m.Graph.Text()
		r, err := Apply(runOf(m.Model, infer.Analyze(m.Model)), Options{PastLength: true}, "")
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "be static") {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			if name == "no caches" && !errors.Is(err, ErrNoCache) {
				t.Errorf("%s: %v is another error", name, err)
			}
			if m.Graph.Text() != before {
				t.Errorf("%s: the model was changed:\n%s", name, m.Graph.Text())
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		length := m.Graph.Value("past_length")
		if len(r.Inputs) != len(m.pasts) || r.LengthFrom != "past_length" || length == nil || !length.IsInput ||
			r.BytesPerToken != int64(len(m.pasts)*2*8*4) || r.Check.Cases == 0 || r.Rows ||
			(len(r.Readers) == 2) != (name == "readers of lengths") {
			t.Errorf("%s: %+v", name, r)
		}
		if dead, _ := edit.Unread(m.Graph.Nodes); len(dead) > 0 {
			t.Errorf("%s: unread nodes are left:\n%s", name, m.Graph.Text())
		}
		for i, n := range m.sites {
			if n.Input(fused.AttentionPastLength) != length || n.Input(fused.AttentionPastKey) != m.pasts[2*i] {
				t.Errorf("%s: %s", name, n.Text())
			}
			for k, v := range n.Outputs {
				if !v.IsOutput() || m.Graph.Outputs[3*i+k] != v {
					t.Errorf("%s: output %d of %q is not the model's", name, k, n.Label())
				}
			}
		}
	}
}

// TestMergedForms finds the flag of a merged decoder behind nodes that only pass it on.
func TestMergedForms(t *testing.T) {
	for name, c := range map[string]struct {
		flag  func(b *onnxtest.Builder, flag *onnx.Value) *onnx.Value
		found bool
	}{
		"the input": {func(_ *onnxtest.Builder, flag *onnx.Value) *onnx.Value { return flag }, true},
		"squeezed":  {func(b *onnxtest.Builder, f *onnx.Value) *onnx.Value { return b.Op("Squeeze", f) }, true},
		"in a shape": {func(b *onnxtest.Builder, f *onnx.Value) *onnx.Value {
			return b.Op("Reshape", f, b.Ints())
		}, true},
		"cast": {func(b *onnxtest.Builder, f *onnx.Value) *onnx.Value {
			return b.Op("Cast", b.Op("Identity", f), onnx.IntAttr("to", int64(onnx.Bool)))
		}, true},
		"negated":    {func(b *onnxtest.Builder, f *onnx.Value) *onnx.Value { return b.Op("Not", f) }, false},
		"a constant": {func(b *onnxtest.Builder, _ *onnx.Value) *onnx.Value { return b.Ints(1) }, false},
	} {
		for _, inThen := range []bool{true, false} {
			b := onnxtest.New(20)
			flag, past := b.Input("flag", onnx.Bool, 1), b.Input("past", onnx.Float, "batch", 2, "past", 8)
			x, ids := b.Input("x", onnx.Float, "batch", 4), b.Input("ids", onnx.Int64, "batch", 1, 1, 1)
			branch := func(reads ...*onnx.Value) *onnx.Graph {
				g := b.Graph.NewSubgraph("branch")
				for _, v := range reads {
					g.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: g}).Op("Neg", v))
				}
				return g
			}
			with, without := branch(past, x), branch(x, ids)
			then, otherwise, none := with, without, int64(0)
			if !inThen {
				then, otherwise, none = without, with, 1
			}
			n := b.Op("If", c.flag(b, flag), onnx.GraphAttr("then_branch", then),
				onnx.GraphAttr("else_branch", otherwise))
			b.Output(n)
			got := findMerged(b.Graph)
			if (got != nil) != c.found || got != nil && (got.node != n.Producer || got.flag != flag ||
				got.with != with || got.flagOfNone != none) {
				t.Errorf("%s: found %+v", name, got)
			}
		}
	}
}

// TestRows: a row of a batch equals the value of one sequence, or the row of a value for all of them.
func TestRows(t *testing.T) {
	floats := func(shape []int, list ...float64) *reference.Tensor {
		return reference.NewFloats(onnx.Float, shape, list)
	}
	ints := func(shape []int, list ...int64) *reference.Tensor { return reference.NewInts(onnx.Int64, shape, list) }
	x := floats([]int{2, 2}, 1, 2, 3, 4)
	for name, c := range map[string]struct {
		x, y *reference.Tensor
		is   bool // row 1 of x
	}{
		"its row":         {x, floats([]int{1, 2}, 3, 4), true},
		"the first row":   {x, floats([]int{1, 2}, 1, 2), false},
		"all rows":        {x, floats([]int{2, 2}, 9, 9, 3, 4), true},
		"other rows":      {x, floats([]int{2, 2}, 3, 4, 1, 2), false},
		"integers":        {ints([]int{2, 1}, 5, 6), ints([]int{1, 1}, 6), true},
		"other integers":  {ints([]int{2, 1}, 5, 6), ints([]int{1, 1}, 5), false},
		"another width":   {x, floats([]int{1, 3}, 3, 4, 5), false},
		"another rank":    {x, floats([]int{2}, 3, 4), false},
		"one axis":        {floats([]int{2}, 3, 4), floats([]int{1}, 4), true},
		"another batch":   {floats([]int{3, 1}, 1, 2, 3), floats([]int{1, 1}, 2), false},
		"a scalar":        {floats([]int{}, 1), floats([]int{}, 1), false},
		"of no elements":  {floats([]int{2, 0}), floats([]int{1, 0}), false},
		"without a value": {x, nil, false},
	} {
		if got := isRow(c.x, c.y, 1, 2); got != c.is {
			t.Errorf("%s: %v", name, got)
		}
	}
}
