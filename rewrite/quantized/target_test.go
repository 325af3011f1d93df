//go:build cgo

package quantized_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// branched moves the nodes of a model into both branches of an If.
func branched(m *onnx.Model) {
	g := m.Graph
	taken := g.AddInput("taken", onnx.Type{DataType: onnx.Bool, HasShape: true})
	nodes, dead := g.Nodes, map[*onnx.Node]bool{}
	var attrs []*onnx.Attribute
	for _, name := range []string{"then_branch", "else_branch"} {
		branch := g.NewSubgraph(name)
		for _, n := range nodes {
			v := branch.NewValue(n.Outputs[0].Name)
			if t, ok := n.Outputs[0].Type(); ok {
				v.SetType(t)
			}
			c := branch.AddNode(n.OpType, n.Inputs, []*onnx.Value{v}, n.Attributes...)
			c.Domain, c.Overload = n.Domain, n.Overload
			branch.AddOutput(v)
			dead[n] = true
		}
		attrs = append(attrs, onnx.GraphAttr(name, branch))
	}
	choice := g.NewNode("If", []*onnx.Value{taken}, attrs...)
	for i, n := range nodes {
		choice.TakeOutput(i, n.Outputs[0])
	}
	g.InsertAt(map[*onnx.Node][]*onnx.Node{nodes[0]: {choice}})
	if err := g.RemoveNodes(dead); err != nil {
		panic(err)
	}
}

// TestProductsInBranches: onnxruntime opens and runs ops in branches, and weights that both branches read are stored
// once.
func TestProductsInBranches(t *testing.T) {
	for _, f := range rewritetest.StoredForms[:5] {
		for _, name := range []string{"ort", "onnx"} {
			t.Run(f.Format+", "+name, func(t *testing.T) {
				m := rewritetest.StoredModel(t, f, onnx.Float)
				branched(m)
				inputs := rewritetest.StoredInputs(onnx.Float)
				inputs["taken"] = reference.NewInts(onnx.Bool, []int{}, []int64{1})
				want := rewritetest.Run(t, m, inputs)
				r := applytest.Apply(t, m, rewrite.Request{Target: applytest.Target(t, name)})
				if r.Products == nil || len(r.Products.Open) > 0 {
					t.Fatalf("products %+v", r.Products)
				}
				rewritetest.RunsThere(t, m, inputs, want, 0.03)
				one := rewritetest.StoredModel(t, f, onnx.Float)
				applytest.Apply(t, one, rewrite.Request{Target: applytest.Target(t, name)})
				if have, want := dataSize(t, m), dataSize(t, one); have != want {
					t.Errorf("%d bytes of weights, %d without branches", have, want)
				}
			})
		}
	}
}

// dataSize returns the size of a model's data file.
func dataSize(t *testing.T, m *onnx.Model) int64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, m, onnx.ExternalDataOver(0)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path + ".data")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestRowsThatAreNotThere: a product with a wrong number of rows stays; those that share its weights do not.
func TestRowsThatAreNotThere(t *testing.T) {
	m := rewritetest.StoredModel(t, rewritetest.StoredForms[0], onnx.Float)
	for _, n := range m.Graph.Nodes {
		if n.Outputs[0].Name == "fewer" {
			n.SetAttr(onnx.IntAttr("n", 1<<40))
		}
	}
	r, err := rewrite.Apply(m, rewrite.Request{Target: applytest.Target(t, "ort")})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Products.Open) != 1 || r.Products.Emits["MatMulNBits"] != 2 {
		t.Errorf("products %+v", r.Products)
	}
	if err := onnx.Write(filepath.Join(t.TempDir(), "model.onnx"), m); err != nil {
		t.Error(err)
	}
}

// TestRowsOfOneTable: products and tables that use different numbers of rows of one matrix are stored once in the data
// file.
func TestRowsOfOneTable(t *testing.T) {
	for _, f := range rewritetest.StoredForms[:2] {
		m := rewritetest.StoredModel(t, f, onnx.Float)
		if _, err := rewrite.Apply(m, rewrite.Request{Target: applytest.Target(t, "ort")}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := onnx.Write(path, m, onnx.ExternalDataOver(0)); err != nil {
			t.Fatal(err)
		}
		w, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]map[int64][]int64{} // of packed codes and of scales, by location
		for _, v := range w.Graph.Initializers() {
			for _, what := range []string{"packed", "scales"} {
				if x := v.Const.External; x != nil && strings.Contains(v.Name, what) {
					if rows[what] == nil {
						rows[what] = map[int64][]int64{}
					}
					rows[what][x.Offset] = append(rows[what][x.Offset], v.Const.Dims[0])
				}
			}
		}
		for _, what := range []string{"packed", "scales"} {
			if len(rows[what]) != 1 {
				t.Errorf("%s: %s lie at %d places", f.Format, what, len(rows[what]))
			}
			for _, n := range rows[what] {
				slices.Sort(n)
				if n = slices.Compact(n); !slices.Equal(n, []int64{33, 37, 48}) {
					t.Errorf("%s: %s of %d rows", f.Format, what, n)
				}
			}
		}
		in := rewritetest.StoredInputs(onnx.Float)
		got, want := rewritetest.Run(t, w, in), rewritetest.Run(t, m, in)
		for name, x := range want {
			if !slices.Equal(x.F, got[name].F) {
				t.Errorf("%s: %s is not what it was before it was written", f.Format, name)
			}
		}
	}
}
