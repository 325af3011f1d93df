package attention_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// block builds a block of attention with four heads, two key heads and eight channels. A nil step is the usual one.
type block struct {
	*onnxtest.Builder
	q, k, v, exists value // the inputs: queries, keys and values by heads, and which keys exist
	pastK, pastV    value // or nil
	length          value // S and L, as vectors
	keys            value

	cached  func(b *block, past, fresh value) value
	repeat  func(b *block, v value) value
	product func(b *block, q, k value) value // scores
	allowed func(b *block, i, j value) value // of positions of queries (columns) and keys (rows)
	masked  func(b *block, scores, allowed value) value
	softmax func(b *block, scores value) value
	sum     func(b *block, p, v value) value
}

const lowest = -math.MaxFloat32

// defaults fills in the usual steps: a finite minimum is added, and keys are repeated.
func (b *block) defaults() {
	set := func(step *func(b *block, v value) value, f func(b *block, v value) value) {
		if *step == nil {
			*step = f
		}
	}
	set(&b.repeat, repeatEach)
	set(&b.softmax, func(b *block, s value) value { return b.Op("Softmax", s, onnx.IntAttr("axis", -1)) })
	if b.cached == nil {
		b.cached = func(b *block, past, fresh value) value {
			return b.Op("Concat", past, fresh, onnx.IntAttr("axis", 2))
		}
	}
	if b.product == nil {
		b.product = func(b *block, q, k value) value {
			return b.Op("Mul", b.Op("MatMul", q, b.turned(k)), 0.5)
		}
	}
	if b.allowed == nil {
		b.allowed = func(b *block, i, j value) value { return b.Op("LessOrEqual", j, i) }
	}
	if b.masked == nil {
		b.masked = func(b *block, s, allowed value) value {
			return b.Op("Add", s, b.Op("Where", allowed, 0.0, lowest))
		}
	}
	if b.sum == nil {
		b.sum = func(b *block, p, v value) value {
			return b.Op("Transpose", b.Op("MatMul", p, v), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}
	}
}

func (b *block) turned(k value) value {
	return b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
}

// repeatEach repeats each head (AABB); repeatAll repeats all heads (ABAB).
func repeatEach(b *block, v value) value {
	wide := b.Op("Expand", b.Op("Unsqueeze", v, []int64{2}), []int64{1, 1, 2, 1, 1})
	return b.Op("Reshape", wide, []int64{0, 4, -1, 8}, onnx.IntAttr("allowzero", 0))
}

func repeatAll(b *block, v value) value { return b.Op("Tile", v, []int64{1, 2, 1, 1}) }

// build builds the block, with or without a cache.
func build(change func(b *block), past bool) *onnx.Model {
	b := &block{Builder: onnxtest.New(18)}
	b.q = b.Input("q", onnx.Float, "batch", 4, "queries", 8)
	b.k = b.Input("k", onnx.Float, "batch", 2, "queries", 8)
	b.v = b.Input("v", onnx.Float, "batch", 2, "queries", 8)
	total := "queries"
	if past {
		total = "past + queries"
		b.pastK = b.Input("past_k", onnx.Float, "batch", 2, "past", 8)
		b.pastV = b.Input("past_v", onnx.Float, "batch", 2, "past", 8)
	}
	b.exists = b.Input("mask", onnx.Int64, "batch", total)
	change(b)
	b.defaults()
	k, v := b.k, b.v
	if past {
		k, v = b.cached(b, b.pastK, k), b.cached(b, b.pastV, v)
		b.Output(k)
		b.Output(v)
	}
	b.length, b.keys = b.Op("Gather", b.Op("Shape", b.q), 2), b.Op("Gather", b.Op("Shape", k), 2)
	i := b.Op("Add", b.Op("Range", 0, b.length, 1), b.Op("Sub", b.keys, b.length))
	j := b.Op("Range", 0, b.keys, 1)
	allowed := b.allowed(b, b.Op("Unsqueeze", i, []int64{1}), b.Op("Unsqueeze", j, []int64{0}))
	padded := b.Op("Cast", b.Op("Unsqueeze", b.exists, []int64{1, 2}), onnx.IntAttr("to", int64(onnx.Bool)))
	scores := b.product(b, b.q, b.repeat(b, k))
	p := b.softmax(b, b.masked(b, scores, b.Op("And", allowed, padded)))
	b.Output(b.sum(b, p, b.repeat(b, v)))
	return b.Model
}

// found describes the block found in a model: the unusual attributes, and the inputs.
func found(t *testing.T, m *onnx.Model) string {
	t.Helper()
	matches, misses := patterns.Builtin().Find(m.Graph, infer.Analyze(m))
	for _, match := range matches {
		if match.Pattern != "Attention" {
			continue
		}
		var s []string
		for _, a := range match.Attributes {
			switch {
			case a.Type == onnx.AttrInt && a.Int != 0:
				s = append(s, fmt.Sprintf("%s=%d", a.Name, a.Int))
			case a.Type == onnx.AttrFloat && a.Float != 0:
				s = append(s, fmt.Sprintf("%s=%.4g", a.Name, a.Float))
			case a.Type == onnx.AttrString && !strings.HasSuffix(a.Name, "layout"):
				s = append(s, a.String)
			}
		}
		for _, v := range match.Inputs {
			s = append(s, v.Name)
		}
		for _, n := range match.Replacement.Nodes {
			if n.OpType == "Attention" && n.Input(8) != nil && n.Input(8).Constant() != nil {
				if x, err := reference.FromONNX(n.Input(8).Constant()); err == nil {
					s = append(s, fmt.Sprintf("sinks of %.4g", x.F[0]))
				}
			}
		}
		return strings.Join(s, " ")
	}
	for _, m := range misses {
		if m.Pattern == "Attention" {
			return "missed: " + m.Reason.Error()
		}
	}
	return "nothing"
}

func scalar(b *block, op string, x value, by float64) value { return b.Op(op, x, by) }

// TestAttention reads blocks in many forms by running them.
func TestAttention(t *testing.T) {
	and := func(b *block, x, y value) value { return b.Op("And", x, y) }
	window := func(w int) func(b *block, i, j value) value {
		return func(b *block, i, j value) value {
			return and(b, b.Op("LessOrEqual", j, i), b.Op("Greater", j, b.Op("Sub", i, w)))
		}
	}
	sink := func(b *block, s value, column func(s value) value) value {
		p := b.Op("Softmax", column(s), onnx.IntAttr("axis", -1))
		return b.Op("Slice", p, []int64{0}, []int64{-1}, []int64{3})
	}
	sinks := func(b *block, s value) value {
		c := reference.NewFloats(onnx.Float, []int{1, 4, 1, 1}, []float64{0.5, -1, 2, 0.25})
		x, _ := c.ToONNX("sink")
		shape := b.Op("Concat", b.Op("Slice", b.Op("Shape", s), []int64{0}, []int64{3}), []int64{1},
			onnx.IntAttr("axis", 0))
		return b.Op("Expand", b.Graph.AddInitializer(x), shape)
	}
	const usual = "scale=0.5 causal=1 mean blocked q k v mask"
	for _, c := range []struct {
		name   string
		past   bool
		change func(b *block)
		want   string
	}{
		{"as it is", false, func(*block) {}, usual},
		{"with a cache", true, func(*block) {}, usual + " past_k past_v"},
		{"heads of keys over and over", false, func(b *block) { b.repeat = repeatAll },
			"scale=0.5 causal=1 mean cyclic q k v mask"},
		{"scale on both sides", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("MatMul", scalar(b, "Mul", q, 0.25), b.turned(scalar(b, "Div", k, 4)))
			}
		}, "scale=0.0625 causal=1 mean blocked q k v mask"},
		{"scale by the root of the width", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				width := b.Op("Cast", b.Op("Gather", b.Op("Shape", q), -1), onnx.IntAttr("to", int64(onnx.Float)))
				return b.Op("Div", b.Op("MatMul", q, b.turned(k)), b.Op("Sqrt", width))
			}
		}, "scale=0.3536 causal=1 mean blocked q k v mask"},
		{"by Einsum", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				return b.Op("Einsum", q, k, onnx.StringAttr("equation", "bhid,bhjd->bhij"))
			}
		}, "scale=1 causal=1 mean blocked q k v mask"},
		{"mask by Where", false, func(b *block) {
			b.masked = func(b *block, s, allowed value) value { return b.Op("Where", allowed, s, lowest) }
		}, usual},
		{"mask before the scale", false, func(b *block) {
			b.product = func(b *block, q, k value) value { return b.Op("MatMul", q, b.turned(k)) }
			b.masked = func(b *block, s, allowed value) value {
				return scalar(b, "Mul", b.Op("Add", s, b.Op("Where", allowed, 0.0, -1e9)), 0.5)
			}
		}, usual},
		{"infinite, and guarded", false, func(b *block) {
			b.masked = func(b *block, s, allowed value) value {
				return b.Op("Where", allowed, s, math.Inf(-1))
			}
			b.softmax = func(b *block, s value) value {
				p := b.Op("Softmax", s, onnx.IntAttr("axis", -1))
				return b.Op("Where", b.Op("IsNaN", p), 0.0, p)
			}
		}, "scale=0.5 causal=1 zero blocked q k v mask"},
		{"a guard that is dead", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				p := b.Op("Softmax", s, onnx.IntAttr("axis", -1))
				return b.Op("Where", b.Op("IsNaN", p), 0.0, p)
			}
		}, usual},
		{"softmax step by step", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				e := b.Op("Exp", b.Op("Sub", s, b.Op("ReduceMax", s, []int64{-1})))
				return b.Op("Div", e, b.Op("ReduceSum", e, []int64{-1}))
			}
		}, usual},
		{"window", true, func(b *block) { b.allowed = window(5) },
			"scale=0.5 causal=1 window=5 mean blocked q k v mask past_k past_v"},
		{"window of one more", true, func(b *block) { b.allowed = window(6) },
			"scale=0.5 causal=1 window=6 mean blocked q k v mask past_k past_v"},
		{"window longer than most inputs", false, func(b *block) { b.allowed = window(128) },
			"scale=0.5 causal=1 window=128 mean blocked q k v mask"},
		{"all see all", false, func(b *block) {
			b.allowed = func(b *block, i, j value) value { return b.Op("Equal", j, j) }
		}, "scale=0.5 mean blocked q k v mask"},
		{"no padding", false, func(b *block) {
			b.masked = func(b *block, s, _ value) value {
				side := b.Op("Concat", b.Op("Unsqueeze", b.length, []int64{0}), b.Op("Unsqueeze", b.keys, []int64{0}),
					onnx.IntAttr("axis", 0))
				ones := b.Op("Expand", 1.0, side)
				return b.Op("Where", b.Op("Cast", b.Op("Trilu", ones, onnx.IntAttr("upper", 0)),
					onnx.IntAttr("to", int64(onnx.Bool))), s, lowest)
			}
		}, "scale=0.5 causal=1 zero blocked q k v"},
		{"given truth values", false, func(b *block) {
			b.masked = func(b *block, s, _ value) value {
				return b.Op("Where", b.Input("choice", onnx.Bool, "sequence", "sequence"), s, lowest)
			}
		}, "scale=0.5 mean blocked q k v choice"},
		{"softcap", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				s := scalar(b, "Mul", b.Op("MatMul", q, b.turned(k)), 0.5)
				return scalar(b, "Mul", b.Op("Tanh", scalar(b, "Div", s, 30)), 30)
			}
		}, "scale=0.5 causal=1 softcap=30 mean blocked q k v mask"},
		{"sink", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				return sink(b, s, func(s value) value {
					return b.Op("Concat", s, sinks(b, s), onnx.IntAttr("axis", -1))
				})
			}
		}, "scale=0.5 causal=1 zero blocked q k v mask sink"},
		{"a bias beside the mask", true, func(b *block) {
			b.product = func(b *block, q, k value) value {
				s := scalar(b, "Mul", b.Op("MatMul", q, b.turned(k)), 0.5)
				return b.Op("Add", s, b.Input("bias", onnx.Float, 1, 4, "queries", "past + queries"))
			}
		}, usual + " past_k past_v bias"},
		{"a bias by distance", false, func(b *block) {
			b.masked = func(b *block, s, allowed value) value {
				c := reference.NewFloats(onnx.Float, []int{4, 1, 1}, []float64{0.5, 0.25, 0.125, 0.0625})
				x, _ := c.ToONNX("slopes")
				j := b.Op("Cast", b.Op("Range", 0, b.keys, 1), onnx.IntAttr("to", int64(onnx.Float)))
				s = b.Op("Add", s, b.Op("Mul", b.Graph.AddInitializer(x), b.Op("Unsqueeze", j, []int64{0})))
				return b.Op("Where", allowed, s, lowest)
			}
		}, usual + " mul_1"},
		{"a mask that leaves padding in", false, func(b *block) {
			b.allowed = func(b *block, i, j value) value { return b.Op("Equal", j, j) }
			b.masked = func(b *block, s, allowed value) value {
				return b.Op("Add", s, b.Op("Where", allowed, 0.0, -1e4))
			}
		}, "scale=0.5 zero blocked q k v where"},
		{"padding added to masked scores", false, func(b *block) {
			b.masked = func(b *block, s, _ value) value {
				i, j := b.Op("Range", 0, b.length, 1), b.Op("Range", 0, b.keys, 1)
				earlier := b.Op("LessOrEqual", b.Op("Unsqueeze", j, []int64{0}), b.Op("Unsqueeze", i, []int64{1}))
				padded := b.Op("Cast", b.Op("Unsqueeze", b.exists, []int64{1, 2}), onnx.IntAttr("to", int64(onnx.Bool)))
				return b.Op("Add", b.Op("Where", earlier, s, lowest), b.Op("Where", padded, 0.0, lowest))
			}
		}, "scale=0.5 causal=1 zero blocked q k v where_1"},
		{"two masks added, heads in the batch", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				rows := func(v value) value { return b.Op("Reshape", v, []int64{-1, 5, 8}) }
				for v, axis := range map[value]int{b.q: 2, b.k: 2, b.v: 2, b.exists: 1} {
					decl, _ := v.Type()
					decl.Dims[axis] = onnx.Dim{Value: 5}
					v.SetType(decl)
				}
				s := b.Op("MatMul", rows(q), b.Op("Transpose", rows(k), onnx.IntsAttr("perm", []int64{0, 2, 1})))
				return b.Op("Reshape", b.Op("Mul", s, 0.5), []int64{-1, 4, 5, 5})
			}
			b.masked = func(b *block, s, _ value) value {
				i, j := b.Op("Range", 0, b.length, 1), b.Op("Range", 0, b.keys, 1)
				earlier := b.Op("LessOrEqual", b.Op("Unsqueeze", j, []int64{0}), b.Op("Unsqueeze", i, []int64{1}))
				padded := b.Op("Cast", b.Op("Unsqueeze", b.exists, []int64{1, 2}), onnx.IntAttr("to", int64(onnx.Bool)))
				s = b.Op("Add", s, b.Op("Where", earlier, 0.0, lowest))
				s = b.Op("Add", s, b.Op("Where", padded, 0.0, lowest))
				return b.Op("Reshape", s, []int64{-1, 5, 5})
			}
			b.sum = func(b *block, p, v value) value {
				y := b.Op("MatMul", p, b.Op("Reshape", v, []int64{-1, 5, 8}))
				return b.Op("Reshape", y, []int64{-1, 4, 5, 8})
			}
		}, "scale=0.5 causal=1 zero blocked q k v where_1"},
		{"a mask named for one new key", true, func(b *block) {
			decl, _ := b.exists.Type()
			decl.Dims[1].Param = "past + 1"
			b.exists.SetType(decl)
		}, usual + " past_k past_v"},
		{"keys and values without heads", false, func(b *block) {
			b.k = b.Input("k1", onnx.Float, "batch", "queries", 8)
			b.v = b.Input("v1", onnx.Float, "batch", "queries", 8)
			b.repeat = func(b *block, v value) value { return v }
			b.product = func(b *block, q, k value) value {
				return b.Op("Mul", b.Op("Einsum", q, k, onnx.StringAttr("equation", "bhid,bjd->bhij")), 0.5)
			}
			b.sum = func(b *block, p, v value) value {
				return b.Op("Einsum", p, v, onnx.StringAttr("equation", "bhij,bjd->bihd"))
			}
			b.allowed = func(b *block, i, j value) value {
				b.keys = b.length
				return b.Op("LessOrEqual", b.Op("Unsqueeze", b.Op("Range", 0, b.length, 1), []int64{0}),
					b.Op("Unsqueeze", b.Op("Range", 0, b.length, 1), []int64{1}))
			}
		}, "scale=0.5 causal=1 mean blocked q k1 v1 mask"},
		{"onnxruntime's op", false, func(b *block) {
			var mask value
			b.masked = func(b *block, s, allowed value) value {
				mask = b.Op("Where", allowed, 0.0, lowest)
				return s
			}
			b.sum = func(b *block, _, v value) value {
				q := b.Op("Transpose", b.q, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
				rows := b.Op("Reshape", q, []int64{0, 0, 32}, onnx.IntAttr("allowzero", 0))
				return b.Op("com.microsoft:MultiHeadAttention", rows, repeatEach(b, b.k), v, nil, nil, mask,
					onnx.IntAttr("num_heads", 4), onnx.FloatAttr("scale", 0.5))
			}
		}, usual},

		// Other functions.
		{"no query sees its own key", false, func(b *block) {
			b.allowed = func(b *block, i, j value) value { return b.Op("Less", j, i) }
		}, "scale=0.5 zero blocked q k v where"},
		{"later keys alone", false, func(b *block) {
			b.allowed = func(b *block, i, j value) value { return b.Op("GreaterOrEqual", j, i) }
		}, "scale=0.5 window=1 mean blocked q k v mask"},
		{"past behind the new keys", true, func(b *block) {
			b.cached = func(b *block, past, fresh value) value {
				return b.Op("Concat", fresh, past, onnx.IntAttr("axis", 2))
			}
		}, usual[:len(usual)-len("q k v mask")] + "q concat concat_1 mask"},
		{"mask of another tensor", false, func(b *block) {
			b.masked = func(b *block, s, _ value) value {
				return b.Op("Add", s, b.Input("bias", onnx.Float, 1, 4, "queries", "queries"))
			}
		}, "scale=0.5 zero blocked q k v bias"},
		{"scale of the mask too", false, func(b *block) {
			b.masked = func(b *block, s, _ value) value {
				bias := b.Input("bias", onnx.Float, 1, 4, "queries", "queries")
				return scalar(b, "Mul", b.Op("Add", s, bias), 0.5)
			}
		}, "missed: the mask is not computed from positions, and other nodes change it before it is added"},
		{"softmax over the queries", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				return b.Op("Softmax", s, onnx.IntAttr("axis", 2))
			}
		}, "missed: the weights of a query do not add up to 1"},
		{"cap of the mask too", false, func(b *block) {
			b.softmax = func(b *block, s value) value {
				s = scalar(b, "Mul", b.Op("Tanh", scalar(b, "Div", s, 30)), 30)
				return b.Op("Softmax", s, onnx.IntAttr("axis", -1))
			}
		}, "missed: the mask is not computed from positions, and other nodes change it before it is added"},
		{"weights with a sum of two", false, func(b *block) {
			b.sum = func(b *block, p, v value) value { return b.Op("MatMul", scalar(b, "Mul", p, 2), v) }
		}, "missed: the weights of a query do not add up to 1"},
		{"squares of the weights", false, func(b *block) {
			b.sum = func(b *block, p, v value) value { return b.Op("MatMul", b.Op("Mul", p, p), v) }
		}, "missed: the weights of a query do not add up to 1"},
		{"weights that are an output", false, func(b *block) {
			b.sum = func(b *block, p, v value) value { b.Output(p); return b.Op("MatMul", p, v) }
		}, `missed: "softmax" in the block is an output of the graph`},
		{"weights that others read", false, func(b *block) {
			b.sum = func(b *block, p, v value) value {
				b.Output(b.Op("ReduceMax", p, []int64{-1}))
				return b.Op("MatMul", p, v)
			}
		}, "missed: ReduceMax reads the scores or weights of the block"},
		{"a scale for each channel", false, func(b *block) {
			b.product = func(b *block, q, k value) value {
				c := reference.NewFloats(onnx.Float, []int{8}, []float64{1, 2, 1, 1, 1, 1, 1, 1})
				x, _ := c.ToONNX("weights")
				return b.Op("MatMul", b.Op("Mul", q, b.Graph.AddInitializer(x)), b.turned(k))
			}
		}, "scale=1 causal=1 mean blocked mul k v mask"},
		{"the second product alone", false, func(b *block) {
			b.product = func(b *block, q, k value) value { return b.Op("Add", q, b.Op("ReduceSum", k)) }
			b.masked = func(b *block, s, _ value) value { return s }
			b.sum = func(b *block, p, v value) value { return b.Op("MatMul", p, b.turned(v)) }
		}, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := found(t, build(c.change, c.past)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
