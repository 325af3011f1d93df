package builtin_test

import (
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// graph builds small graphs.
type graph struct{ *onnxtest.Builder }

func newGraph() *graph { return &graph{onnxtest.New(20)} }

func (g *graph) input(name string, dims ...any) *onnx.Value {
	return g.Input(name, onnx.Float, dims...)
}

func (g *graph) weight(n int) *onnx.Value {
	w := make([]float32, n)
	for i := range w {
		w[i] = 1 + float32(i)/8
	}
	return g.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{int64(n)}, w))
}

// find returns the matches as "Pattern(inputs)->outputs" and the misses.
func (g *graph) find(outputs ...*onnx.Value) (matches []string, misses []*match.Miss) {
	for _, v := range outputs {
		g.Output(v)
	}
	ms, misses := patterns.Builtin().Find(g.Graph, infer.Analyze(g.Model))
	for _, m := range ms {
		matches = append(matches, m.Pattern+"("+names(m.Inputs)+")->"+names(m.Outputs))
	}
	return matches, misses
}

func names(vs []*onnx.Value) string {
	var s []string
	for _, v := range vs {
		s = append(s, v.Name)
	}
	return strings.Join(s, ",")
}

// norm is an RMSNorm whose parts can be replaced by wrong ones.
type norm struct {
	axis     []int64
	square   func(g *graph, x *onnx.Value) *onnx.Value
	inverse  func(g *graph, meanSquare *onnx.Value) *onnx.Value
	weight   int
	swapped  bool
	keepdims int64
}

func (n norm) build(g *graph, x *onnx.Value) *onnx.Value {
	sq := g.Op("Pow", x, 2.0)
	if n.square != nil {
		sq = n.square(g, x)
	}
	ms := g.Op("ReduceMean", sq, n.axis, onnx.IntAttr("keepdims", n.keepdims))
	var inv *onnx.Value
	if n.inverse != nil {
		inv = n.inverse(g, ms)
	} else {
		inv = g.Op("Reciprocal", g.Op("Sqrt", g.Op("Add", ms, 1e-6)))
	}
	if n.swapped {
		return g.Op("Mul", g.Op("Mul", inv, x), g.weight(n.weight))
	}
	return g.Op("Mul", g.weight(n.weight), g.Op("Mul", x, inv))
}

var plainNorm = norm{axis: []int64{-1}, weight: 8, keepdims: 1}

func with(f func(*norm)) norm {
	n := plainNorm
	f(&n)
	return n
}

