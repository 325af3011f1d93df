package rewrite

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
)

// attends is the fused op whose scores decide by differences: what is hard is not their size but who sees whom.
const attends = "Attention"

// attention is the call of the op itself; others may rotate what it reads.
func (c *candidate) attention() *fusedCall {
	return c.calls[slices.IndexFunc(c.calls, func(call *fusedCall) bool { return call.op.Name == attends })]
}

// padding is one kind of keys that do not exist, out of so many in each of several batches.
type padding struct {
	name   string
	exists func(batch, key, keys int) bool
	empty  bool // a query may be left without a key
	right  bool // it stands behind what exists
}

var paddings = []padding{
	{"no padding", func(_, _, _ int) bool { return true }, false, true},
	{"padding on the right", func(b, j, n int) bool { return j < max(n-1-b, 1) }, false, true},
	{"padding on the left", func(b, j, n int) bool { return j > b%n }, true, false},
	{"holes", func(b, j, n int) bool { return j == 0 || (j+b)%3 != 1 }, false, false},
	{"nothing but padding", func(b, j, n int) bool { return b != 0 }, true, false},
}

// spread is a kind of queries and keys whose scores are about as great.
func (k *checker) spread(c *candidate, scores float64) kind {
	call := c.attention()
	width := float64(max(dimOf(call.site, fused.AttentionQ, -1), 1))
	scale := 1 / math.Sqrt(width)
	if a := call.node.Attr("scale"); a != nil && a.Float != 0 {
		scale = math.Abs(float64(a.Float))
	}
	size := math.Sqrt(scores / (scale * math.Sqrt(width)))
	return kind{"", scaled(func(onnx.DataType) float64 { return size })}
}

// masking biases hide some keys.
var masking = kind{"masking", func(r *rand.Rand, _ onnx.DataType, v []float64, row int) {
	for i := range v {
		if v[i] = 0; row > 0 && i%row > 0 && r.IntN(3) == 0 {
			v[i] = math.Inf(-1)
		}
	}
}}

// attentionTrial is one set of inputs. Greater scores than usual say more without roundings, and nothing with them.
type attentionTrial struct {
	name           string
	scores, values kind
	padding        padding
}

func (k *checker) attentionTrials(c *candidate, exact bool) []attentionTrial {
	great := 4.0
	if exact {
		great = 40
	}
	usual, normal, large, tiny, zeros, oneHot, repeated := k.spread(c, 1), kinds[0], kinds[2], kinds[4], kinds[5],
		kinds[6], kinds[7]
	list := []attentionTrial{{"great scores", k.spread(c, great), normal, paddings[2]},
		{"small scores, large values", k.spread(c, 1e-3), large, paddings[1]},
		{"equal scores, tiny values", zeros, tiny, paddings[3]}, {"one-hot", oneHot, repeated, paddings[0]},
		{"repeated", repeated, oneHot, paddings[2]}}
	for _, p := range paddings {
		list = append(list, attentionTrial{p.name, usual, normal, p})
	}
	return list
}

// runAttention compares a block of attention with the op: on all trials in the first world, on the paddings in others.
func (k *checker) runAttention(c *candidate, worlds []int, r *CheckReport) error {
	c.coarse = coarsest(c, k.facts)
	typedCases := 0
	for _, n := range worlds {
		w := world{k.facts, n}
		shapes, err := k.shapes(c, w)
		if err != nil {
			return err
		}
		for _, exact := range []bool{true, false} {
			trials := k.attentionTrials(c, exact)
			switch {
			case n > 0:
				trials = trials[len(trials)-3 : len(trials)-1]
			case c.coarse.IsHalf() && !exact:
				trials = trials[1:] // the roundings of great scores are all that is seen then
			}
			for _, t := range trials {
				if exact && c.coarse == onnx.Float16 && t.padding.empty {
					continue // scores vanish beside the least number of float16 by rounding alone
				}
				inputs, err := k.attentionInputs(c, t, shapes, exact)
				if err != nil {
					return &evalError{err}
				}
				counted, err := k.try(c, w, kind{name: t.name}, inputs, exact, r)
				if err != nil {
					return err
				}
				if counted && !exact {
					typedCases++
				}
			}
		}
	}
	return overflown(typedCases)
}

// attentionInputs makes the inputs of a trial.
func (k *checker) attentionInputs(c *candidate, t attentionTrial, shapes [][]int64, exact bool) ([]*reference.Tensor,
	error) {
	inputs, err := k.inputs(c, kinds[0], shapes, exact)
	for i, v := range c.match.Inputs {
		if err != nil {
			break
		}
		switch c.match.Roles[v] {
		case patterns.Queries, patterns.Keys:
			inputs[i], err = makeInput(t.scores, i, c.types[i], shapes[i])
		case patterns.Values:
			inputs[i], err = makeInput(t.values, i, c.types[i], shapes[i])
		case patterns.ScoreBias:
			if t.padding.empty && !c.hasMask() {
				inputs[i], err = makeInput(masking, i, c.types[i], shapes[i])
			}
		case patterns.KeyExists:
			inputs[i] = t.padding.tensor(c.types[i], shapes[i])
		case patterns.KeyLengths:
			p := t.padding
			if !p.right || c.attention().node.Input(fused.AttentionPastKey) != nil {
				p = paddings[0]
			}
			inputs[i] = p.tensor(c.types[i], shapes[i])
		}
	}
	return inputs, err
}

// hasMask reports whether something else than a bias hides keys: a bias beside it holds numbers that hide none.
func (c *candidate) hasMask() bool {
	n := c.attention().node
	return n.Input(fused.AttentionKeyValid) != nil || n.AttrInt("causal", 0) != 0 || n.AttrInt("window", 0) != 0
}

// tensor has 1 for each key of each batch that exists, and 0 for the others.
func (p padding) tensor(t onnx.DataType, shape []int64) *reference.Tensor {
	batches, keys := int(shape[0]), int(shape[1])
	list := make([]int64, 0, batches*keys)
	for b := range batches {
		for j := range keys {
			x := int64(0)
			if p.exists(b, j, keys) {
				x = 1
			}
			list = append(list, x)
		}
	}
	dims := []int{batches, keys}
	if !t.IsFloat() {
		return reference.NewInts(t, dims, list)
	}
	floats := make([]float64, len(list))
	for i, x := range list {
		floats[i] = float64(x)
	}
	return reference.NewFloats(t, dims, floats)
}
