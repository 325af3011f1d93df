package generate

import (
	"context"
	"slices"
)

// group cuts prompts into those that the model computes together: all, where they are of one length or padding does not change
// the results, else those of one length; no more than the graph's fixed batch.
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

func (g *Generator) paddable(ctx context.Context, prompts [][]int64) (bool, error) { return g.right, nil }
