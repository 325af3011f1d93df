//go:build cgo

package rewrite

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// inONNXRuntime is a Runtime: onnxruntime with default options.
func inONNXRuntime(t *testing.T) sites.Runtime {
	lib := orttest.Library(t)
	return func(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
		b, err := onnx.Marshal(m)
		if err != nil {
			return nil, err
		}
		s, err := ort.OpenBytes(b, "", ort.WithLibrary(lib), ort.WithThreads(1))
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return s.Run(inputs)
	}
}

// TestMasksForTargets: onnxruntime runs the nodes written for broadcast masks, with queries that can attend to no key,
// and for a cache outside of the op.
func TestMasksForTargets(t *testing.T) {
	const heads, width = 2, 4
	inf := math.Inf(-1)
	for _, c := range []struct {
		name string
		dims []any // of the mask
		run  []int
		mask []float64
	}{
		{"of sequences", []any{"b", 1, 1, "l"}, []int{2, 1, 1, 3}, []float64{0, 0, -1e4, -1e4, -1e4, -1e4}},
		{"of sequences, none seen", []any{"b", 1, 1, "l"}, []int{2, 1, 1, 3}, []float64{0, inf, inf, 0, 0, inf}},
		{"of heads", []any{1, heads, 1, "l"}, []int{1, heads, 1, 3}, []float64{1, 2, 3, 3, 0, 1}},
		{"of keys", []any{1, 1, 1, "l"}, []int{1, 1, 1, 3}, []float64{1, -1, 0}},
		{"of queries and keys", []any{"s", "l"}, []int{2, 3}, []float64{0, inf, inf, 0, 0, inf}},
		{"of queries of sequences", []any{"b", 1, "s", "l"}, []int{2, 1, 2, 3},
			[]float64{0, inf, inf, 0, 0, inf, 0, 0, 1, 1, 1, 0}},
		{"none, keys in a cache turned", nil, nil, nil},
	} {
		for _, name := range []string{"ort", "onnx"} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				b := rewritetest.New(t, 17, onnx.Float)
				q := b.In("q", "b", heads, "s", width)
				inputs := map[string]*reference.Tensor{}
				var scores, values value
				if c.dims != nil {
					scores = b.Op("MatMul", q, b.Op("Transpose", b.In("k", "b", heads, "l", width),
						onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
					scores = b.Op("Add", b.Op("Mul", scores, b.Scalar(onnx.Float, 0.5)), b.In("mask", c.dims...))
					values = b.In("v", "b", heads, "l", width)
					inputs["mask"] = reference.NewFloats(onnx.Float, c.run, c.mask)
				} else {
					k := b.Op("Transpose", b.In("k", "b", heads, "s", width),
						onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
					keys := b.Op("Concat", b.In("past_k", "b", heads, width, "p"), k, onnx.IntAttr("axis", 3))
					values = b.Op("Concat", b.In("past_v", "b", heads, "p", width),
						b.In("v", "b", heads, "s", width), onnx.IntAttr("axis", 2))
					b.Out(keys, "b", heads, width, "l")
					b.Out(values, "b", heads, "l", width)
					scores = b.Op("Mul", b.Op("MatMul", q, keys), b.Scalar(onnx.Float, 0.5))
					number := func(v value, axis int64) value {
						return b.Op("Gather", b.Op("Shape", v), b.Constant(integer(axis)))
					}
					queries, all := number(q, 2), number(keys, 3)
					from := b.Op("Sub", all, queries)
					row := b.Op("Unsqueeze", b.Op("Range", from, all, b.Constant(integer(1))), b.Ints(1))
					later := b.Op("Greater", b.Op("Range", b.Constant(integer(0)), all, b.Constant(integer(1))), row)
					scores = b.Op("Where", later, b.Scalar(onnx.Float, inf), scores)
				}
				weights := b.Op("Softmax", scores, onnx.IntAttr("axis", -1))
				b.Out(b.Op("MatMul", weights, values), "b", heads, "s", width)
				for i, v := range b.Graph.Inputs {
					shape := map[string][]int64{"q": {2, heads, 2, width}, "k": {2, heads, 3, width},
						"v": {2, heads, 3, width}, "past_k": {2, heads, width, 4},
						"past_v": {2, heads, 4, width}}[v.Name]
					if shape == nil {
						continue
					}
					if c.dims == nil && (v.Name == "k" || v.Name == "v") {
						shape[2] = 2
					}
					var err error
					if inputs[v.Name], err = prove.MakeInput(prove.Normal, i, onnx.Float, shape); err != nil {
						t.Fatal(err)
					}
				}
				want := rewritetest.Run(t, b.Model, inputs)
				r := apply(t, b.Model, Request{Target: targetNamed(t, name), Runtime: inONNXRuntime(t)})
				if s := sitesOf(r, "Attention"); len(s) != 1 || s[0].Status != Fused {
					t.Fatalf("sites %+v", s)
				}
				rewritetest.RunsThere(t, b.Model, inputs, want, 1e-5)
			})
		}
	}
}

func integer(n int64) *onnx.Tensor {
	t := onnx.NewInt64s("n", []int64{n})
	t.Dims = []int64{}
	return t
}

