package linear_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/linear"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// sequence builds rows of two heads with keys of 4 and values of 5 channels.
type sequence struct {
	*onnxtest.Builder
	q, k, v, gate, beta *onnx.Value
}

func newSequence(tokens any) *sequence {
	b := onnxtest.New(18)
	in := func(name string, dims ...any) *onnx.Value {
		return b.Input(name, onnx.Float, append([]any{"b", 2, tokens}, dims...)...)
	}
	return &sequence{b, in("q", 4), in("k", 4), in("v", 5), in("gate"), in("beta")}
}

func (c *sequence) at(v *onnx.Value, axis int64) *onnx.Value {
	return c.Op("Unsqueeze", v, c.Ints(axis))
}

// between returns the factor of each token's update for each later token, and 0 for earlier ones.
func (c *sequence) between(sums, later *onnx.Value) *onnx.Value {
	n := c.Op("Slice", c.Op("Shape", later), c.Ints(2), c.Ints(3))
	ones := c.Op("ConstantOfShape", c.Op("Concat", n, n, onnx.IntAttr("axis", 0)), onnx.TensorAttr("value",
		onnx.NewFloat32s("", []int64{1}, []float32{1})))
	past := c.Op("Cast", c.Op("Trilu", ones, onnx.IntAttr("upper", 0)), onnx.IntAttr("to", int64(onnx.Bool)))
	return c.Op("Exp", c.Op("Where", past, c.Op("Sub", c.at(later, 3), c.at(sums, 2)), math.Inf(-1)))
}

