package generate

import (
	"context"
	"errors"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// group splits prompts into groups that the model computes together. If the lengths are equal or padding does not
// change the results, all prompts form one group, else one per length. A group fits the graph's fixed batch.
func (g *Generator) group(ctx context.Context, prompts [][]int64) ([][]int, error) {
	var groups [][]int
	mixed := slices.ContainsFunc(prompts, func(p []int64) bool { return len(p) != len(prompts[0]) })
	together := true
	if mixed && g.layout.batch() != 1 {
		var err error
		if together, err = g.paddable(ctx, prompts); err != nil {
			return nil, err
		}
	}
	most := g.layout.batch()
	if most == 0 {
		most = len(prompts)
	}
	for i, p := range prompts {
		k := slices.IndexFunc(groups, func(list []int) bool {
			return len(list) < most && (together || len(prompts[list[0]]) == len(p))
		})
		if k < 0 {
			groups = append(groups, nil)
			k = len(groups) - 1
		}
		groups[k] = append(groups[k], i)
	}
	return groups, nil
}

// paddable reports whether sequences of different lengths may be computed together. Padding after sequences is safe if
// the model is fed whole sequences and returns logits for every position, or is given each sequence's length and has no
// states, which padding after a sequence would change. Padding before them is tried once on tokens of the prompts: the
// model may ignore its attention mask, or count positions from the padding.
func (g *Generator) paddable(ctx context.Context, prompts [][]int64) (bool, error) {
	if g.layout.paged != nil {
		return true, nil
	}
	if g.right || g.layout.byRows() {
		return !g.layout.hasStates(), nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.padded == nil {
		same, err := g.tryPadding(ctx, prompts)
		if ctx.Err() != nil {
			return false, err
		}
		same = same && err == nil // a graph that fails on padding cannot use it
		g.padded = &same
	}
	return *g.padded, nil
}

// probe and probePadding are the numbers of tokens and of padding slots for trying padding.
const probe, probePadding = 5, 3

// The limits for the difference of logits with and without padding, relative to the range of the logits: far more than
// a change in the order of sums causes, and far less than an extra visible token or a shifted position causes.
const (
	paddingTolerance     = 1e-3
	paddingToleranceHalf = 3e-2
)

// tryPadding compares the logits after a few tokens, and after one more, with and without padding before them.
func (g *Generator) tryPadding(ctx context.Context, prompts [][]int64) (bool, error) {
	if !g.layout.has(roles.Mask) {
		return false, nil
	}
	var ids []int64
	for _, p := range prompts {
		ids = append(ids, p...)
	}
	lengths := []int{min(len(ids), probe)}
	if g.layout.hasStates() { // padding changes a state most before the first token, and a convolution forgets it soon
		lengths = append(lengths, min(len(ids), 2))
	}
	for _, n := range lengths {
		want, err := g.probe(ctx, ids[:n], 0)
		if err != nil {
			return false, err
		}
		got, err := g.probe(ctx, ids[:n], probePadding)
		if err != nil {
			return false, err
		}
		if !slices.EqualFunc(got, want, g.near) {
			return false, nil
		}
	}
	return true, nil
}

// probe returns the logits after all ids except the last, and after the last one.
func (g *Generator) probe(ctx context.Context, ids []int64, padding int) (logits [][]float32, err error) {
	last := len(ids) - 1
	b, err := g.newBatch([][]int64{ids[:last]})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.left[0], b.steady = padding, false // two runs are not worth a CUDA graph
	for _, id := range []int64{ids[last], 0} {
		if err := b.advance(ctx, 0); err != nil {
			return nil, err
		}
		row, err := b.row(0)
		if err != nil {
			return nil, err
		}
		logits = append(logits, slices.Clone(row))
		b.add(0, id)
	}
	return logits, nil
}

func (g *Generator) near(got, want []float32) bool {
	least, greatest := slices.Min(want), slices.Max(want)
	tolerance := float32(paddingTolerance)
	if g.half {
		tolerance = paddingToleranceHalf
	}
	for i := range want {
		d := got[i] - want[i]
		if !(d <= tolerance*(greatest-least) && d >= -tolerance*(greatest-least)) && got[i] != want[i] {
			return false
		}
	}
	return len(got) == len(want)
}
