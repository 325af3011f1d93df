package staticcache

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// These serve the tests, which first patch models with packages that import this one.
var (
	RowOf       = rowOf
	WithJunk    = withJunk
	CacheSymbol = cacheSymbol
)

// LengthFromBatch checks a change that reads the number of new tokens from the batch axis.
func LengthFromBatch(run *pass.Run, o Options) error {
	c, err := begin(run, o)
	if err != nil {
		return err
	}
	c.fresh.axis = 0
	if err := c.change(); err != nil {
		return err
	}
	if o.RowLengths {
		return c.checkRowPositions()
	}
	return c.checkLengths()
}

// UnequalLengths checks attention on a buffer that reads other lengths than its input.
func UnequalLengths(run *pass.Run, change func([]int64) []int64) error {
	c, err := begin(run, Options{RowLengths: true})
	if err != nil {
		return err
	}
	s := c.sites[0]
	site, trial := pass.FusedSite(c.Model, c.patched, s.node), c.trials()[1]
	in, err := trial.Inputs(s.op, s.node, site, 0)
	if err != nil {
		return err
	}
	f, err := fused.Lookup(fused.AttentionName).Function(c.inPlace(s))
	if err != nil {
		return err
	}
	n := &onnx.Node{Domain: fused.Domain, OpType: fused.AttentionName, Overload: f.Overload,
		Attributes: s.node.Attributes, Outputs: s.node.Outputs}
	e := reference.NewForOpset(site.Opset, []*onnx.Function{f}, reference.Options{})
	return c.checkUnequal(s, func(in []*reference.Tensor) ([]*reference.Tensor, error) {
		in = slices.Clone(in)
		l := in[fused.AttentionPastLength]
		in[fused.AttentionPastLength] = reference.NewInts(onnx.Int64, l.Shape, change(l.I))
		return e.Op(n, in)
	}, trial, inBuffers(trial, s.op, in), new(prove.CheckReport))
}

func begin(run *pass.Run, o Options) (*cacheChange, error) {
	c := newChange(run, o, "")
	for _, step := range []func() error{c.find, c.measure, c.checkReaders} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// MergedDecoder returns the If of a merged decoder, the branch with a past, and the input that chooses the branch; nil
// if the model is not merged.
func MergedDecoder(g *onnx.Graph) (node *onnx.Node, with *onnx.Graph, flag *onnx.Value, flagOfNone int64) {
	if f := findMerged(g); f != nil {
		return f.node, f.with, f.flag, f.flagOfNone
	}
	return nil, nil, nil, 0
}
