package products

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
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

// TestMergesAreProven: products whose merged weights are in another order stay and are reported.
func TestMergesAreProven(t *testing.T) {
	m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	a := &merger{Run: runOf(m), prover: new(prove.Prover)}
	var group []*onnx.Node
	for _, n := range m.Graph.Nodes {
		if isProjection(n) && (group == nil || n.Input(0) == group[0].Input(0) && floatKind(n) == floatKind(group[0])) {
			group = append(group, n)
		}
	}
	if len(group) < 2 {
		t.Fatalf("%d products of one value", len(group))
	}
	before := m.Graph.Text()
	turned := func(g *onnx.Graph, group []*onnx.Node) error {
		group = slices.Clone(group)
		for i, j := 0, len(group)-1; i < j; i, j = i+1, j-1 {
			a, b := group[i].Outputs[0], group[j].Outputs[0]
			group[i].TakeOutput(0, b)
			group[j].TakeOutput(0, a)
		}
		return a.merge(g, group)
	}
	if err := a.provenMerge(group, turned); err == nil {
		t.Error("products in another order are taken for the same")
	}
	if err := a.provenMerge(group, a.merge); err == nil {
		t.Error("equal claims are proven once: the second one fails as the first did")
	}
	a.prover = new(prove.Prover)
	if err := a.provenMerge(group, a.merge); err != nil || a.prover.Checked().Cases != 4 {
		t.Errorf("%v after %d cases", err, a.prover.Checked().Cases)
	}
	by := map[*onnx.Value][]*onnx.Node{}
	for _, n := range m.Graph.Nodes {
		if isProjection(n) && floatKind(n) == floatKind(group[0]) {
			by[n.Input(0)] = append(by[n.Input(0)], n)
		}
	}
	for _, others := range by { // the same kind, with other widths
		if len(others) == 2 && a.provenMerge(others, turned) == nil {
			t.Errorf("the products of %q are not proven", others[0].Input(0).Name)
		}
	}
	if m.Graph.Text() != before {
		t.Error("the proof changed the model")
	}
}

// TestQuantizedProducts merges products with quantized weights. Only the last one may have a partial panel of 16 rows.
func TestQuantizedProducts(t *testing.T) {
	for _, c := range []struct {
		rows  []int64
		half  bool
		want  MergeReport
		sizes []int64
	}{{[]int64{16, 48, 21}, false, MergeReport{3, 1}, []int64{16, 48, 21}},
		{[]int64{16, 21, 32}, false, MergeReport{2, 1}, []int64{16, 32}}, {[]int64{21, 21}, false, MergeReport{}, nil},
		{[]int64{21}, false, MergeReport{}, nil}, {[]int64{5, 40}, true, MergeReport{2, 1}, []int64{5, 40}}} {
		b := rewritetest.New(t, 20, onnx.Float)
		b.Model.ImportOpset(fused.Domain, fused.Version)
		x := b.In("x", 3, 64)
		for _, n := range c.rows {
			op, w := fused.LinearName, []any{x}
			q, _ := rewritetest.Quantized("w", n, 64)
			attrs := q.Linear("float").Attributes()
			if c.half {
				v, err := onnx.NewTensor("w", onnx.Float16, []int64{n, 64}, make([]byte, n*128))
				if err != nil {
					t.Fatal(err)
				}
				op, attrs = fused.HalfLinearName, fused.HalfLinear{Layout: "out_in"}.Attributes()
				w = append(w, b.Constant(v))
			} else {
				w = append(w, b.Constant(q.Codes), b.Constant(q.Scale))
			}
			y := b.Op("mojo:"+op, append(w, attrs)...)
			b.Out(y, 3, int(n))
			f, err := fused.Lookup(op).Function(pass.FusedSite(b.Model, infer.Analyze(b.Model), y.Producer))
			if err != nil {
				t.Fatal(err)
			}
			y.Producer.Overload = f.Overload
			new(edit.Change).AddFunction(b.Model, f)
		}
		want := rewritetest.Evaluate(t, b.Model)
		run := runOf(b.Model)
		r, unproven, err := Apply(run, true)
		if err != nil || unproven != nil || *r != c.want {
			t.Errorf("%v: %+v, %q, %v", c.rows, r, unproven, err)
		}
		var sizes []int64
		for _, n := range b.Graph.Nodes {
			if n.Is("Split") {
				columns, err := reference.FromONNX(n.Input(1).Const)
				if err != nil {
					t.Fatal(err)
				}
				sizes = columns.I
			}
		}
		if !slices.Equal(sizes, c.sizes) {
			t.Errorf("%v: split into %d", c.rows, sizes)
		}
		for name, got := range rewritetest.Evaluate(t, b.Model) {
			if !slices.Equal(got.F, want[name].F) {
				t.Errorf("%v: %s has other bits", c.rows, name)
			}
		}
	}
}
