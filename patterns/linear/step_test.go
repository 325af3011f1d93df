package linear_test

import (
	"strconv"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// token builds a step of two heads with keys of 4 and values of 5 channels.
type token struct {
	*onnxtest.Builder
	state, q, k, v, gate, beta *onnx.Value
}

func newToken(channels int) *token {
	b := onnxtest.New(18)
	in := func(name string, width int) *onnx.Value { return b.Input(name, onnx.Float, "b", 2, width) }
	return &token{b, b.Input("state", onnx.Float, "b", 2, 4, 5), in("q", 4), in("k", 4), in("v", 5),
		in("gate", channels), b.Input("beta", onnx.Float, "b", 2)}
}

func (c *token) last(v *onnx.Value) *onnx.Value  { return c.Op("Unsqueeze", v, c.Ints(-1)) }
func (c *token) front(v *onnx.Value) *onnx.Value { return c.Op("Unsqueeze", v, c.Ints(-2)) }

// factor returns the factor of the state.
func (c *token) factor() *onnx.Value { return c.last(c.Op("Exp", c.gate)) }

func (c *token) decayed() *onnx.Value { return c.Op("Mul", c.state, c.factor()) }

// at reads a state at a key: a sum over the channels of the key.
func (c *token) at(state, key *onnx.Value) *onnx.Value {
	return c.Op("ReduceSum", c.Op("Mul", state, c.last(key)), c.Ints(-2), onnx.IntAttr("keepdims", 0))
}

// with adds the product of a key and an update to a state.
func (c *token) with(state, row *onnx.Value) *onnx.Value {
	return c.Op("Add", state, c.Op("Mul", c.last(c.k), c.front(row)))
}

func (c *token) update(state *onnx.Value) *onnx.Value {
	return c.Op("Mul", c.Op("Sub", c.v, c.at(state, c.k)), c.last(c.beta))
}

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		name     string
		channels int
		write    func(c *token) (state, row *onnx.Value)
		found    bool
	}{
		{"gated delta", 1, func(c *token) (_, _ *onnx.Value) {
			s := c.decayed()
			next := c.with(s, c.update(s))
			return next, c.at(next, c.q)
		}, true},
		{"decay by channel", 4, func(c *token) (_, _ *onnx.Value) {
			s := c.decayed()
			next := c.with(s, c.update(s))
			return next, c.at(next, c.q)
		}, true},
		{"removal and update at keys of their own, as in RWKV-7", 4, func(c *token) (_, _ *onnx.Value) {
			kk, rate := c.Input("kk", onnx.Float, "b", 2, 4), c.Input("rate", onnx.Float, "b", 2, 4)
			removed := c.Op("Mul", c.last(c.Op("Mul", kk, rate)), c.front(c.at(c.state, kk)))
			added := c.Op("Sub", c.Op("Mul", c.last(c.k), c.front(c.v)), removed)
			next := c.Op("Add", c.decayed(), added)
			return next, c.at(next, c.q)
		}, false},
		{"by products of matrices", 1, func(c *token) (_, _ *onnx.Value) {
			s := c.decayed()
			u := c.Op("Mul", c.Op("Sub", c.front(c.v), c.Op("MatMul", c.front(c.k), s)), c.last(c.last(c.beta)))
			next := c.Op("Add", c.Op("MatMul", c.last(c.k), u), s)
			return next, c.Op("MatMul", c.front(c.q), next)
		}, true},
		{"gated", 1, func(c *token) (_, _ *onnx.Value) {
			next := c.with(c.decayed(), c.v)
			return next, c.at(next, c.q)
		}, true},
		{"delta", 1, func(c *token) (_, _ *onnx.Value) {
			next := c.with(c.state, c.update(c.state))
			return next, c.at(next, c.q)
		}, true},
		{"a state whose sequences are counted", 1, func(c *token) (_, _ *onnx.Value) {
			n := c.Op("Shape", c.state)
			for range 30 { // as a mask that is computed from it
				n = c.Op("Add", n, c.Ints(1))
			}
			c.Output(n)
			s := c.decayed()
			next := c.with(s, c.update(s))
			return next, c.at(next, c.q)
		}, true},
		{"decay after the update", 1, func(c *token) (_, _ *onnx.Value) {
			next := c.Op("Mul", c.with(c.state, c.update(c.state)), c.factor())
			return next, c.at(next, c.q)
		}, false},
		{"beta of the value alone", 1, func(c *token) (_, _ *onnx.Value) {
			s := c.decayed()
			next := c.with(s, c.Op("Sub", c.Op("Mul", c.v, c.last(c.beta)), c.at(s, c.k)))
			return next, c.at(next, c.q)
		}, false},
		{"the value at the key before it decays", 1, func(c *token) (_, _ *onnx.Value) {
			next := c.with(c.decayed(), c.update(c.state))
			return next, c.at(next, c.q)
		}, false},
		{"a row of the state before", 1, func(c *token) (_, _ *onnx.Value) {
			s := c.decayed()
			return c.with(s, c.update(s)), c.at(s, c.q)
		}, false},
		{"an update that is added", 1, func(c *token) (_, _ *onnx.Value) {
			s := c.decayed()
			next := c.with(s, c.Op("Mul", c.Op("Add", c.v, c.at(s, c.k)), c.last(c.beta)))
			return next, c.at(next, c.q)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newToken(c.channels)
			state, row := c.write(b)
			b.Output(state)
			b.Output(row)
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			found := len(matches) == 1 && matches[0].Op == "LinearAttention"
			if found != c.found || len(matches) > 1 {
				t.Errorf("found %v, want %v: %v", found, c.found, matches)
			}
		})
	}
}

// TestLayers builds layers at the widths of Qwen3-Next: a step, and a convolution of its channels. All are found,
// because the search runs only those of the first layer. It has no steps for all.
func TestLayers(t *testing.T) {
	const layers = 12
	b := onnxtest.New(18)
	for i := range layers {
		in := func(name string, dims ...any) *onnx.Value {
			return b.Input(name+strconv.Itoa(i), onnx.Float, append([]any{"b"}, dims...)...)
		}
		c := &token{b, in("state", 32, 128, 128), in("q", 32, 128), in("k", 32, 128), in("v", 32, 128),
			in("gate", 32, 1), in("beta", 32)}
		s := c.decayed()
		next := c.with(s, c.update(s))
		b.Output(next)
		b.Output(c.at(next, c.q))
		weights := b.Input("w"+strconv.Itoa(i), onnx.Float, 8192, 1, 4)
		all := b.Op("Concat", in("past", 8192, 3), in("x", 8192, 1), onnx.IntAttr("axis", 2))
		b.Output(b.Op("Conv", all, weights, onnx.IntAttr("group", 8192), onnx.IntsAttr("pads", []int64{0, 0})))
	}
	matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
	found := map[string]int{}
	for _, m := range matches {
		found[m.Op]++
	}
	if found["LinearAttention"] != layers || found["CausalConv"] != layers {
		t.Errorf("%v were found in %d layers", found, layers)
	}
}
