package feeds

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
)

// OwnParts returns cases of a whole model in the form that m takes, if m is the model of a rank: it cuts the inputs and
// outputs of which each rank has a part.
func OwnParts(m *onnx.Model, cases []golden.Case) ([]golden.Case, error) {
	folder, rank, ok := shard.RankOf(m.Path)
	if !ok {
		return cases, nil
	}
	p, err := shard.ReadPlan(folder)
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= p.Ranks {
		return nil, fmt.Errorf("%s is not a model of the plan in its folder, which has the ranks 0 to %d", m.Path,
			p.Ranks-1)
	}
	facts := infer.Analyze(m)
	cut := func(list []*onnx.Tensor, values []*onnx.Value, ports []shard.Port) ([]*onnx.Tensor, error) {
		list = slices.Clone(list)
		for i, t := range list {
			at := slices.IndexFunc(ports, func(port shard.Port) bool { return port.Name == t.Name })
			of := slices.IndexFunc(values, func(v *onnx.Value) bool { return v.Name == t.Name })
			if at < 0 || of < 0 {
				continue
			}
			size, _ := facts.Dim(values[of], ports[at].Axis)
			if list[i], err = p.Part(ports[at], t, rank, size); err != nil {
				return nil, fmt.Errorf("cannot cut %q for rank %d: %w", t.Name, rank, err)
			}
		}
		return list, nil
	}
	out := slices.Clone(cases)
	for i, c := range cases {
		if out[i].Inputs, err = cut(c.Inputs, m.Graph.Inputs, p.Inputs); err != nil {
			return nil, err
		}
		if out[i].Outputs, err = cut(c.Outputs, m.Graph.Outputs, p.Outputs); err != nil {
			return nil, err
		}
	}
	return out, nil
}