// TestNormSpellings finds the forms of a norm, and tells the difference in other blocks.
func TestNormSpellings(t *testing.T) {
	inverse := func(root func(g *graph, v *onnx.Value) *onnx.Value) norm {
		return with(func(n *norm) { n.inverse = root })
	}
	square := func(f func(g *graph, x *onnx.Value) *onnx.Value) norm {
		return with(func(n *norm) { n.square = f })
	}
	root := func(g *graph, v *onnx.Value) *onnx.Value { return g.Op("Reciprocal", g.Op("Sqrt", v)) }
	tests := map[string]struct {
		norm    norm
		want    reason.Code // "" if it matches
		at      string      // the op that differs
		matched int
	}{
		"plain":           {norm: plainNorm},
		"operands":        {norm: with(func(n *norm) { n.swapped = true })},
		"axis from front": {norm: with(func(n *norm) { n.axis = []int64{2} })},
		"x*x":             {norm: square(func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Mul", x, x) })},
		"pow -0.5": {norm: inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			return g.Op("Pow", g.Op("Add", 1e-6, v), -0.5)
		})},
		"1/sqrt": {norm: inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			return g.Op("Div", 1.0, g.Op("Sqrt", g.Op("Add", v, 1e-6)))
		})},
		"other axis": {with(func(n *norm) { n.axis = []int64{1} }), reason.Axis, "ReduceMean", 7},
		"all axes":   {with(func(n *norm) { n.axis = []int64{0, 1, 2} }), reason.Axis, "ReduceMean", 7},
		"cube": {square(func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Pow", x, 3.0) }),
			reason.OtherConstant, "Pow", 7},
		"square of another": {square(func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Mul", x, g.Op("Abs", x))
		}), reason.Between, "Abs", 7},
		"no epsilon": {norm: inverse(root)}, // rows of zeros become NaN, as in the op
		"epsilon outside": {inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			return g.Op("Reciprocal", g.Op("Add", g.Op("Sqrt", v), 1e-6))
		}), reason.EpsilonAfter, "Add", 5},
		"negative epsilon": {inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			return root(g, g.Op("Add", v, -1e-6))
		}), reason.EpsilonZero, "Mul", 7},
		"computed epsilon": {inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			return root(g, g.Op("Add", v, g.input("epsilon")))
		}), reason.EpsilonTensor, "Add", 7},
		"dropout": {inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			training := g.Graph.AddInput("training", onnxtest.Type(onnx.Bool))
			return g.Op("Dropout", root(g, g.Op("Add", v, 1e-6)), 0.5, training)
		}), reason.Dropout, "Dropout", 7},
		"negated root": {inverse(func(g *graph, v *onnx.Value) *onnx.Value {
			return root(g, g.Op("Neg", g.Op("Add", v, 1e-6)))
		}), reason.Between, "Neg", 7},
		"2/sqrt": {norm: inverse(func(g *graph, v *onnx.Value) *onnx.Value { // the factor goes into the scale
			return g.Op("Div", 2.0, g.Op("Sqrt", g.Op("Add", v, 1e-6)))
		})},
		"scale of one": {with(func(n *norm) { n.weight = 1 }), reason.NoScale, "Mul", 6},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			matches, misses := g.find(tt.norm.build(g, g.input("x", "batch", "seq", 8)))
			if got := len(matches) == 1; got != (tt.want == "") {
				t.Errorf("matched %v", matches)
			}
			if tt.want == "" {
				return
			}
			if len(misses) != 1 {
				t.Fatalf("%d misses say why", len(misses))
			}
			m := misses[0]
			code, at := m.Reason.Code, m.Reason.Node.OpType
			if code != tt.want || at != tt.at || m.Matched != tt.matched || m.Further != nil {
				t.Errorf("%s at %s, %d of %d nodes; further %v; %s", code, at, m.Matched, m.Size, m.Further, m.Reason)
			}
		})
	}
}

func TestSumReadByOthers(t *testing.T) {
	g := newGraph()
	x, r := g.input("x", "batch", "seq", 8), g.input("r", "batch", "seq", 8)
	sum := g.Op("Add", x, r)
	y := plainNorm.build(g, sum)
	matches, _ := g.find(y, g.Op("Neg", sum))
	if len(matches) != 1 || matches[0] != "AddRMSNorm(x,r,w)->mul_1,add" {
		t.Errorf("matched %v", matches)
	}
}

// Two norms of one sum cannot both write it: the second is an RMSNorm of the first one's sum.
func TestSumIsWrittenOnce(t *testing.T) {
	g := newGraph()
	sum := g.Op("Add", g.input("x", "batch", 8), g.input("r", "batch", 8))
	matches, _ := g.find(plainNorm.build(g, sum), with(func(n *norm) { n.axis = []int64{1} }).build(g, sum))
	if len(matches) != 2 || strings.HasPrefix(matches[0], "Add") == strings.HasPrefix(matches[1], "Add") {
		t.Errorf("matched %v", matches)
	}
}

// A bias, which is broadcast, is not a residual.
func TestBiasIsNoResidual(t *testing.T) {
	g := newGraph()
	matches, _ := g.find(plainNorm.build(g, g.Op("Add", g.input("x", "batch", "seq", 8), g.weight(8))))
	if len(matches) != 1 || !strings.HasPrefix(matches[0], "RMSNorm(add") {
		t.Errorf("matched %v", matches)
	}
}

func TestLayerNormIsNoRMSNorm(t *testing.T) {
	g := newGraph()
	x := g.input("x", "batch", "seq", 8)
	matches, _ := g.find(plainNorm.build(g, g.Op("Sub", x, g.Op("ReduceMean", x, []int64{-1}))))
	if len(matches) != 1 || matches[0] != "LayerNorm(x,w)->mul_1" {
		t.Errorf("matched %v", matches)
	}
}

