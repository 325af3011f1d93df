package heads

import (
	"fmt"
	"slices"
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

func runOf(m *onnx.Model) *pass.Run {
	return &pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m),
		Skips: func(*onnx.Function) bool { return true }}
}

// TestHeadsAreProven: the transposition stays before a rotation whose table is moved to the wrong axis, and its change
// is undone.
func TestHeadsAreProven(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		m, n := rotated(t)
		p := new(prove.Prover)
		h := newMover(runOf(m), p, m.Graph)
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
		if cases := p.Checked().Cases; !wrong && cases != 8 { // rows and attention, on two inputs, exactly and rounded
			t.Errorf("%d cases were tried", cases)
		}
		if wrong {
			if h.tables[n.Input(1)] != nil {
				t.Error("the table of an undone change is kept")
			}
			continue
		}
		m, _ = rotated(t)
		m.Functions[0].Body.Nodes = nil // the rotation sums the rows of each head
		f := onnxtest.Builder{Model: m, Graph: m.Functions[0].Body}
		f.Graph.Outputs[0] = f.Op("CumSum", f.Graph.Inputs[0], f.Ints(2))
		before = m.Graph.Text()
		unproven, err := Apply(runOf(m))
		want := `HeadsInPlace: node "the RotaryEmbedding": the rows`
		if err != nil || len(unproven) != 1 || !strings.HasPrefix(unproven[0], want) ||
			m.Graph.Text() != before {
			t.Errorf("a rotation that is none: %q, %v:\n%s", unproven, err, m.Graph.Text())
		}
	}
}

// TestFewTokens: attention is tried with a cache, if it has one, and without, on as many tokens as the graph allows.
func TestFewTokens(t *testing.T) {
	type dims = []int64
	for name, c := range map[string]struct {
		layout string
		q      dims
		cached bool
		want   string // queries, keys and cached keys of each trial
	}{
		"free":            {"bnsh", dims{-1, 2, -1, 8}, true, "[2 2 4 8] [2 2 4 8] [2 2 3 8]; [2 2 5 8] [2 2 5 8] [2 2 0 8]"},
		"without a cache": {"bnsh", dims{-1, 2, -1, 8}, false, "[2 2 4 8] [2 2 4 8]; [2 2 5 8] [2 2 5 8]"},
		"one sequence":    {"bnsh", dims{1, 2, -1, 8}, false, "[1 2 4 8] [1 2 4 8]; [1 2 5 8] [1 2 5 8]"},
		"one token":       {"bnsh", dims{-1, 2, 1, 8}, false, "[2 2 1 8] [2 2 1 8]; [2 2 1 8] [2 2 1 8]"},
		"one token first": {"bsnh", dims{-1, 1, 2, 8}, false, "[2 1 2 8] [2 2 1 8]; [2 1 2 8] [2 2 1 8]"},
		"one head":        {"bsnh", dims{-1, -1, 1, 8}, false, "[2 4 1 8] [2 1 4 8]; [2 5 1 8] [2 1 5 8]"},
	} {
		heads := c.q[1]
		if c.layout == "bsnh" {
			heads = c.q[2]
		}
		cache := dims{c.q[0], heads, -1, 8}
		g := onnx.New(10, 20).Graph
		n := &onnx.Node{OpType: fused.AttentionName, Inputs: make([]*onnx.Value, fused.AttentionPastValue+1)}
		site := fused.Site{Opset: 20, Types: make([]onnx.DataType, len(n.Inputs)), Dims: make([][]int64, len(n.Inputs)),
			Attributes: fused.Attention{Empty: "mean", HeadOrder: "blocked", QLayout: c.layout, KLayout: "bnsh",
				VLayout: "bnsh", YLayout: "bnsh"}.Attributes()}
		for i := range n.Inputs {
			of := map[int]dims{fused.AttentionQ: c.q, fused.AttentionK: cache, fused.AttentionV: cache}[i]
			if c.cached && i >= fused.AttentionPastKey {
				of = cache
			}
			if of != nil {
				n.Inputs[i], site.Types[i], site.Dims[i] = g.NewValue("v"), onnx.Float, of
			}
		}
		n.Attributes = site.Attributes
		var got []string
		for trial, err := range fewTokensOf(n, site) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var shapes []string
			for _, i := range []int{fused.AttentionQ, fused.AttentionK, fused.AttentionPastKey} {
				if x := trial.Inputs[i]; x != nil {
					shapes = append(shapes, fmt.Sprint(x.Shape))
				}
			}
			got = append(got, strings.Join(shapes, " "))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
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
		"a number as a table": {nil, func(m *onnx.Model, n *onnx.Node) {
			n.SetInput(1, m.Graph.AddInput("table", onnxtest.Type(onnx.Float)))
		}, false},
		"a table of five dimensions": {nil, func(m *onnx.Model, n *onnx.Node) {
			n.SetInput(1, m.Graph.AddInput("table", onnxtest.Type(onnx.Float, "batch", 1, 1, "tokens", 8)))
		}, false},
		"a table of an unknown rank": {nil, func(m *onnx.Model, n *onnx.Node) {
			n.SetInput(1, m.Graph.AddInput("table", onnx.Type{DataType: onnx.Float}))
		}, false},
		"a rotation of another domain": {nil, func(_ *onnx.Model, n *onnx.Node) { n.Domain = "" }, false},
		"a table of each sequence":     {[]any{"batch", "tokens", 8}, nil, false},
		"read in place": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Outputs[0].Uses()[0].Node.SetAttr(onnx.StringAttr("q_layout", "bsnh"))
		}, false},
		"unread": {nil, func(_ *onnx.Model, n *onnx.Node) {
			use := n.Outputs[0].Uses()[0]
			use.Node.SetInput(use.Index, use.Node.Input(fused.AttentionK))
		}, false},
		"rows of no declared shape": {nil, func(_ *onnx.Model, n *onnx.Node) {
			n.Outputs[0].SetType(onnx.Type{DataType: onnx.Float})
		}, true},
	} {
		m, n := rotated(t, c.tables...)
		n.Outputs[0].SetType(onnxtest.Type(onnx.Float, "batch", 2, "tokens", 8))
		if c.change != nil {
			c.change(m, n)
		}
		before := m.Graph.Text()
		unproven, err := Apply(runOf(m))
		if err != nil || unproven != nil || (m.Graph.Text() == before) == c.moves {
			t.Errorf("%s: %v, %q:\n%s", name, err, unproven, m.Graph.Text())
		}
		if len(m.Functions) != 2 { // one for each op: attention's other layout is not called any more
			t.Errorf("%s: %d definitions", name, len(m.Functions))
		}
		if typ, _ := n.Outputs[0].Type(); c.moves && typ.HasShape &&
			(typ.Dims[1].Param != "tokens" || typ.Dims[2].Value != 2) {
			t.Errorf("%s: the rotated rows are declared %s", name, typ)
		}
	}
}

