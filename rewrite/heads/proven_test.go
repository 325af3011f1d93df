package heads

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestHeadsAreProven: the transposition stays before a rotation whose table is moved to the wrong axis, and its change
// is undone.
func TestHeadsAreProven(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		m, n := rotated(t)
		h := newMover(&pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m)}, new(prove.Prover), m.Graph)
		if wrong {
			h.tables[n.Input(1)] = n.Input(1) // unchanged, although the rows moved
		}
		before := m.Graph.Text()
		if err := h.move(n); err != nil {
			t.Fatal(err)
		}
		if p := n.Input(0).Producer; (p != nil && p.Is("Transpose") && m.Graph.Text() == before) != wrong ||
			(len(h.unproven) > 0) != wrong {
			t.Errorf("wrong table %v, unproven %q:\n%s", wrong, h.unproven, m.Graph.Text())
		}
	}
}

// TestHeadsThatStay: only rotations of transposed heads that attention alone reads move, with tables that are the same
// for all heads.
func TestHeadsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		tables []any
		change func(m *onnx.Model, n *onnx.Node)
		moves  bool
	}{
		"as it is":      {nil, nil, true},
		"plain tables":  {[]any{"tokens", 8}, nil, true},
		"batch of ones": {[]any{1, 1, "tokens", 8}, nil, true},
		"of each head":  {[]any{"batch", 2, "tokens", 8}, nil, false},
		"other axes": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Input(0).Producer.SetAttr(onnx.IntsAttr("perm", []int64{0, 2, 3, 1}))
		}, false},
		"an output": {nil, func(m *onnx.Model, n *onnx.Node) { m.Graph.AddOutput(n.Outputs[0]) }, false},
		"another reader": {nil, func(m *onnx.Model, n *onnx.Node) {
			m.Graph.AddNode("Neg", n.Outputs, []*onnx.Value{m.Graph.NewValue("neg")})
		}, false},
		"values": {nil, func(_ *onnx.Model, n *onnx.Node) {
			use := n.Outputs[0].Uses()[0]
			use.Node.SetInput(fused.AttentionV, n.Outputs[0])
		}, false},
		"an op of the same name": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Outputs[0].Uses()[0].Node.Domain = ""
		}, false},
		"another op of the domain": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Outputs[0].Uses()[0].Node.OpType = "LatentAttention"
		}, false},
		"a longer permutation": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Input(0).Producer.SetAttr(onnx.IntsAttr("perm", []int64{0, 2, 1, 3, 4}))
		}, false},
		"rows of a node that moves nothing": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Input(0).Producer.OpType = "Identity"
		}, false},
		"a table of an unknown size": {[]any{"batch", "heads", "tokens", 8}, nil, false},
		"a table of one row":         {[]any{8}, nil, true},
		"a table of each sequence":   {[]any{"batch", "tokens", 8}, nil, false},
		"read in place": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Outputs[0].Uses()[0].Node.SetAttr(onnx.StringAttr("q_layout", "bsnh"))
		}, false},
		"unread": {nil, func(_ *onnx.Model, n *onnx.Node) {
			use := n.Outputs[0].Uses()[0]
			use.Node.SetInput(use.Index, use.Node.Input(fused.AttentionK))
		}, false},
	} {
		m, n := rotated(t, c.tables...)
		n.Outputs[0].SetType(onnxtest.Type(onnx.Float, "batch", 2, "tokens", 8))
		if c.change != nil {
			c.change(m, n)
		}
		before := m.Graph.Text()
		run := &pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m), Skips: func(*onnx.Function) bool {
			return true
		}}
		unproven, err := Apply(run)
		if err != nil || unproven != nil || (m.Graph.Text() == before) == c.moves {
			t.Errorf("%s: %v, %q:\n%s", name, err, unproven, m.Graph.Text())
		}
		if len(m.Functions) != 2 { // one for each op: attention's other layout is not called any more
			t.Errorf("%s: %d definitions", name, len(m.Functions))
		}
		if typ, _ := n.Outputs[0].Type(); c.moves && (typ.Dims[1].Param != "tokens" || typ.Dims[2].Value != 2) {
			t.Errorf("%s: the rotated rows are declared %s", name, typ)
		}
	}
}

