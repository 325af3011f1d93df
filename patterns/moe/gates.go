package moe

import (
	"errors"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference"
)

var errNotChosen = errors.New("gates that depend on more than the chosen experts")

// gatesHold reports whether the gates of all experts are zero for those that a token does not go to, since the op reads
// only the gates of the chosen ones. It evaluates the nodes between the choice and the gates on an example.
func gatesHold(g *match.View, r *router.Routing) bool {
	lab := probe.NewLab(g, router.MaxRouter, budgetOf(g)).Rounded()
	ids, ok := lab.Shape(r.IDs)
	if !ok || match.Elements(ids) == 0 {
		return false
	}
	chosen := make([]int64, match.Elements(ids))
	for i := range chosen { // each token goes to other experts than the one before
		chosen[i] = (int64(i)/r.K + int64(i)%r.K*(r.Experts/r.K)) % r.Experts
	}
	made := r.MadeOf()
	known := func(v *onnx.Value) (*reference.Tensor, error) {
		n, t := match.Producer(v), g.Facts.DataType(v)
		if t, ok := g.Facts.Known(v, lab.World); ok {
			if g.Facts.Loose(v) {
				return nil, errNotChosen
			}
			return t, nil
		}
		if (v == r.Logits || !made[v] || n.Is("TopK")) && g.IsData(v) { // the inputs of the scores, and chosen scores
			shape, ok := lab.Shape(v)
			if !ok || !t.IsFloat() {
				return nil, errNotChosen
			}
			return examples(t, shape), nil
		}
		if n == nil || len(n.Subgraphs()) > 0 {
			return nil, errNotChosen
		}
		return nil, nil
	}
	env := probe.Values{r.IDs: reference.NewInts(g.Facts.DataType(r.IDs), ids, chosen)}
	out, err := lab.Run(env, known, r.Dense)
	if err != nil || int64(len(out[0].F)) != int64(len(chosen))/r.K*r.Experts {
		return false
	}
	for i, x := range out[0].F {
		token := int64(i) / r.Experts
		if x != 0 && !slices.Contains(chosen[token*r.K:(token+1)*r.K], int64(i)%r.Experts) {
			return false
		}
	}
	return true
}

// examples returns a tensor of different positive numbers.
func examples(t onnx.DataType, shape []int) *reference.Tensor {
	v := make([]float64, match.Elements(shape))
	for i := range v {
		v[i] = 0.5 + float64(i%7)/8
	}
	return reference.NewFloats(t, shape, v)
}
