package builtin_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Nodes that together change nothing may be anywhere; nodes that lose something may not.
func TestDetours(t *testing.T) {
	cast := func(g *graph, x *onnx.Value, to onnx.DataType) *onnx.Value {
		return g.Op("Cast", x, onnx.IntAttr("to", int64(to)))
	}
	tests := map[string]struct {
		detour func(g *graph, x *onnx.Value) *onnx.Value
		want   bool
	}{
		"identity": {func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Identity", x) }, true},
		"unsqueeze and squeeze": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Squeeze", g.Op("Unsqueeze", x, []int64{0}), []int64{0})
		}, true},
		"reshape and back": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Reshape", g.Op("Reshape", x, []int64{-1, 8}), g.Op("Shape", x))
		}, true},
		"transpose of nothing": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 1, 2}))
		}, true},
		"wider and back": {func(g *graph, x *onnx.Value) *onnx.Value {
			return cast(g, g.Op("Identity", cast(g, x, onnx.Double)), onnx.Float)
		}, true},
		"narrower and back": {func(g *graph, x *onnx.Value) *onnx.Value {
			return cast(g, cast(g, x, onnx.Float16), onnx.Float)
		}, false},
		"integers and back": {func(g *graph, x *onnx.Value) *onnx.Value {
			return cast(g, cast(g, x, onnx.Int64), onnx.Float)
		}, false},
		"transpose": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Transpose", x, onnx.IntsAttr("perm", []int64{1, 0, 2}))
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			x := g.input("x", 3, 3, 8)
			matches, _ := g.find(with(func(n *norm) {
				n.square = func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Mul", x, tt.detour(g, x)) }
			}).build(g, x))
			if got := len(matches) == 1 && strings.HasPrefix(matches[0], "RMSNorm(x,w)"); got != tt.want {
				t.Errorf("matched %v", matches)
			}
		})
	}
}

// The mean may be taken without keeping the reduced axis, the root of the inverse instead of the inverse of the root,
// and the scale multiplied with the inverse or with x first.
func TestNormNesting(t *testing.T) {
	inverse := func(g *graph, x *onnx.Value) *onnx.Value {
		mean := g.Op("ReduceMean", g.Op("Pow", x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 0))
		return g.Op("Sqrt", g.Op("Reciprocal", g.Op("Sum", g.Op("Unsqueeze", mean, []int64{2}), 1e-6)))
	}
	tests := map[string]struct {
		build func(g *graph, x *onnx.Value) *onnx.Value
		want  bool
	}{
		"(x i) w": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Mul", g.Op("Mul", x, inverse(g, x)), g.weight(8))
		}, true},
		"x (i w)": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Mul", x, g.Op("Mul", inverse(g, x), g.weight(8)))
		}, true},
		"i (w x)": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Mul", inverse(g, x), g.Op("Mul", g.weight(8), x))
		}, true},
		"another axis added": {func(g *graph, x *onnx.Value) *onnx.Value {
			mean := g.Op("ReduceMean", g.Op("Pow", x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 0))
			inv := g.Op("Reciprocal", g.Op("Sqrt", g.Op("Add", g.Op("Unsqueeze", mean, []int64{1}), 1e-6)))
			return g.Op("Mul", g.Op("Mul", x, inv), g.weight(8))
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			matches, _ := g.find(tt.build(g, g.input("x", 8, 8, 8)))
			if got := len(matches) == 1 && strings.HasPrefix(matches[0], "RMSNorm(x,w)"); got != tt.want {
				t.Errorf("matched %v", matches)
			}
		})
	}
}

// A sigmoid, and a sign, may be computed in several ways.
func TestSigmoidSpellings(t *testing.T) {
	exp := func(sign func(g *graph, x *onnx.Value) *onnx.Value) func(*graph, *onnx.Value) *onnx.Value {
		return func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Add", g.Op("Exp", sign(g, x)), 1.0) }
	}
	neg := func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Neg", x) }
	zeroMinus := func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Sub", 0.0, x) }
	byMinusOne := func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Div", x, -1.0) }
	minusZero := func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Sub", x, 0.0) }
	tests := map[string]struct {
		silu func(g *graph, x *onnx.Value) *onnx.Value
		want bool
	}{
		"x / (1 + exp(-x))": {func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Div", x, exp(neg)(g, x)) },
			true},
		"x * 1/(1 + exp(0-x))": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Mul", x, g.Op("Div", 1.0, exp(zeroMinus)(g, x)))
		}, true},
		"x * (1 + exp(-x))^-1": {func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Mul", g.Op("Reciprocal", exp(byMinusOne)(g, x)), x)
		}, true},
		"x / (1 + exp(x))": {func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Div", x, exp(minusZero)(g, x)) },
			false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			gate, up := g.input("gate", "batch", 8), g.input("up", "batch", 8)
			matches, _ := g.find(g.Op("Mul", tt.silu(g, gate), up))
			if got := len(matches) == 1 && strings.HasPrefix(matches[0], "SwiGLU(gate,up)"); got != tt.want {
				t.Errorf("matched %v", matches)
			}
		})
	}
}

