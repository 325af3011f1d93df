package sites

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// attention returns the call of the op itself. Other calls may rotate its inputs.
func (c *Site) attention() *Call {
	return c.Calls[slices.IndexFunc(c.Calls, func(call *Call) bool { return call.Op.Name == fused.AttentionName })]
}

// keysOf returns the number of keys of a block, or -1 if it is not fixed.
func keysOf(s fused.Site) int64 {
	axis := 2
	if s.Attr(fused.AttrKLayout).String == "bsnh" {
		axis = 1
	}
	return dimOf(s, fused.AttentionK, axis)
}

// spread returns a kind of queries and keys whose scores have about this magnitude.
func spread(s fused.Site, scores float64) prove.Kind {
	width := float64(max(dimOf(s, fused.AttentionQ, -1), 1))
	scale := 1 / math.Sqrt(width)
	if a := s.Attr(fused.AttrScale).Float; a != 0 {
		scale = math.Abs(float64(a))
	}
	size := math.Sqrt(scores / (scale * math.Sqrt(width)))
	return prove.Kind{Name: "", Fill: prove.Scaled(func(onnx.DataType) float64 { return size })}
}

// masking biases hide some keys.
var masking = prove.Kind{Name: "masking", Fill: func(r *rand.Rand, _ onnx.DataType, v []float64, row int) {
	for i := range v {
		if v[i] = 0; row > 0 && i%row > 0 && r.IntN(3) == 0 {
			v[i] = math.Inf(-1)
		}
	}
}}

// attentionTrial is one set of inputs. Scores larger than usual reveal more without rounding, and nothing with it.
type attentionTrial struct {
	name           string
	scores, values prove.Kind
	padding        prove.Padding
}

// attentionTrials lists the trials of a world: all in the first one, the most revealing paddings in the others. The
// site computes in coarse.
func attentionTrials(s fused.Site, coarse onnx.DataType, world int, exact bool) []attentionTrial {
	usual := spread(s, 1)
	padded := func(list ...prove.Padding) (trials []attentionTrial) {
		for _, p := range list {
			trials = append(trials, attentionTrial{p.Name, usual, prove.Normal, p})
		}
		return trials
	}
	if world > 0 {
		return padded(prove.LeftPadding, prove.Holes)
	}
	list := append(padded(prove.Paddings...),
		attentionTrial{"small scores, large values", spread(s, 1e-3), prove.Large, prove.RightPadding},
		attentionTrial{"equal scores, tiny values", prove.Zeros, prove.Tiny, prove.Holes},
		attentionTrial{"one-hot", prove.OneHot, prove.Repeated, prove.NoPadding},
		attentionTrial{"repeated", prove.Repeated, prove.OneHot, prove.LeftPadding})
	switch great := "great scores"; {
	case exact:
		list = append(list, attentionTrial{great, spread(s, 40), prove.Normal, prove.LeftPadding})
	case !coarse.IsHalf(): // else only their rounding shows
		list = append(list, attentionTrial{great, spread(s, 4), prove.Normal, prove.LeftPadding})
	}
	return list
}

// tryAttention tries a block of attention with fewer tokens, or with all of them if that cannot be evaluated.
func (k *Checker) tryAttention(c *Site, worlds []int, r *prove.CheckReport) error {
	c.coarse = coarsest(c, k.run.Facts)
	defer func() { c.short = nil }()
	if c.shortens(k.run.Facts) {
		shorter := *r
		if err := k.paddings(c, worlds, true, &shorter).Try(&shorter); !errors.As(err, new(*prove.EvalError)) {
			*r = shorter
			return err
		}
		c.short = nil
	}
	return k.paddings(c, worlds, false, r).Try(r)
}

// paddings claims that both sides of a block of attention agree on all paddings and scores, with the model's lengths or
// with shorter ones.
func (k *Checker) paddings(c *Site, worlds []int, short bool, r *prove.CheckReport) *prove.Claim {
	p := &proof{Checker: k, c: c}
	return p.claim(c.Calls, func() error {
		for _, n := range worlds {
			w := world{k.run.Facts, n}
			shapes, err := k.shapes(c, w)
			if err != nil {
				return err
			}
			c.terms = keysOf(c.attention().Site)
			if short {
				if c.short, err = c.shorten(w, shapes); err != nil {
					return &prove.EvalError{Err: err}
				}
				shapes, c.terms = c.short.inputs, c.short.keys
			}
			for _, pass := range []prove.Pass{prove.Exactly, prove.Rounded} {
				if err := p.attention(w, shapes, pass); err != nil {
					return err
				}
			}
			if n == 0 {
				k.tryNaN(c, w, shapes, r)
			}
		}
		return nil
	})
}

