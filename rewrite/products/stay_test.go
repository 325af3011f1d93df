package products

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// twoProducts returns a model with two products of x by constant weights: of floats, of float16 numbers for float32
// tokens, or of quantized numbers.
func twoProducts(t *testing.T, kind string) (*rewritetest.Builder, []*onnx.Node) {
	t.Helper()
	b := rewritetest.New(t, 20, onnx.Float)
	b.Model.ImportOpset(fused.Domain, fused.Version)
	x := b.In("x", 3, 64)
	var products []*onnx.Node
	stored := func(c *onnx.Tensor) *onnx.Value { return b.Graph.AddInitializer(c) }
	for range 2 {
		var y *onnx.Value
		switch kind {
		case "float":
			y = b.Op("MatMul", x, stored(onnx.NewFloat32s("w", []int64{64, 16}, make([]float32, 1024))))
		case "half":
			w, err := onnx.NewTensor("w", onnx.Float16, []int64{16, 64}, make([]byte, 2048))
			if err != nil {
				t.Fatal(err)
			}
			y = b.Op("mojo:"+fused.HalfLinearName, append([]any{x, stored(w)},
				fused.HalfLinear{Layout: "out_in"}.Attributes())...)
		case "quantized":
			q, _ := rewritetest.Quantized("w", 16, 64)
			y = b.Op("mojo:"+fused.LinearName, append([]any{x, stored(q.Codes), stored(q.Scale)},
				q.Linear("float").Attributes())...)
		}
		b.Out(y, 3, 16)
		n := y.Producer
		if n.Name = "product"; n.Domain == fused.Domain {
			f, err := fused.Lookup(n.OpType).Function(pass.FusedSite(b.Model, infer.Analyze(b.Model), n))
			if err != nil {
				t.Fatal(err)
			}
			n.Overload = f.Overload
			new(edit.Change).AddFunction(b.Model, f)
			n.Metadata = []onnx.Entry{{Key: edit.MetaFormat, Value: "q8"}}
		}
		products = append(products, n)
	}
	return b, products
}

// TestWhichProductsMerge: products of one value merge if nothing else reads their weights, and if these can be
// concatenated.
func TestWhichProductsMerge(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(b *rewritetest.Builder, first, n *onnx.Node)
		onlyQuantized bool
		merge         string // the kinds that still merge
	}{
		"as they are":    {nil, false, "float half quantized"},
		"only quantized": {nil, true, "half quantized"},
		"of two values": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			n.SetInput(0, b.In("other", 3, 64))
		}, false, ""},
		"a weight with another reader": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			b.Op("Shape", n.Input(1))
		}, false, ""},
		"a weight of both": {func(_ *rewritetest.Builder, first, n *onnx.Node) {
			n.SetInput(1, first.Input(1))
		}, false, ""},
		"a weight that is an output": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			b.Graph.AddOutput(n.Input(1))
		}, false, ""},
		"a computed weight": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			n.SetInput(1, b.Op("Identity", n.Input(1)))
		}, false, ""},
		"a weight of a node": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			n.SetInput(1, b.Op("Constant", onnx.TensorAttr("value", n.Input(1).Const)))
		}, false, ""},
		"another op": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			n.OpType = "Gather" + n.OpType
		}, false, ""},
		"another domain": {func(_ *rewritetest.Builder, _, n *onnx.Node) { n.Domain = "other" }, false, ""},
		"another format": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			n.Metadata = []onnx.Entry{{Key: edit.MetaFormat, Value: "other"}}
		}, false, "float half"},
		"another attribute": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			n.SetAttr(onnx.StringAttr("other", "x"))
		}, false, "float"},
		"a bias": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			places := map[string]int{fused.LinearName: fused.LinearBias, fused.HalfLinearName: fused.HalfLinearBias}
			if at := places[n.OpType]; at > 0 {
				bias := b.Graph.AddInitializer(onnx.NewFloat32s("bias", []int64{16}, make([]float32, 16)))
				new(edit.Change).SetInput(n, at, bias)
			}
		}, false, "float"},
	} {
		for _, kind := range []string{"float", "half", "quantized"} {
			b, products := twoProducts(t, kind)
			run := &pass.Run{Editor: edit.Editor{Model: b.Model}, Facts: infer.Analyze(b.Model),
				Skips: func(*onnx.Function) bool { return true }}
			if c.change != nil {
				c.change(b, products[0], products[1])
			}
			r, unproven, err := Apply(run, c.onlyQuantized)
			want := MergeReport{}
			if slices.Contains(strings.Fields(c.merge), kind) {
				want = MergeReport{2, 1}
			}
			if err != nil || *r != want || unproven != nil {
				t.Errorf("%s, %s: %+v, %q, %v", name, kind, r, unproven, err)
			}
		}
	}
}

// TestMergedNodes: the merged product and the split name the products that they replace.
func TestMergedNodes(t *testing.T) {
	for _, kind := range []string{"float", "half", "quantized"} {
		b, products := twoProducts(t, kind)
		outputs := []*onnx.Value{products[0].Outputs[0], products[1].Outputs[0]}
		names := []string{products[0].Input(1).Name, products[1].Input(1).Name}
		run := &pass.Run{Editor: edit.Editor{Model: b.Model}, Facts: infer.Analyze(b.Model),
			Skips: func(*onnx.Function) bool { return true }}
		r, _, err := Apply(run, false)
		if err != nil || r.Text() != "1 products of one value each, instead of 2" {
			t.Fatalf("%s: %v", r.Text(), err)
		}
		split := outputs[0].Producer
		n := split.Input(0).Producer
		if !split.Is("Split") || !slices.Equal(split.Outputs, outputs) || split.AttrInt("axis", 0) != -1 ||
			split.Name != "product_split" || n.Name != "product_merged" || n.Domain != products[0].Domain ||
			n.Overload != products[0].Overload || len(b.Graph.Nodes) != 2 {
			t.Errorf("%s: %s and %s", kind, n.Text(), split.Text())
		}
		for _, made := range []*onnx.Node{n, split} {
			if !slices.ContainsFunc(made.Metadata, func(e onnx.Entry) bool {
				return e.Key == edit.MetaRule && e.Value == ruleProducts
			}) {
				t.Errorf("%s: %q has the metadata %v", kind, made.Name, made.Metadata)
			}
		}
		if len(n.Inputs) != len(products[0].Inputs) || len(b.Graph.Initializers()) != len(n.Inputs) {
			t.Errorf("%s: %d inputs and %d initializers", kind, len(n.Inputs), len(b.Graph.Initializers()))
		}
		if kind != "quantized" {
			continue
		}
		var matrices []edit.MergedMatrix
		at := slices.IndexFunc(n.Metadata, func(e onnx.Entry) bool { return e.Key == edit.MetaMatrices })
		if at < 0 || json.Unmarshal([]byte(n.Metadata[at].Value), &matrices) != nil || len(matrices) != 2 ||
			matrices[0].Codes != names[0] || matrices[1].Codes != names[1] || matrices[1].N != 16 ||
			n.AttrInt(fused.AttrN, 0) != 32 || edit.FormatOf(n) != "q8" {
			t.Errorf("%v, %d rows, format %q", matrices, n.AttrInt(fused.AttrN, 0), edit.FormatOf(n))
		}
	}
}