// The standard's domain has two names: they must not make one value two.
func TestDomainsOfOneName(t *testing.T) {
	g := newGraph()
	x := g.input("x", "batch", 8)
	a, b := g.Op("Exp", x), g.Op("Exp", x)
	b.Producer.Domain = "ai.onnx"
	matches, _ := g.find(g.Op("Mul", g.Op("Mul", a, g.Op("Sigmoid", b)), x))
	if len(matches) != 1 {
		t.Errorf("matched %v", matches)
	}
}

// TestReasons checks the text of a miss about a condition.
func TestReasons(t *testing.T) {
	swiglu := func(g *graph, gate, up *onnx.Value) *onnx.Value {
		return g.Op("Mul", g.Op("Mul", gate, g.Op("Sigmoid", gate)), up)
	}
	tests := map[string]struct {
		build func(g *graph) *onnx.Value
		want  string
	}{
		"shapes": {func(g *graph) *onnx.Value { return swiglu(g, g.input("gate", 2, 3, 8), g.input("up", 8)) },
			"expected gate and up of the same shape, found shapes [2, 3, 8] and [8] (gate is \"gate\", " +
				"float32[2, 3, 8]; up is \"up\", float32[8])"},
		"unknown shape": {func(g *graph) *onnx.Value {
			return swiglu(g, g.Graph.AddInput("gate", onnx.Type{DataType: onnx.Float}), g.input("up", 2, 8))
		}, "expected gate and up of the same shape, found shapes unknown and [2, 8]"},
		"types": {func(g *graph) *onnx.Value {
			gate := g.input("gate", 2, 8)
			up := g.Graph.AddInput("up",
				onnx.Type{DataType: onnx.Float16, HasShape: true, Dims: []onnx.Dim{{Value: 2}, {Value: 8}}})
			return swiglu(g, gate, up)
		}, "expected type(gate) == type(up), found float32 and float16"},
		"expert": {func(g *graph) *onnx.Value {
			rows := g.Op("Gather", g.input("x", "tokens", 8),
				g.Op("Cast", g.input("index", "n"), onnx.IntAttr("to", int64(onnx.Int64))))
			return swiglu(g, rows, g.input("up", "n", 8))
		}, "expected gate of a dense layer, found that gate comes from rows or weights that the data selects, as " +
			"in an expert"},
		"dims": {func(g *graph) *onnx.Value {
			return with(func(n *norm) { n.weight = 4 }).build(g, g.input("x", "batch", 8))
		}, "expected dim(scale, -1) == dim(x, -1), found that dim(scale, -1) is 4, dim(x, -1) is 8"},
		"capture": {func(g *graph) *onnx.Value {
			return with(func(n *norm) {
				n.inverse = func(g *graph, v *onnx.Value) *onnx.Value {
					return g.Op("Reciprocal", g.Op("Sqrt", g.Op("Add", v, -0.5)))
				}
			}).build(g, g.input("x", "batch", 8))
		}, "expected epsilon > 0, found that epsilon is -0.5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			matches, misses := g.find(tt.build(g))
			if len(matches) != 0 || len(misses) == 0 {
				t.Fatalf("matched %v, %d misses", matches, len(misses))
			}
			if got := misses[0].Reason.Error(); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// The clamped unit may have any limit, factor and shift, or lack them; a clamp on another side is another function.
func TestClampedUnits(t *testing.T) {
	tests := map[string]struct {
		gate, up, sigmoid, y func(g *graph, x *onnx.Value) *onnx.Value
		want                 string
	}{
		"gpt-oss": {want: "alpha=1.702 limit=7 up_offset=1"},
		"no shift, no factor": {
			sigmoid: func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Sigmoid", x) },
			y:       func(g *graph, u *onnx.Value) *onnx.Value { return u },
			want:    "alpha=1 limit=7 up_offset=0"},
		"Min and Max": {
			gate: func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Min", 7.0, x) },
			up:   func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Max", g.Op("Min", x, 7.0), -7.0) },
			want: "alpha=1.702 limit=7 up_offset=1"},
		"a bound that bounds nothing": {
			gate: func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Clip", x, -math.MaxFloat32, 7.0) },
			want: "alpha=1.702 limit=7 up_offset=1"},
		"gate clamped on both sides": {gate: func(g *graph, x *onnx.Value) *onnx.Value {
			return g.Op("Clip", x, -7.0, 7.0)
		}},
		"uneven":        {up: func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Clip", x, -6.0, 7.0) }},
		"another limit": {gate: func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Min", 6.0, x) }},
	}
	or := func(f, otherwise func(g *graph, x *onnx.Value) *onnx.Value) func(g *graph, x *onnx.Value) *onnx.Value {
		if f == nil {
			return otherwise
		}
		return f
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			gate := or(tt.gate, func(g *graph, x *onnx.Value) *onnx.Value {
				return g.Op("Clip", x, (*onnx.Value)(nil), 7.0)
			})(g, g.input("gate", "batch", 8))
			up := or(tt.up, func(g *graph, x *onnx.Value) *onnx.Value { return g.Op("Clip", x, -7.0, 7.0) })(g,
				g.input("up", "batch", 8))
			s := or(tt.sigmoid, func(g *graph, x *onnx.Value) *onnx.Value {
				return g.Op("Sigmoid", g.Op("Mul", x, 1.702))
			})(g, gate)
			u := or(tt.y, func(g *graph, u *onnx.Value) *onnx.Value { return g.Op("Add", u, 1.0) })(g, up)
			g.Graph.AddOutput(g.Op("Mul", u, g.Op("Mul", gate, s)))
			got := ""
			matches, _ := patterns.Builtin().Find(g.Graph, infer.Analyze(g.Model))
			for _, m := range matches {
				if m.Pattern == "ClampedSwiGLU" {
					for _, a := range m.Attributes[1:] {
						got = strings.TrimSpace(fmt.Sprintf("%s %s=%g", got, a.Name, a.Float))
					}
				}
			}
			if got != tt.want {
				t.Errorf("matched with %q, want %q", got, tt.want)
			}
		})
	}
}

// Weights may have axes of size 1 before the channels, or be expanded to all rows. Tensors that differ between rows are
// not weights.
func TestRows(t *testing.T) {
	tests := map[string]struct {
		weight func(g *graph, x, w *onnx.Value) *onnx.Value
		want   bool
	}{
		"axes of one": {func(g *graph, x, w *onnx.Value) *onnx.Value { return g.Op("Unsqueeze", w, []int64{0, 1}) },
			true},
		"expanded": {func(g *graph, x, w *onnx.Value) *onnx.Value {
			return g.Op("Expand", g.Op("Reshape", w, []int64{1, 1, 8}), g.Op("Shape", x))
		}, true},
		"computed after x": {func(g *graph, x, w *onnx.Value) *onnx.Value { return g.Op("Add", w, 1.0) }, true},
		"rows":             {func(g *graph, x, w *onnx.Value) *onnx.Value { return g.Op("Unsqueeze", w, []int64{1}) }, false},
		"expanded rows": {func(g *graph, x, w *onnx.Value) *onnx.Value {
			return g.Op("Expand", g.Op("Unsqueeze", w, []int64{1}), g.Op("Shape", x))
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph()
			x := g.Op("Add", g.input("a", 4, 8, 8), g.input("b", 4, 8, 8))
			w := tt.weight(g, x, g.weight(8))
			mean := g.Op("ReduceMean", g.Op("Pow", x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 1))
			n := g.Op("Mul", x, g.Op("Reciprocal", g.Op("Sqrt", g.Op("Add", mean, 1e-6))))
			matches, _ := g.find(g.Op("Mul", w, n))
			if got := len(matches) == 1 && strings.HasPrefix(matches[0], "AddRMSNorm(a,b,"); got != tt.want {
				t.Errorf("matched %v", matches)
			}
		})
	}
}
