package inline_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

type (
	body   = onnxtest.Builder
	values = []*onnx.Value
)

func give(v ...*onnx.Value) values { return v }

// function adds a function to the model, in domain local, whose body a builder writes.
func function(b *rewritetest.Builder, name string, opset int64, inputs []string,
	write func(*body, values) values) *onnx.Function {
	f := onnx.NewFunction("local", name, "", opset)
	w := &body{Graph: f.Body}
	var in values
	for _, i := range inputs {
		in = append(in, f.Body.AddInput(i, onnx.Type{}))
	}
	for _, v := range write(w, in) {
		w.Output(v)
	}
	b.Model.ImportOpset("local", 1)
	b.Model.Functions = append(b.Model.Functions, f)
	return f
}

func localCalls(m *onnx.Model) (count int) {
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if n.Domain == "local" {
				count++
			}
		}
	}
	return count
}

// TestInlineParts: blocks in functions, across functions, and as whole functions are found by default.
func TestInlineParts(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value
		fused int
		calls int // calls left in the model
	}{
		{"whole, called twice", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Norm", 20, []string{"x", "s"}, func(f *body, in values) values {
				root := f.Op("Sqrt", f.Op("Add", f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), []int64{-1}), 1e-6))
				return give(f.Op("Mul", f.Op("Div", in[0], root), in[1]))
			})
			return b.Op("local:Norm", b.Op("Tanh", b.Op("local:Norm", x, scale)), scale)
		}, 2, 0},
		{"an attribute", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			f := function(b, "Norm", 20, []string{"x", "s"}, func(f *body, in values) values {
				e := f.Op("Constant", onnx.RefAttr("value_float", onnx.AttrFloat, "epsilon"))
				root := f.Op("Sqrt", f.Op("Add", f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), []int64{-1}), e))
				return give(f.Op("Mul", f.Op("Div", in[0], root), in[1]))
			})
			f.Defaults = append(f.Defaults, onnx.FloatAttr("epsilon", 1e-5))
			first := b.Op("local:Norm", x, scale, onnx.FloatAttr("epsilon", 1e-3))
			return b.Op("local:Norm", b.Op("Tanh", first), scale)
		}, 2, 0},
		{"half in one, half in another", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Square", 20, []string{"x"}, func(f *body, in values) values {
				return give(f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), []int64{-1}))
			})
			function(b, "Scale", 20, []string{"x", "r", "s"}, func(f *body, in values) values {
				return give(f.Op("Mul", f.Op("Div", in[0], in[1]), in[2]))
			})
			root := b.Op("Sqrt", b.Op("Add", b.Op("local:Square", x), 1e-6))
			return b.Op("local:Scale", x, root, scale)
		}, 1, 0},
		{"one of two outputs", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "AddNorm", 20, []string{"x", "y", "s"}, func(f *body, in values) values {
				h := f.Op("Add", in[0], in[1])
				root := f.Op("Sqrt", f.Op("Add", f.Op("ReduceMean", f.Op("Mul", h, h), []int64{-1}), 1e-6))
				return give(h, f.Op("Mul", f.Op("Div", h, root), in[2]))
			})
			out := b.Ops(2, "local:AddNorm", x, b.Op("Tanh", x), scale)
			return b.Op("Add", out[0], out[1])
		}, 1, 0},
		{"a part and more, among others", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Part", 20, []string{"x"}, func(f *body, in values) values {
				return give(f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), []int64{-1}), f.Op("Tanh", in[0]))
			})
			part := b.Ops(2, "local:Part", x)
			y := b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", part[0], 1e-6))), scale)
			for i := range 5 {
				name := fmt.Sprint("Other", i)
				function(b, name, 20, []string{"x", "y"}, func(f *body, in values) values {
					return give(f.Op("Add", in[0], f.Op("Sin", in[1])))
				})
				y = b.Op("local:"+name, y, part[1])
			}
			return y
		}, 1, 5},
		{"of an older opset", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Norm", 17, []string{"x", "s"}, func(f *body, in values) values {
				mean := f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), onnx.IntsAttr("axes", []int64{-1}))
				return give(f.Op("Div", in[0], f.Op("Sqrt", f.Op("Add", mean, 1e-6))))
			})
			return b.Op("Mul", b.Op("local:Norm", x), scale)
		}, 1, 0},
		{"no part of a block", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Other", 20, []string{"x"}, func(f *body, in values) values {
				return give(f.Op("Tanh", in[0]))
			})
			return b.Norm(b.Op("local:Other", x), scale, 1e-6)
		}, 1, 1},
		{"blocks inside a layer, called twice", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Layer", 20, []string{"x", "s"}, func(f *body, in values) values {
				root := f.Op("Sqrt", f.Op("Add", f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), []int64{-1}), 1e-6))
				return give(f.Op("Tanh", f.Op("Mul", f.Op("Div", f.Op("Neg", in[0]), root), in[1])),
					f.Op("Tanh", f.Op("Mul", f.Op("Div", in[0], root), in[1])))
			})
			first := b.Ops(2, "local:Layer", x, scale)
			second := b.Ops(2, "local:Layer", b.Op("Exp", first[1]), scale)
			return b.Op("Add", second[0], second[1])
		}, 1, 2},
		{"two blocks inside a layer, called twice", func(b *rewritetest.Builder, x, scale *onnx.Value) *onnx.Value {
			function(b, "Layer", 20, []string{"x", "s"}, func(f *body, in values) values {
				for range 2 {
					root := f.Op("Sqrt", f.Op("Add", f.Op("ReduceMean", f.Op("Mul", in[0], in[0]), []int64{-1}), 1e-6))
					in[0] = f.Op("Exp", f.Op("Tanh", f.Op("Mul", f.Op("Div", in[0], root), in[1])))
				}
				return in[:1]
			})
			return b.Op("local:Layer", b.Op("local:Layer", x, scale), scale)
		}, 2, 2},
	} {
		build := func() *onnx.Model {
			b := rewritetest.New(t, 20, onnx.Float)
			b.Out(c.write(b, b.In("x", "n", 3, 8), b.Weight("scale", 8)), "n", 3, 8)
			return b.Model
		}
		before, m := rewritetest.Evaluate(t, build()), build()
		r := applytest.Apply(t, m, rewrite.Request{Inline: inline.Auto})
		left := localCalls(m)
		for mode, want := range map[inline.Mode]int{inline.None: localCalls(build()), inline.All: 0} {
			m := build()
			if applytest.Plan(t, m, rewrite.Request{Inline: mode}); localCalls(m) != want {
				t.Errorf("%s: %d calls left with --inline %s, expected %d", c.name, localCalls(m), mode, want)
			}
		}
		if r.Fused() != c.fused || left != c.calls {
			t.Errorf("%s: %d fused, %d calls left; expected %d, %d: %+v", c.name, r.Fused(), left, c.fused, c.calls,
				r.Sites)
		}
		for name, got := range rewritetest.Evaluate(t, m) {
			for i, v := range got.F {
				if math.Abs(v-before[name].F[i]) > 1e-5 {
					t.Fatalf("%s: %s[%d] is %v, was %v", c.name, name, i, v, before[name].F[i])
				}
			}
		}
	}
}