// TestTablesWithAnAxis: a table to which an Unsqueeze adds the axis of the heads gets the axis in another place, and
// other tables of one head lose theirs first. Both rotations of a table share the new one.
func TestTablesWithAnAxis(t *testing.T) {
	for name, c := range map[string]struct {
		axes  []int64
		given bool // as an input of the Unsqueeze
		nodes map[string]int
	}{
		"as an input":     {[]int64{1}, true, map[string]int{"Unsqueeze": 2}},
		"from the end":    {[]int64{-3}, true, map[string]int{"Unsqueeze": 2}},
		"as an attribute": {[]int64{1}, false, map[string]int{"Unsqueeze": 2}},
		"of other nodes":  {nil, false, map[string]int{"Unsqueeze": 2, "Squeeze": 2}},
	} {
		m, n := rotated(t)
		b := onnxtest.Builder{Model: m, Graph: m.Graph}
		if c.axes != nil {
			for i := 1; i <= 2; i++ {
				v := b.Input("table", onnx.Float, "batch", "tokens", 8)
				axes := []any{v, b.Ints(c.axes...)}
				if !c.given {
					axes = []any{v, onnx.IntsAttr("axes", c.axes)}
				}
				n.SetInput(i, b.Op("Unsqueeze", axes...))
				n.Input(i).SetType(onnxtest.Type(onnx.Float, "batch", 1, "tokens", 8))
			}
		}
		run := &pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m), Skips: func(*onnx.Function) bool {
			return true
		}}
		unproven, err := Apply(run)
		ops := rewritetest.CountOps(m)
		if err != nil || unproven != nil || ops["Transpose"] != 0 || ops["Unsqueeze"] != c.nodes["Unsqueeze"] ||
			ops["Squeeze"] != c.nodes["Squeeze"] {
			t.Errorf("%s: %v, %q, %v", name, err, unproven, ops)
			continue
		}
		for i := 1; i <= 2; i++ {
			v := n.Input(i)
			axis, known := infer.Analyze(m).Constant(v.Producer.Input(1))
			if !v.Producer.Is("Unsqueeze") || !known || axis.I[0] != 2 || !strings.HasSuffix(v.Name, "_of_tokens") {
				t.Errorf("%s: the table is %s", name, v.Producer.Text())
			}
		}
		if a := m.Graph.Nodes[len(m.Graph.Nodes)-1]; a.AttrString("q_layout", "") != "bsnh" ||
			a.AttrString("k_layout", "") != "bnsh" {
			t.Errorf("%s: %s", name, a.Text())
		}
	}
}

// rotated returns a model with transposed and rotated queries of attention, and its rotation.
func rotated(t *testing.T, table ...any) (*onnx.Model, *onnx.Node) {
	t.Helper()
	if table == nil {
		table = []any{"batch", 1, "tokens", 8}
	}
	b := rewritetest.New(t, 20, onnx.Float)
	b.Model.ImportOpset(fused.Domain, fused.Version)
	x := b.In("x", "batch", "tokens", 2, 8)
	tables := []*onnx.Value{b.In("cos", table...), b.In("sin", table...)}
	k, v := b.In("k", "batch", 2, "tokens", 8), b.In("v", "batch", 2, "tokens", 8)
	q := b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	call := func(op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Node {
		n := b.Graph.AddNode(op, inputs, []*onnx.Value{b.Graph.NewValue(op)}, attrs...)
		n.Domain = fused.Domain
		f, err := fused.Lookup(op).Function(pass.FusedSite(b.Model, infer.Analyze(b.Model), n))
		if err != nil {
			t.Fatal(err)
		}
		n.Overload = f.Overload
		b.Model.Functions = append(b.Model.Functions, f)
		return n
	}
	rotation := call("RotaryEmbedding", append([]*onnx.Value{q}, tables...), fused.RotaryEmbedding{RotaryDim: 8,
		RotatedSide: "first", OutputLayout: "halves"}.Attributes()...)
	attends := call(fused.AttentionName, []*onnx.Value{rotation.Outputs[0], k, v}, fused.Attention{Scale: 0.25,
		Empty: "mean", HeadOrder: "blocked", QLayout: "bnsh", KLayout: "bnsh", VLayout: "bnsh",
		YLayout: "bnsh"}.Attributes()...)
	b.Output(attends.Outputs[0])
	return b.Model, rotation
}
