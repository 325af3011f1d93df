package products

import (
	"encoding/json"
	"fmt"
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

// kinds are the kinds of products of float32 tokens: by floats, also behind a Transpose, by float16 in two layouts, or
// by quantized numbers.
var kinds = []string{"float", "transposed", "half", "turned", "quantized"}

// twoProducts returns a model with two products of x by constant weights of a kind.
func twoProducts(t *testing.T, kind string) (*rewritetest.Builder, []*onnx.Node) {
	t.Helper()
	b := rewritetest.New(t, 20, onnx.Float)
	b.Model.ImportOpset(fused.Domain, fused.Version)
	x := b.In("x", 3, 64)
	var products []*onnx.Node
	stored := func(c *onnx.Tensor) *onnx.Value { return b.Graph.AddInitializer(c) }
	for i := range 2 {
		var y *onnx.Value
		switch kind {
		case "float":
			y = b.Op("MatMul", x, stored(onnx.NewFloat32s("w", []int64{64, 16}, make([]float32, 1024))))
		case "transposed":
			w := stored(onnx.NewFloat32s("w", []int64{16, 64}, make([]float32, 1024)))
			y = b.Op("MatMul", x, b.Op("Transpose", w, onnx.IntsAttr("perm", []int64{1, 0})))
		case "half", "turned":
			dims, layout := []int64{16, 64}, "out_in"
			if kind == "turned" {
				dims, layout = []int64{64, 16}, "in_out"
			}
			w, err := onnx.NewTensor("w", onnx.Float16, dims, make([]byte, 2048))
			if err != nil {
				t.Fatal(err)
			}
			y = b.Op("mojo:"+fused.HalfLinearName, append([]any{x, stored(w)},
				fused.HalfLinear{Layout: layout}.Attributes())...)
		case "quantized":
			q, _ := rewritetest.Quantized("w", 16, 64)
			y = b.Op("mojo:"+fused.LinearName, append([]any{x, stored(q.Codes), stored(q.Scale)},
				q.Linear("float").Attributes())...)
		}
		b.Out(y, 3, 16)
		n := y.Producer
		if n.Name = fmt.Sprint("product", i); n.Domain == fused.Domain {
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
		"as they are":    {nil, false, "float transposed half turned quantized"},
		"only quantized": {nil, true, "half turned quantized"},
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
		"integers": {func(_ *rewritetest.Builder, first, n *onnx.Node) {
			for _, w := range []*onnx.Value{weightOf(first), weightOf(n)} {
				if n.Is("MatMul") {
					w.Const = onnx.NewInt64s("w", make([]int64, 1024))
					w.Const.Dims = []int64{64, 16}
				}
			}
		}, false, "half turned quantized"},
		"elements of another type": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			c := *weightOf(n).Const
			c.DataType = onnx.Int8
			weightOf(n).Const = &c
		}, false, ""},
		"another op": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			n.OpType = "Gather" + n.OpType
		}, false, ""},
		"another domain": {func(_ *rewritetest.Builder, _, n *onnx.Node) { n.Domain = "other" }, false, ""},
		"another format": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			n.Metadata = []onnx.Entry{{Key: edit.MetaFormat, Value: "other"}}
		}, false, "float transposed half turned"},
		"another attribute": {func(_ *rewritetest.Builder, _, n *onnx.Node) {
			n.SetAttr(onnx.StringAttr("other", "x"))
		}, false, "float transposed"},
		"a bias": {func(b *rewritetest.Builder, _, n *onnx.Node) {
			places := map[string]int{fused.LinearName: fused.LinearBias, fused.HalfLinearName: fused.HalfLinearBias}
			if at := places[n.OpType]; at > 0 {
				bias := b.Graph.AddInitializer(onnx.NewFloat32s("bias", []int64{16}, make([]float32, 16)))
				new(edit.Change).SetInput(n, at, bias)
			}
		}, false, "float transposed"},
	} {
		for _, kind := range kinds {
			b, products := twoProducts(t, kind)
			run := runOf(b.Model)
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

// TestMergesOfOthers: products whose biases cannot be joined stay, and products whose weights are missing merge if the
// proofs are off.
func TestMergesOfOthers(t *testing.T) {
	for _, off := range []bool{false, true} {
		b, products := twoProducts(t, "half")
		run := runOf(b.Model)
		run.Off = off
		want := ""
		for i, n := range products {
			if off {
				n.Input(1).Const = &onnx.Tensor{Name: "w", DataType: onnx.Float16, Dims: []int64{16, 64},
					External: &onnx.External{}}
				continue
			}
			bias := onnx.NewFloat32s("bias", []int64{16}, make([]float32, 16))
			if i == 1 {
				bias.DataType = onnx.Int32
				want = `MergedProducts: node "product0": the products of "x" cannot be merged`
			}
			new(edit.Change).SetInput(n, fused.HalfLinearBias, b.Graph.AddInitializer(bias))
		}
		r, unproven, err := Apply(run, false)
		if err != nil || (r.Merged == 1) != off || len(unproven) != len(products)-1-r.Merged ||
			want != "" && !strings.HasPrefix(unproven[0], want) || len(run.Assumed()) != r.Merged {
			t.Errorf("off %v: %+v, %q, %v", off, r, unproven, err)
		}
	}
}

// TestFewRows copies products with the first rows of their weights, of a type that is declared or known.
func TestFewRows(t *testing.T) {
	for kind, want := range map[string]string{
		"float":      "float32 MatMul [21 16] [21 16]",
		"transposed": "float32 MatMul [16 64] [16 64]",
		"half":       "float32 HalfLinear [16 64] [16] [16 64] [16]",
		"turned":     "float32 HalfLinear [21 16] [16] [21 16] [16]",
		"quantized":  "float32 Linear [1 2 8 64] [1 2 16] [16] [1 2 8 64] [1 2 16] [16] n=16",
		"wide":       "float32 Linear [2 2 8 64] [2 2 16] [17] [2 2 8 64] [2 2 16] [17] n=17",
		"panels":     "float32 Linear [2 2 8 64] [2 2 16] [2 2 8 64] [2 2 16] n=32",
	} {
		rows := map[string]int64{"wide": 49, "panels": 64}[kind]
		made := kind
		if rows > 0 {
			made = "quantized"
		}
		b, products := twoProducts(t, made)
		for _, n := range products {
			if place := map[string]int{"half": fused.HalfLinearBias, "turned": fused.HalfLinearBias,
				"quantized": fused.LinearBias, "wide": fused.LinearBias}[kind]; place > 0 {
				width := max(rows, 16)
				new(edit.Change).SetInput(n, place, b.Floats([]int64{width}, make([]float32, width)...))
			}
			if rows > 0 {
				q, _ := rewritetest.Quantized("w", rows, 64)
				n.Input(1).Const, n.Input(2).Const = q.Codes, q.Scale
				n.SetAttr(onnx.IntAttr(fused.AttrN, rows))
			}
		}
		for _, computed := range []bool{false, true} {
			if computed { // without a declared type
				v := b.Op("Neg", products[0].Input(0))
				products[0].SetInput(0, v)
				products[1].SetInput(0, v)
			}
			m := &merger{Run: runOf(b.Model)}
			few, x, copies, err := m.fewRows(products)
			if err != nil || len(copies) != 2 || few.Graph.Outputs[1] != copies[1].Outputs[0] ||
				copies[0] == products[0] {
				t.Fatalf("%s: %v, %v", kind, copies, err)
			}
			typ, _ := x.Type()
			got := typ.DataType.String() + " " + copies[0].OpType
			for _, n := range copies {
				for _, w := range constantsOf(n) {
					if w != nil {
						got += fmt.Sprint(" ", w.Const.Dims)
					}
				}
			}
			if rows := copies[1].AttrInt(fused.AttrN, 0); rows > 0 {
				got += fmt.Sprint(" n=", rows)
			}
			if got != want {
				t.Errorf("%s: %s, want %s", kind, got, want)
			}
		}
	}
	g := onnx.New(10, 20).Graph
	x, y := g.NewValue("x"), g.NewValue("y")
	bias := g.AddInitializer(onnx.NewFloat32s("bias", []int64{1}, []float32{1}))
	bias.Const.DataType = onnx.BFloat16
	n := &onnx.Node{Outputs: []*onnx.Value{y},
		Inputs: append([]*onnx.Value{x}, make([]*onnx.Value, fused.LinearBias)...)}
	for i, want := range []onnx.DataType{onnx.Float, onnx.BFloat16, onnx.Float16} {
		switch i {
		case 1:
			n.Inputs[fused.LinearBias] = bias
		case 2:
			y.SetType(onnx.Type{DataType: onnx.Float16})
		}
		if got := (&merger{Run: &pass.Run{}}).typeOfProducts([]*onnx.Node{n}); got != want {
			t.Errorf("case %d: %s, want %s", i, got, want)
		}
	}
}

// TestMergedNodes: the merged product and the split name the products that they replace. If these have no names, their
// outputs do: onnxruntime refuses two nodes of one name.
func TestMergedNodes(t *testing.T) {
	for i, kind := range slices.Repeat(kinds, 2) {
		b, products := twoProducts(t, kind)
		name := "product0"
		if i >= len(kinds) {
			products[0].Name, name = "", products[0].Outputs[0].Name
		}
		outputs := []*onnx.Value{products[0].Outputs[0], products[1].Outputs[0]}
		names := []string{weightOf(products[0]).Name, weightOf(products[1]).Name}
		nodes := 2
		if kind == "transposed" {
			nodes = 3
		}
		run := runOf(b.Model)
		r, _, err := Apply(run, false)
		if err != nil || r.Text() != "1 products of one value each, instead of 2" {
			t.Fatalf("%s: %v", r.Text(), err)
		}
		split := outputs[0].Producer
		n := split.Input(0).Producer
		if !split.Is("Split") || !slices.Equal(split.Outputs, outputs) || split.AttrInt("axis", 0) != -1 ||
			split.Name != name+"_split" || n.Name != name+"_merged" ||
			weightOf(n).Name != names[0]+"_merged" || n.Domain != products[0].Domain ||
			n.Overload != products[0].Overload || len(b.Graph.Nodes) != nodes {
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
