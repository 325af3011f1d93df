package latentcache

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// Trials are the lengths to try.
var Trials = latentTrials

// CheckWrong checks the caches of a patched model after the named part was made wrong; "" changes nothing. The tests
// first patch models with packages that import this one.
func CheckWrong(run *pass.Run, what string) error {
	c := &latentChange{Run: run, facts: infer.Analyze(run.Model)}
	if err := c.find(); err != nil {
		return err
	}
	switch l := c.sites[0].latent; what {
	case "":
	case "weights of the other layer":
		l.W = c.sites[1].latent.W
	case "another latent":
		l.Nope, l.Values = l.Values, l.Nope // their sum stays the same
	case "a wrong kernel":
		run.HasKernel = func(string) bool { return true }
		run.Kernel = func(_ string, _ []*onnx.Attribute, in []*onnx.Tensor) ([]*onnx.Tensor, error) {
			q, err := reference.FromONNX(in[fused.LatentAttentionQ])
			if err != nil {
				return nil, err
			}
			batch, heads, tokens := q.Shape[0], q.Shape[1], q.Shape[2]
			y, err := reference.NewFloats(onnx.Float, []int{batch, tokens, heads, 6},
				make([]float64, batch*tokens*heads*6)).ToONNX("y")
			return []*onnx.Tensor{y, in[fused.LatentAttentionPast]}, err
		}
	default:
		return errors.New("unknown: " + what)
	}
	return c.checkSites()
}
