package linear_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// convolution builds a Conv of six channels that reads four tokens, and the nodes around it.
type convolution struct {
	*onnxtest.Builder
	x, w *onnx.Value
}

func newConvolution(tokens any) *convolution {
	b := onnxtest.New(18)
	weights := make([]float32, 24)
	for i := range weights {
		weights[i] = float32(i) - 11.5
	}
	return &convolution{b, b.Input("x", onnx.Float, "b", 6, tokens), b.Floats([]int64{6, 1, 4}, weights...)}
}

func (c *convolution) conv(x *onnx.Value, left, right int64) *onnx.Value {
	return c.Op("Conv", x, c.w, onnx.IntAttr("group", 6), onnx.IntsAttr("pads", []int64{left, right}))
}

// first takes the first tokens, as many as x has; last takes the last ones.
func (c *convolution) first(v *onnx.Value) *onnx.Value {
	return c.Op("Slice", v, c.Ints(0), c.tokens(), c.Ints(2))
}

func (c *convolution) last(v *onnx.Value) *onnx.Value {
	return c.Op("Slice", v, c.Op("Neg", c.tokens()), c.Ints(math.MaxInt64), c.Ints(2))
}

func (c *convolution) tokens() *onnx.Value {
	return c.Op("Slice", c.Op("Shape", c.x), c.Ints(2), c.Ints(3))
}

func (c *convolution) silu(v *onnx.Value) *onnx.Value { return c.Op("Mul", v, c.Op("Sigmoid", v)) }

// stepped builds a decode step: it joins kept tokens and x, and keeps the last tokens of both.
func (c *convolution) stepped(kept int) (y, state *onnx.Value) {
	all := c.Op("Concat", c.Input("past", onnx.Float, "b", 6, kept), c.x, onnx.IntAttr("axis", 2))
	state = c.Op("Slice", all, c.Ints(-int64(kept)), c.Ints(math.MaxInt64), c.Ints(2))
	return c.last(c.conv(all, 0, 0)), state
}

func TestConvs(t *testing.T) {
	rows := onnx.IntsAttr("perm", []int64{0, 2, 1})
	for _, c := range []struct {
		name   string
		tokens any
		write  func(c *convolution) []*onnx.Value
		found  string // the activation; "" if nothing is found
		nodes  int    // nodes in the replacement
	}{
		{"padded on both sides", "n", func(c *convolution) []*onnx.Value {
			return []*onnx.Value{c.silu(c.first(c.conv(c.x, 3, 3)))}
		}, "silu", 1},
		{"padded before, no activation", "n", func(c *convolution) []*onnx.Value {
			return []*onnx.Value{c.conv(c.Op("Pad", c.x, c.Ints(0, 0, 3, 0, 0, 0)), 0, 0)}
		}, "none", 1},
		{"padded by the Conv", "n", func(c *convolution) []*onnx.Value {
			return []*onnx.Value{c.silu(c.conv(c.x, 3, 0))}
		}, "silu", 1},
		{"transposed before its activation", "n", func(c *convolution) []*onnx.Value {
			return []*onnx.Value{c.silu(c.Op("Transpose", c.first(c.conv(c.x, 3, 3)), rows))}
		}, "silu", 2},
		{"half of the channels", "n", func(c *convolution) []*onnx.Value {
			c.x = c.Op("Slice", c.Input("both", onnx.Float, "b", 12, "n"), c.Ints(0), c.Ints(6), c.Ints(1))
			return []*onnx.Value{c.silu(c.first(c.conv(c.x, 3, 3)))}
		}, "silu", 1},
		{"a step", 1, func(c *convolution) []*onnx.Value {
			y, state := c.stepped(4)
			return []*onnx.Value{c.silu(y), state}
		}, "silu", 1},
		{"several tokens behind kept ones", "n", func(c *convolution) []*onnx.Value {
			y, state := c.stepped(3)
			return []*onnx.Value{y, state}
		}, "none", 1},
		{"padding that the future is seen with", "n", func(c *convolution) []*onnx.Value {
			return []*onnx.Value{c.silu(c.conv(c.x, 1, 2))}
		}, "", 0},
		{"the last tokens of both paddings", "n", func(c *convolution) []*onnx.Value {
			return []*onnx.Value{c.silu(c.last(c.conv(c.x, 3, 3)))}
		}, "", 0},
		{"a step that keeps too few", "n", func(c *convolution) []*onnx.Value {
			y, state := c.stepped(2)
			return []*onnx.Value{c.Op("Pad", y, c.Ints(0, 0, 1, 0, 0, 0)), state}
		}, "", 0},
		{"sums that are read as well", "n", func(c *convolution) []*onnx.Value {
			sums := c.conv(c.x, 3, 3)
			return []*onnx.Value{c.silu(c.first(sums)), c.Op("Relu", sums)}
		}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newConvolution(c.tokens)
			for _, v := range c.write(b) {
				b.Output(v)
			}
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			if len(matches) == 0 && c.found == "" {
				return
			}
			if len(matches) != 1 || matches[0].Op != "CausalConv" || c.found == "" {
				t.Fatalf("found %v, want %q", matches, c.found)
			}
			nodes := matches[0].Replacement.Nodes
			if got := nodes[0].AttrString("activation", ""); got != c.found || len(nodes) != c.nodes {
				t.Errorf("activation %q in %d nodes, want %q in %d", got, len(nodes), c.found, c.nodes)
			}
		})
	}
}