// TestHeadsWithErrors: a rotation whose claim cannot be evaluated stays, and a graph without an order is an error.
func TestHeadsWithErrors(t *testing.T) {
	for want, change := range map[string]func(m *onnx.Model, n *onnx.Node){
		"mojo.Attention needs opset": func(m *onnx.Model, _ *onnx.Node) { m.Opsets[0].Version = 12 },
		"cannot be put in order": func(m *onnx.Model, _ *onnx.Node) {
			a := m.Graph.AddNode("Neg", m.Graph.Inputs[:1], []*onnx.Value{m.Graph.NewValue("a")})
			a.SetInput(0, m.Graph.AddNode("Neg", a.Outputs, []*onnx.Value{m.Graph.NewValue("b")}).Outputs[0])
		},
	} {
		m, n := rotated(t)
		change(m, n)
		unproven, err := Apply(runOf(m))
		if got := fmt.Sprint(unproven, err); !strings.Contains(got, want) {
			t.Errorf("%s, want %q", got, want)
		}
	}
}

// TestTablesWithAnAxis: a table to which an Unsqueeze adds the axis of the heads gets the axis in another place, and
// other tables of one head lose theirs first. Both rotations of a table share the new one.
func TestTablesWithAnAxis(t *testing.T) {
	for name, c := range map[string]struct {
		axes  []int64
		given bool // as an input of the Unsqueeze
		dims  []any
		nodes map[string]int
	}{
		"as an input":      {[]int64{1}, true, nil, map[string]int{"Unsqueeze": 2}},
		"from the end":     {[]int64{-3}, true, nil, map[string]int{"Unsqueeze": 2}},
		"as an attribute":  {[]int64{1}, false, nil, map[string]int{"Unsqueeze": 2}},
		"of all sequences": {[]int64{0}, true, []any{"tokens", 8}, map[string]int{"Unsqueeze": 2}},
		"of other nodes":   {nil, false, nil, map[string]int{"Unsqueeze": 2, "Squeeze": 2}},
		"an unknown axis":  {[]int64{}, true, nil, map[string]int{"Unsqueeze": 4, "Squeeze": 2}},
	} {
		m, n := rotated(t)
		n.Outputs[0].SetType(onnxtest.Type(onnx.Float, "batch", 2, "tokens", 8))
		b := onnxtest.Builder{Model: m, Graph: m.Graph}
		if c.dims == nil {
			c.dims = []any{"batch", "tokens", 8}
		}
		if c.axes != nil {
			for i := 1; i <= 2; i++ {
				v := b.Input("table", onnx.Float, c.dims...)
				axes := []any{v, b.Ints(c.axes...)}
				if len(c.axes) == 0 {
					axes[1] = b.Input("axes", onnx.Int64, 1)
				} else if !c.given {
					axes = []any{v, onnx.IntsAttr("axes", c.axes)}
				}
				n.SetInput(i, b.Op("Unsqueeze", axes...))
				dims := slices.Insert(slices.Clone(c.dims), len(c.dims)-2, any(1))
				n.Input(i).SetType(onnxtest.Type(onnx.Float, dims...))
			}
		}
		keys := b.Op("Transpose", b.Input("keys", onnx.Float, "batch", "tokens", 2, 8),
			onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		rotated := b.Op("mojo:RotaryEmbedding", keys, n.Input(1), n.Input(2), n.Attributes)
		rotated.Producer.Overload = n.Overload
		n.Outputs[0].Uses()[0].Node.SetInput(fused.AttentionK, rotated)
		if err := m.Graph.Sort(); err != nil {
			t.Fatal(err)
		}
		unproven, err := Apply(runOf(m))
		ops := rewritetest.CountOps(m)
		if err != nil || unproven != nil || ops["Transpose"] != 0 || ops["Unsqueeze"] != c.nodes["Unsqueeze"] ||
			ops["Squeeze"] != c.nodes["Squeeze"] {
			t.Errorf("%s: %v, %q, %v", name, err, unproven, ops)
			continue
		}
		for i := 1; i <= 2; i++ {
			v := n.Input(i)
			axis, known := infer.Analyze(m).Constant(v.Producer.Input(1))
			if !v.Producer.Is("Unsqueeze") || !known || axis.I[0] != int64(len(c.dims)-1) ||
				!strings.HasSuffix(v.Name, "_of_tokens") {
				t.Errorf("%s: the table is %s", name, v.Producer.Text())
			}
		}
		if a := m.Graph.Nodes[len(m.Graph.Nodes)-1]; a.AttrString("q_layout", "") != "bsnh" ||
			a.AttrString("k_layout", "") != "bsnh" || rotated.Producer.Input(1) != n.Input(1) {
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
		n.Name, n.Overload = "the "+op, f.Overload
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

// TestInsertedAxes: which Unsqueeze adds only the axis of the heads, the second of four.
func TestInsertedAxes(t *testing.T) {
	for _, c := range []struct {
		axes []int64
		want bool
	}{{[]int64{1}, true}, {[]int64{-3}, true}, {[]int64{0}, false}, {[]int64{-1}, false}, {[]int64{0, 1}, false},
		{[]int64{1, 2}, false}} {
		b := onnxtest.New(18)
		y := b.Op("Unsqueeze", b.Input("x", onnx.Float, 2, "n", 8), c.axes)
		h := newMover(runOf(b.Model), nil, b.Graph)
		if got := h.inserts(y.Producer, 1, 4); got != c.want {
			t.Errorf("axes %d: %v", c.axes, got)
		}
	}
	b := onnxtest.New(18)
	y := b.Op("Unsqueeze", b.Input("x", onnx.Float, 2, "n", 8), b.Input("axes", onnx.Int64, 1))
	h := newMover(runOf(b.Model), nil, b.Graph)
	if h.inserts(y.Producer, 1, 4) {
		t.Error("computed axes are taken for the heads")
	}
}