// TestRaisedForTargets: onnxruntime runs models with ops that it has no kernel for at a target's opset.
func TestRaisedForTargets(t *testing.T) {
	for _, c := range []struct {
		name  string
		opset int64
		op    func(b *rewritetest.Builder, x value) value
	}{
		{"RoiAlign", 13, func(b *rewritetest.Builder, x value) value {
			rois := b.Floats([]int64{2, 4}, 0, 0, 3, 3, 1, 1, 4, 4)
			return b.Op("RoiAlign", x, rois, b.Constant(onnx.NewInt64s("batches", []int64{0, 0})))
		}},
		{"GlobalLpPool", 13, func(b *rewritetest.Builder, x value) value {
			return b.Op("GlobalLpPool",
				x)
		}},
		{"MaxRoiPool", 13, func(b *rewritetest.Builder, x value) value {
			rois := b.Floats([]int64{1, 5}, 0, 0, 0, 3, 3)
			return b.Op("MaxRoiPool", x, rois, onnx.IntsAttr("pooled_shape", []int64{2, 2}))
		}},
		{"a gate of opset 25", 25, func(b *rewritetest.Builder, x value) value {
			return b.Op("Mul", b.Op("Mul", x, b.Op("Sigmoid", x)), b.In("up", 1, 2, "rows", 8))
		}},
		{"a clamped gate of opset 26", 26, func(b *rewritetest.Builder, x value) value {
			gate := b.Op("Min", x, b.Scalar(onnx.Float, 1))
			return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), b.In("up", 1, 2, "rows", 8))
		}},
	} {
		for _, name := range []string{"ort", "onnx"} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				b := rewritetest.New(t, c.opset, onnx.Float)
				x := b.In("x", 1, 2, "rows", 8)
				b.Output(c.op(b, x))
				if c.opset < 18 { // axes are an attribute there
					mean := b.Op("ReduceMean", b.Op("Mul", x, x), onnx.IntsAttr("axes", []int64{-1}))
					root := b.Op("Sqrt", b.Op("Add", mean, b.Scalar(onnx.Float, 1e-5)))
					b.Output(b.Op("Mul", b.Op("Div", x, root), b.Weight("scale", 8)))
				} else {
					b.Output(b.Norm(x, b.Weight("scale", 8), 1e-5))
				}
				inputs := map[string]*reference.Tensor{}
				for i, v := range b.Graph.Inputs {
					var err error
					dims := []int64{1, 2, 5, 8}
					if inputs[v.Name], err = prove.MakeInput(prove.Normal, i, onnx.Float, dims); err != nil {
						t.Fatal(err)
					}
				}
				want := rewritetest.InOnnxruntime(t, b.Model, inputs)
				r := apply(t, b.Model, Request{Target: targetNamed(t, name)})
				fused := name == "ort" || c.opset > 18
				if s := sitesOf(r, "RMSNorm"); len(s) != 1 || (s[0].Status == Fused) != fused {
					t.Errorf("sites %+v", s)
				}
				if limited := r.Opset != nil && r.Opset.Limit != ""; limited != (c.opset < 18) {
					t.Errorf("opset %+v", r.Opset)
				}
				rewritetest.RunsThere(t, b.Model, inputs, want, 1e-6)
			})
		}
	}
}

// TestListedConstants: a model of IR 3 lists its constants among its inputs; they are constants for every target.
func TestListedConstants(t *testing.T) {
	for _, name := range []string{"mojo", "ort", "onnx"} {
		for _, opset := range []int64{11, 17} {
			b := rewritetest.New(t, opset, onnx.Float)
			b.Model.IRVersion = 3
			x := b.In("x", 2, "rows", 8)
			mean := b.Op("ReduceMean", b.Op("Pow", x, b.Scalar(onnx.Float, 2)), onnx.IntsAttr("axes", []int64{-1}))
			root := b.Op("Sqrt", b.Op("Add", mean, b.Scalar(onnx.Float, 1e-5)))
			b.Out(b.Op("Mul", b.Op("Div", x, root), b.Weight("scale", 8)), 2, "rows", 8)
			for _, n := range slices.Clone(b.Graph.Nodes) { // Constant nodes become listed initializers
				if !n.Is("Constant") {
					continue
				}
				old := n.Outputs[0]
				v := b.Graph.AddInitializer(old.Constant().Tied(old.Name + "_listed"))
				v.IsInput = true
				b.Graph.Inputs = append(b.Graph.Inputs, v)
				for _, u := range slices.Clone(old.Uses()) {
					u.Node.SetInput(u.Index, v)
				}
			}
			if err := new(edit.Change).RemoveUnread(b.Graph); err != nil {
				t.Fatal(err)
			}
			given, err := prove.MakeInput(prove.Normal, 0, onnx.Float, []int64{2, 5, 8})
			if err != nil {
				t.Fatal(err)
			}
			inputs := map[string]*reference.Tensor{"x": given}
			want := rewritetest.Run(t, b.Model, inputs)
			r := apply(t, b.Model, Request{Target: targetNamed(t, name)})
			if s := sitesOf(r, "RMSNorm"); len(s) != 1 || s[0].Status != Fused {
				t.Errorf("%s, opset %d: sites %+v", name, opset, s)
			}
			if names := onnx.Names(b.Graph.Inputs); len(names) != 1 {
				t.Errorf("%s, opset %d: inputs %v", name, opset, names)
			}
			rewritetest.RunsThere(t, b.Model, inputs, want, 1e-6)
		}
	}
}
