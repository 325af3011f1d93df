package sites_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// encoder is an attention block over a fixed number of tokens, as in vision and audio models, with 2 heads of 4
// channels.
type encoder struct {
	*rewritetest.Builder
	tokens int
	keys   int // of another input, or 0
	batch  any
	scores func(e *encoder, s value) value // before the softmax
	probs  func(e *encoder, p value) value // after it
}

func (e *encoder) heads(x value, tokens int, name string, perm ...int64) value {
	p := e.Op("MatMul", x, e.Weight(name, 8, 8))
	return e.Op("Transpose", e.Op("Reshape", p, e.Ints(-1, int64(tokens), 2, 4)), onnx.IntsAttr("perm", perm))
}

func (e *encoder) build() *onnx.Model {
	x := e.In("x", e.batch, e.tokens, 8)
	y, keys := x, e.tokens
	if e.keys > 0 {
		y, keys = e.In("y", e.batch, e.keys, 8), e.keys
	}
	q, k, v := e.heads(x, e.tokens, "q", 0, 2, 1, 3), e.heads(y, keys, "k", 0, 2, 3, 1),
		e.heads(y, keys, "v", 0, 2, 1, 3)
	s := e.Op("Mul", e.Op("MatMul", q, k), e.Scalar(e.Type, 0.5))
	if e.scores != nil {
		s = e.scores(e, s)
	}
	p := e.Op("Softmax", s, onnx.IntAttr("axis", -1))
	if e.probs != nil {
		p = e.probs(e, p)
	}
	y = e.Op("Transpose", e.Op("MatMul", p, v), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	e.Out(e.Op("Reshape", y, e.Ints(-1, int64(e.tokens), 8)), e.batch, e.tokens, 8)
	return e.Model
}

// each returns a constant with a number for each token; others overrides a few of them.
func (e *encoder) each(shape []int, others map[int]float64, usual float64) value {
	n := 1
	for _, d := range shape {
		n *= d
	}
	list := slices.Repeat([]float64{usual}, n)
	for at, x := range others {
		list[at] = x
	}
	return e.Tensor(reference.NewFloats(e.Type, shape, list), "each")
}

// TestFixedLengths fuses attention over more tokens than a full check can afford, but refuses blocks that treat one
// token differently.
func TestFixedLengths(t *testing.T) {
	const tokens = 200
	for _, c := range []struct {
		name   string
		tokens int
		keys   int
		batch  any
		fused  int
		scores func(e *encoder, s value) value
		probs  func(e *encoder, p value) value
	}{
		{name: "an image of 336 by 336", tokens: 577, batch: 1, fused: 1},
		{name: "30 seconds of sound", tokens: 1500, batch: 1, fused: 1},
		{name: "images", tokens: 729, batch: "batch", fused: 1},
		{name: "keys of something else", tokens: tokens, keys: 300, batch: 1, fused: 1,
			scores: func(e *encoder, s value) value {
				return e.Op("Add", s, e.each([]int{1, 2, tokens, 300}, map[int]float64{7: 0.5, 119999: 2}, 0.25))
			}},
		{name: "a mask that is expanded and hides nothing", tokens: 577, batch: "batch", fused: 1,
			scores: func(e *encoder, s value) value {
				batch := e.Op("Slice", e.Op("Shape", e.Graph.Inputs[0]), e.Ints(0), e.Ints(1))
				shape := e.Op("Concat", batch, e.Ints(1, 577, 577), onnx.IntAttr("axis", 0))
				ones := reference.NewInts(onnx.Bool, []int{1, 1, 577, 1}, slices.Repeat([]int64{1}, 577))
				yes := e.Tensor(ones, "yes")
				mask := e.Op("Where", e.Op("Expand", yes, shape), e.Scalar(e.Type, 0), e.Scalar(e.Type, math.Inf(-1)))
				return e.Op("Add", s, mask)
			}},
		{name: "a constant mask that hides nothing", tokens: tokens, batch: "batch", fused: 1,
			scores: func(e *encoder, s value) value {
				return e.Op("Add", s, e.each([]int{1, 1, tokens, tokens}, nil, 0))
			}},
		{name: "a constant mask that hides one key", tokens: tokens, batch: 1, fused: 1,
			scores: func(e *encoder, s value) value {
				return e.Op("Add", s, e.each([]int{1, 1, 1, tokens}, map[int]float64{150: -1e9}, 0))
			}},
		{name: "a bias for every pair", tokens: tokens, batch: "batch", fused: 1,
			scores: func(e *encoder, s value) value {
				others := map[int]float64{7: 0.5, 39999: 2, 79999: -1}
				return e.Op("Add", s, e.each([]int{1, 2, tokens, tokens}, others, 0.25))
			}},
		{name: "one score is another", tokens: tokens, batch: 1,
			scores: func(e *encoder, s value) value {
				return e.Op("Mul", s, e.each([]int{tokens}, map[int]float64{150: 2}, 1))
			}},
		{name: "one weight is another", tokens: tokens, batch: 1,
			probs: func(e *encoder, p value) value {
				return e.Op("Mul", p, e.each([]int{tokens}, map[int]float64{199: 0.5}, 1))
			}},
		{name: "the last query gets other weights", tokens: tokens, batch: 1,
			probs: func(e *encoder, p value) value {
				return e.Op("Mul", p, e.each([]int{tokens, 1}, map[int]float64{199: 0.5}, 1))
			}},
		{name: "a scale by the number of keys", tokens: tokens, batch: 1, fused: 1,
			scores: func(e *encoder, s value) value {
				n := e.Op("Gather", e.Op("Shape", s), e.Ints(3))
				return e.Op("Mul", s, e.Op("Log", e.Op("Cast", n, onnx.IntAttr("to", int64(e.Type)))))
			}},
		{name: "heads that mix tokens", tokens: tokens, batch: 1,
			probs: func(e *encoder, p value) value {
				turned := e.Op("Transpose", p, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
				return e.Op("Reshape", turned, e.Ints(1, 2, 200, 200))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			make := func() *onnx.Model {
				e := &encoder{rewritetest.New(t, 18, onnx.Float), c.tokens, c.keys, c.batch, c.scores, c.probs}
				return e.build()
			}
			m, original := make(), make()
			start := cputime.Used()
			r := applytest.Apply(t, m)
			took := cputime.Used() - start
			if r.Fused() != c.fused {
				t.Errorf("%d fused instead of %d: %+v", r.Fused(), c.fused, r.Sites)
			}
			if c.fused > 0 && took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if c.tokens > tokens {
				return
			}
			for name, want := range rewritetest.Evaluate(t, original) {
				got := rewritetest.Evaluate(t, m)[name]
				if difference, scale := prove.Distance(want.F, got.F); difference > 1e-5*scale {
					t.Errorf("%s differs by %g of %g", name, difference, scale)
				}
			}
		})
	}
}