// attended returns the rows of all tokens by products with every token before them.
func (c *sequence) attended(factors *onnx.Value) *onnx.Value {
	scores := c.Op("MatMul", c.Op("Mul", c.q, 0.5), c.Op("Transpose", c.k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	return c.Op("MatMul", c.Op("Mul", scores, factors), c.v)
}

func (c *sequence) sums(exclusive int64) *onnx.Value {
	return c.Op("CumSum", c.gate, 2, onnx.IntAttr("exclusive", exclusive))
}

// scanned returns the rows and the last state of a Scan over tokens. step computes the next state and the row.
func (c *sequence) scanned(carried bool, step func(c *token) (state, row *onnx.Value)) []*onnx.Value {
	g := c.Graph.NewSubgraph("step")
	b := &onnxtest.Builder{Graph: g}
	in := func(name string, dims ...any) *onnx.Value {
		return b.Input(name, onnx.Float, append([]any{"b", 2}, dims...)...)
	}
	t := &token{b, in("state", 4, 5), in("q_now", 4), in("k_now", 4), in("v_now", 5), in("gate_now"), in("beta_now")}
	t.gate = t.last(t.gate)
	state, row := step(t)
	if !carried {
		state = b.Op("Mul", state, b.Floats([]int64{}, 0))
	}
	b.Output(state)
	b.Output(row)
	first := c.Input("first", onnx.Float, "b", 2, 4, 5)
	return c.Ops(2, "Scan", first, c.q, c.k, c.v, c.gate, c.beta, onnx.GraphAttr("body", g),
		onnx.IntAttr("num_scan_inputs", 5), onnx.IntsAttr("scan_input_axes", []int64{2, 2, 2, 2, 2}),
		onnx.IntsAttr("scan_output_axes", []int64{2}))
}

func gatedDelta(t *token) (_, _ *onnx.Value) {
	s := t.decayed()
	next := t.with(s, t.update(s))
	return next, t.at(next, t.q)
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens any
		write  func(c *sequence) []*onnx.Value
		scale  float32 // 0 if nothing is found
	}{
		{"all tokens at once", "n", func(c *sequence) []*onnx.Value {
			sums := c.sums(0)
			return []*onnx.Value{c.attended(c.between(sums, sums))}
		}, 0.5},
		{"all of a fixed number", 7, func(c *sequence) []*onnx.Value {
			sums := c.sums(0)
			return []*onnx.Value{c.attended(c.between(sums, sums))}
		}, 0.5},
		{"with added rows", "n", func(c *sequence) []*onnx.Value {
			sums := c.sums(0)
			added := c.Op("Mul", c.Input("x", onnx.Float, "b", 2, "n", 5), c.Floats([]int64{2, 1, 1}, 3, -2))
			return []*onnx.Value{c.Op("Add", c.attended(c.between(sums, sums)), added)}
		}, 0.5},
		{"a loop", "n", func(c *sequence) []*onnx.Value { return c.scanned(true, gatedDelta) }, 1},
		{"a loop with factors", "n", func(c *sequence) []*onnx.Value {
			return c.scanned(true, func(t *token) (_, _ *onnx.Value) {
				s := t.Op("Mul", t.state, t.last(t.gate))
				next := t.with(s, t.update(s))
				return next, t.at(next, t.q)
			})
		}, 1},
		{"a decay of the state that takes the token up", "n", func(c *sequence) []*onnx.Value {
			return []*onnx.Value{c.attended(c.between(c.sums(1), c.sums(0)))}
		}, 0},
		{"without the token itself", "n", func(c *sequence) []*onnx.Value {
			return []*onnx.Value{c.attended(c.between(c.sums(0), c.sums(1)))}
		}, 0},
		{"a state that is not carried", "n", func(c *sequence) []*onnx.Value {
			return c.scanned(false, gatedDelta)
		}, 0},
		{"a decay behind the row", "n", func(c *sequence) []*onnx.Value {
			return c.scanned(true, func(t *token) (_, _ *onnx.Value) {
				next := t.with(t.state, t.update(t.state))
				return t.Op("Mul", next, t.factor()), t.at(next, t.q)
			})
		}, 0},
		{"a share outside of the difference", "n", func(c *sequence) []*onnx.Value {
			return c.scanned(true, func(t *token) (_, _ *onnx.Value) {
				s := t.decayed()
				next := t.with(s, t.Op("Sub", t.Op("Mul", t.v, t.last(t.beta)), t.at(s, t.k)))
				return next, t.at(next, t.q)
			})
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newSequence(c.tokens)
			for _, v := range c.write(b) {
				b.Output(v)
			}
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			var scale float32
			for _, m := range matches {
				if m.Op == "LinearAttention" {
					scale = fused.Read[fused.LinearAttention](m.Attributes).Scale
				}
			}
			if scale != c.scale {
				t.Errorf("scale %v, want %v: %v", scale, c.scale, matches)
			}
		})
	}
}

// TestLayersOfOneForm demands that only the first of several layers of one form is run: a reserve that is just enough
// for one layer is enough for eight.
func TestLayersOfOneForm(t *testing.T) {
	defer func(was int) { linear.SpanLimits.Reserve = was }(linear.SpanLimits.Reserve)
	found := func(layers, reserve int) (n int) {
		linear.SpanLimits.Reserve = reserve
		c := newSequence("n")
		for range layers {
			sums := c.sums(0)
			c.v = c.attended(c.between(sums, sums))
		}
		c.Output(c.v)
		matches, _ := patterns.Builtin().Find(c.Model.Graph, infer.Analyze(c.Model))
		for _, m := range matches {
			if m.Op == "LinearAttention" {
				n++
			}
		}
		return n
	}
	reserve := 1
	for found(1, reserve) == 0 {
		if reserve *= 2; reserve > 1<<31 {
			t.Fatal("one layer is not found")
		}
	}
	if n := found(8, reserve); n != 8 {
		t.Errorf("%d of 8 layers are found with a reserve of %d steps", n, reserve)
	}
}

// TestUnrolledSpans builds Mamba-1 on four tokens, each token by nodes of its own: five channels, each with a state of
// three numbers.
func TestUnrolledSpans(t *testing.T) {
	const tokens, channels, key = 4, 5, 3
	for name, c := range map[string]struct {
		late, stale bool // the decay after the update; each token from the first state
		half        bool // queries and rows are float16, and the state is an output
		found       bool
	}{
		"each token after the one before": {false, false, false, true},
		"queries in float16, and a state": {false, false, true, true},
		"a decay after the update":        {true, false, false, false},
		"a state that is not carried":     {false, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(18)
			x, dt := b.Input("x", onnx.Float, 2, channels, tokens), b.Input("dt", onnx.Float, 2, channels, tokens)
			typ := onnx.Float
			if c.half {
				typ = onnx.Float16
			}
			k, q := b.Input("k", onnx.Float, 2, tokens, key), b.Input("q", typ, 2, tokens, key)
			at := func(v *onnx.Value, axis int64) *onnx.Value { return b.Op("Unsqueeze", v, b.Ints(axis)) }
			of := func(v *onnx.Value, token int, axis int64) *onnx.Value {
				return b.Op("Gather", v, token, onnx.IntAttr("axis", axis))
			}
			var rates []float32
			for i := range channels * key {
				rates = append(rates, -1-float32(i))
			}
			factors := b.Op("Exp", b.Op("Mul", at(dt, 3), b.Floats([]int64{channels, 1, key}, rates...)))
			updates := b.Op("Mul", b.Op("Mul", at(dt, 3), at(k, 1)), at(x, 3))
			first := b.Floats([]int64{2, channels, key}, make([]float32, 2*channels*key)...)
			state, rows := first, []any{}
			for i := range tokens {
				factor, update := of(factors, i, 2), of(updates, i, 2)
				if c.stale {
					state = first
				}
				if c.late {
					state = b.Op("Mul", b.Op("Add", state, update), factor)
				} else {
					state = b.Op("Add", b.Op("Mul", factor, state), update)
				}
				read := state
				if c.half {
					read = b.Op("Cast", state, onnx.IntAttr("to", int64(typ)))
				}
				rows = append(rows, b.Op("MatMul", read, at(of(q, i, 1), 2)))
			}
			if c.half {
				b.Output(state)
			}
			b.Output(b.Op("Concat", append(rows, onnx.IntAttr("axis", 2))...))
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			found := len(matches) == 1 && matches[0].Op == fused.LinearAttentionName
			if found != c.found || found && (len(matches[0].Outputs) == 2) != c.half {
				t.Errorf("found %v, want %v: %v", found, c.found, matches)
			}
		})
	}
}
