package match

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

func viewOf(b *onnxtest.Builder, outputs ...*onnx.Value) *View {
	for _, v := range outputs {
		b.Output(v)
	}
	return New(b.Graph, infer.Analyze(b.Model), NewIndex(NewLanguage(nil)))
}

// TestReaders lists each reader once, and the node whose body reads a value.
func TestReaders(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 4)
	square, y := b.Op("Mul", x, x), b.Op("Exp", x)
	branch := func(name string) *onnx.Attribute {
		g := &onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph(name)}
		g.Output(g.Op("Neg", x))
		return onnx.GraphAttr(name, g.Graph)
	}
	z := b.Op("If", b.Input("c", onnx.Bool), branch("then_branch"), branch("else_branch"))
	var ops []string
	for _, n := range viewOf(b, square, y, z).Readers(x) {
		ops = append(ops, n.OpType)
	}
	slices.Sort(ops)
	if !slices.Equal(ops, []string{"Exp", "If", "Mul"}) {
		t.Errorf("x is read by %v", ops)
	}
}

// TestResolve goes back over nodes that change nothing, and over no others.
func TestResolve(t *testing.T) {
	to := func(t onnx.DataType) *onnx.Attribute { return onnx.IntAttr("to", int64(t)) }
	for _, c := range []struct {
		name  string
		typ   onnx.DataType
		build func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value
		back  bool
	}{
		{"a wider type and back", onnx.Float16, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Cast", b.Op("Cast", x, to(onnx.Float)), to(onnx.Float16))
		}, true},
		{"a narrower type and back", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Cast", b.Op("Cast", x, to(onnx.Float16)), to(onnx.Float))
		}, false},
		{"an axis more and less", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Squeeze", b.Op("Unsqueeze", x, []int64{1}), []int64{1})
		}, true},
		{"turned and back", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			perm := onnx.IntsAttr("perm", []int64{2, 0, 1})
			return b.Op("Transpose", b.Op("Transpose", b.Op("Transpose", x, perm), perm), perm)
		}, true},
		{"turned twice", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			perm := onnx.IntsAttr("perm", []int64{2, 0, 1})
			return b.Op("Transpose", b.Op("Transpose", x, perm), perm)
		}, false},
		{"times one, plus zero", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Add", 0.0, b.Op("Mul", x, 1.0))
		}, true},
		{"one divided by it", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Div", 1.0, x)
		}, false},
		{"all of it", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Slice", x, []int64{0}, []int64{1 << 40}, []int64{2})
		}, true},
		{"all but one", onnx.Float, func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("Slice", x, []int64{1}, []int64{1 << 40}, []int64{2})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := onnxtest.New(20)
			x := b.Input("x", c.typ, "batch", "seq", 8)
			y := c.build(b, x)
			if got := viewOf(b, y).Resolve(y) == x; got != c.back {
				t.Errorf("back at x: %v", got)
			}
		})
	}
}

// TestSame compares values that are computed twice.
func TestSame(t *testing.T) {
	b := onnxtest.New(20)
	x, y := b.Input("x", onnx.Float, "batch", 8), b.Input("y", onnx.Float, "batch", 8)
	sum, swapped, other := b.Op("Add", x, y), b.Op("Add", y, x), b.Op("Add", x, x)
	less, more := b.Op("Sub", x, y), b.Op("Sub", y, x)
	flat, flattened := b.Op("Reshape", x, []int64{-1}),
		b.Op("Flatten", b.Op("Unsqueeze", x, []int64{0}), onnx.IntAttr("axis", 1))
	random, again := b.Op("RandomNormalLike", x), b.Op("RandomNormalLike", x)
	g := viewOf(b, sum, swapped, other, less, more, flat, flattened, random, again)
	for _, c := range []struct {
		name string
		v, w *onnx.Value
		same bool
	}{
		{"operands in another order", sum, swapped, true}, {"other operands", sum, other, false},
		{"a difference the other way round", less, more, false}, {"another rank", flat, flattened, false},
		{"random numbers", random, again, false}, {"one value", random, random, true},
	} {
		if got := g.Same(c.v, c.w); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if !g.Alike(sum, swapped) || g.Alike(sum, sum) {
		t.Error("Alike is about two nodes")
	}
}

// TestIsData distinguishes values that depend on the model's inputs from those that follow from weights and sizes.
func TestIsData(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "batch", 8)
	w := b.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{8}, make([]float32, 8)))
	shape := b.Op("Shape", x)
	weight, sum := b.Op("Neg", w), b.Op("Add", x, w)
	ones := b.Op("ConstantOfShape", shape)
	g := viewOf(b, weight, sum, ones)
	for v, want := range map[*onnx.Value]bool{x: true, sum: true, w: false, weight: false, shape: false, ones: false} {
		if got := g.IsData(v); got != want {
			t.Errorf("%s: %v", v.Name, got)
		}
	}
	if g.IsNeeded(x) != true || len(g.Readers(x)) != 2 {
		t.Errorf("x is read by %d nodes", len(g.Readers(x)))
	}
}

// TestMemo: there is one memo for each type and graph.
func TestMemo(t *testing.T) {
	type counted struct{ n int }
	g, h := viewOf(onnxtest.New(20)), viewOf(onnxtest.New(20))
	Memo[counted](g).n++
	Memo[counted](g).n++
	if Memo[counted](g).n != 2 || Memo[counted](h).n != 0 {
		t.Errorf("%d, %d", Memo[counted](g).n, Memo[counted](h).n)
	}
}

// TestResolveFollowsChainsOnce goes back over a chain of reshapes, and memoizes the origin of every value on the way.
func TestResolveFollowsChainsOnce(t *testing.T) {
	const pairs = 100
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "batch", 8)
	y := x
	for range pairs {
		y = b.Op("Reshape", b.Op("Reshape", y, []int64{0, 4, 2}), []int64{0, 8})
	}
	g := viewOf(b, y)
	if g.Resolve(y) != x {
		t.Errorf("the chain leads to %s", g.Resolve(y).Name)
	}
	if n := len(g.through); n < pairs {
		t.Errorf("%d of %d values remembered: the others are followed to the end again", n, pairs)
	}
}

// TestEqualOperands multiplies squares of squares: if both operands of a node are one value, exchanging them must not
// repeat the search at any level.
func TestEqualOperands(t *testing.T) {
	language := NewLanguage(nil)
	list, err := language.Scope().Parse("factors.pat",
		"pattern Factors(a, b, c, d, e) -> y {\n y = Mul(a, b, c, d, Neg(e))\n} => mojo.A(a)\n")
	if err != nil {
		t.Fatal(err)
	}
	index := NewIndex(language)
	if err := index.Add(list[0]); err != nil {
		t.Fatal(err)
	}
	b := onnxtest.New(20)
	y := b.Input("x", onnx.Float, "n")
	for range 5 {
		y = b.Op("Mul", y, y)
	}
	b.Output(y)
	s := NewAttempt(New(b.Graph, infer.Analyze(b.Model), index), list[0])
	if s.At(y, nil) {
		t.Error("it matches")
	}
	const most = 600
	if s.Steps() > most {
		t.Errorf("it takes %d steps, more than %d", s.Steps(), most)
	}
}