// attention tries all paddings and scores in one pass.
func (p *proof) attention(w world, shapes [][]int64, pass prove.Pass) error {
	c, exact := p.c, pass == prove.Exactly
	for _, t := range attentionTrials(c.attention().Site, c.coarse, w.n, exact) {
		if exact && c.coarse == onnx.Float16 && t.padding.Empty {
			continue // rounding alone makes scores vanish next to the lowest float16
		}
		inputs, err := p.attentionInputs(c, t, shapes, exact)
		if err != nil {
			return &prove.EvalError{Err: err}
		}
		err = p.try(prove.Trial{Name: t.name + " inputs", Kind: t.name, Inputs: inputs, Pass: pass}, w)
		if err != nil {
			return err
		}
	}
	return nil
}

// NaNQueries names the input of tryNaN in reports.
const NaNQueries = "NaN queries"

// tryNaN adds a note if the matched nodes return numbers for NaN queries, because they guard against NaN between the
// softmax and the values: the op returns NaN.
func (k *Checker) tryNaN(c *Site, w world, shapes [][]int64, r *prove.CheckReport) {
	inputs, err := k.attentionInputs(c, attentionTrials(c.attention().Site, c.coarse, 0, false)[0], shapes, false)
	if err != nil {
		return
	}
	for i, v := range c.Match.Inputs {
		if c.Match.Roles[v] == fused.RoleQueries && len(inputs[i].F) > 0 {
			inputs[i].F[0] = math.NaN()
		}
	}
	want, err := k.original(c, w, inputs, false)
	if err != nil && !errors.Is(err, prove.ErrOverflow) {
		return
	}
	if got, _, err := k.replacement(c, inputs, false); err == nil && len(got) == len(want) {
		r.NumbersForNone(NaNQueries, got, want)
	}
}

// attentionInputs returns the inputs of a trial.
func (k *Checker) attentionInputs(c *Site, t attentionTrial, shapes [][]int64, exact bool) ([]*reference.Tensor,
	error) {
	inputs, err := k.inputs(c, prove.Normal, shapes, exact)
	for i, v := range c.Match.Inputs {
		if err != nil {
			break
		}
		if x := v.Constant(); x != nil && c.short != nil && !slices.Equal(x.Dims, shapes[i]) {
			inputs[i], err = prove.MakeInput(prove.Normal, i, c.Types[i], shapes[i])
		}
		switch c.Match.Roles[v] {
		case fused.RoleQueries, fused.RoleKeys:
			inputs[i], err = prove.MakeInput(t.scores, i, c.Types[i], shapes[i])
		case fused.RoleValues:
			inputs[i], err = prove.MakeInput(t.values, i, c.Types[i], shapes[i])
		case fused.RoleScoreBias:
			if t.padding.Empty && !hasMask(c.attention().Site) {
				inputs[i], err = prove.MakeInput(masking, i, c.Types[i], shapes[i])
			}
		case fused.RoleKeyExists:
			inputs[i] = t.padding.Tensor(c.Types[i], shapes[i])
		case fused.RoleKeyHidden:
			hidden := prove.Padding{Exists: func(b, j, n int) bool { return !t.padding.Exists(b, j, n) }}
			inputs[i] = hidden.Tensor(c.Types[i], shapes[i])
		case fused.RoleKeyLengths:
			p := t.padding
			if !p.Right || c.attention().Node.Input(fused.AttentionPastKey) != nil {
				p = prove.NoPadding
			}
			inputs[i] = p.Tensor(c.Types[i], shapes[i])
		}
	}
	return inputs, err
}

// hasMask reports whether anything but a bias hides keys. A bias next to it then hides none.
func hasMask(s fused.Site) bool {
	valid := len(s.Types) > fused.AttentionKeyValid && s.Types[fused.AttentionKeyValid] != onnx.Undefined
	a := fused.Read[fused.Attention](s.Attributes)
	return valid || a.Causal || a.Window != 0
}