func TestRotaryHalves(t *testing.T) {
	slice := func(g *graph, x *onnx.Value, from, to int64) *onnx.Value {
		return g.Op("Slice", x, []int64{from}, []int64{to}, []int64{3}, []int64{1})
	}
	tests := map[string]struct {
		rotated func(g *graph, x *onnx.Value) *onnx.Value
		want    string // in the reason, "" if it matches
	}{
		"half": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Concat", g.Op("Neg", slice(g, x, 4, math.MaxInt64)), slice(g, x, 0, 4),
				onnx.IntAttr("axis", -1))
		}, ""},
		"negative bounds": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Concat", g.Op("Mul", -1.0, slice(g, x, -4, 8)), slice(g, x, 0, -4), onnx.IntAttr("axis", 3))
		}, ""},
		"halves swapped": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Concat", g.Op("Neg", slice(g, x, 0, 4)), slice(g, x, 4, 8), onnx.IntAttr("axis", -1))
		}, "one channel of the input instead of two"},
		"other sign": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Concat", slice(g, x, 4, 8), g.Op("Neg", slice(g, x, 0, 4)), onnx.IntAttr("axis", -1))
		}, ""},
		"uneven": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Concat", g.Op("Neg", slice(g, x, 2, 8)), slice(g, x, 0, 2), onnx.IntAttr("axis", -1))
		}, "pair channels in another way"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			x, cos, sin := g.input("x", "batch", 2, "seq", 8), g.input("cos", 1, 1, "seq", 8),
				g.input("sin", 1, 1, "seq", 8)
			matches, misses := g.find(g.Op("Add", g.Op("Mul", x, cos), g.Op("Mul", tt.rotated(g, x), sin)))
			const want = "RotaryEmbedding(x,cos,sin)->add"
			if got := len(matches) == 1 && strings.TrimPrefix(matches[0], "fit:") == want; got != (tt.want == "") {
				t.Errorf("matched %v", matches)
			}
			if tt.want != "" && (len(misses) != 1 || !strings.Contains(misses[0].Reason.Error(), tt.want)) {
				t.Errorf("misses %v", misses)
			}
		})
	}
}

// The product of a gated MLP may be nested in any way, and the gate's other factor may be the sigmoid.
func TestGatedProducts(t *testing.T) {
	tests := map[string]func(g *graph, gate, s, up *onnx.Value) *onnx.Value{
		"(g s) u": func(g *graph, gate, s, up *onnx.Value) *onnx.Value { return g.Op("Mul", g.Op("Mul", gate, s), up) },
		"u (s g)": func(g *graph, gate, s, up *onnx.Value) *onnx.Value { return g.Op("Mul", up, g.Op("Mul", s, gate)) },
		"g (s u)": func(g *graph, gate, s, up *onnx.Value) *onnx.Value { return g.Op("Mul", gate, g.Op("Mul", s, up)) },
		"s (g u)": func(g *graph, gate, s, up *onnx.Value) *onnx.Value { return g.Op("Mul", s, g.Op("Mul", gate, up)) },
	}
	for name, product := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			gate, up := g.input("gate", "batch", 8), g.input("up", "batch", 8)
			matches, _ := g.find(product(g, gate, g.Op("Sigmoid", gate), up))
			if len(matches) != 1 || !strings.HasPrefix(matches[0], "SwiGLU(gate,up)") {
				t.Errorf("matched %v", matches)
			}
		})
	}
}

// An expert's product takes rows or weights that data select; a token embedding is not an expert.
func TestExpertsAreLeftAlone(t *testing.T) {
	for name, picked := range map[string]bool{"rows of an expert": true, "embedding": false} {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			x := g.input("x", "tokens", 8)
			index := g.Op("Cast", g.input("index", "picked"), onnx.IntAttr("to", int64(onnx.Int64)))
			table := g.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{4, 8}, make([]float32, 32)))
			if !picked {
				x = table
			}
			rows := g.Op("Gather", x, index)
			weight := func() *onnx.Value {
				return g.Graph.AddInitializer(onnx.NewFloat32s("weight", []int64{8, 6}, make([]float32, 48)))
			}
			gate, up := g.Op("MatMul", rows, weight()), g.Op("MatMul", rows, weight())
			matches, _ := g.find(g.Op("Mul", g.Op("Mul", gate, g.Op("Sigmoid", gate)), up))
			if (len(matches) == 0) != picked {
				t.Errorf("matched %v", matches)
			}
		})
	}
}
