package diff

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/spf13/cobra"
)

// layersFlags are the flags of diff --layers.
type layersFlags struct {
	layers bool
	memory string
	ties   bool
	most   int64
}

func (f *layersFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.layers, "layers", false, "also compare the values inside the models, block by block")
	c.Flags().StringVar(&f.memory, "max-memory", "1G", "the most bytes of values to hold at once")
	c.Flags().BoolVar(&f.ties, "router-ties", false,
		"pass if tokens go to other experts in a tie and all else agrees")
	cli.Rules(c, "max-memory router-ties requires layers")
}

func (f *layersFlags) check(c *cobra.Command) (err error) {
	f.most, err = cli.ParseBytes(f.memory)
	if err != nil {
		return fmt.Errorf("--max-memory: %w", err)
	}
	return nil
}

// compareLayers runs both models side by side and compares their intermediate values.
func (f *options) compareLayers(a *cli.App, first, second string, cases []golden.Case) (*compare.LayersReport, error) {
	var models [2]*onnx.Model
	var open [2]trace.Open
	r := &compare.LayersReport{Limit: f.most, Passed: true, Found: map[string]int{}, Values: &trace.Comparison{}}
	for i, path := range []string{first, second} {
		m, err := a.Read(path)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		if err := session.InlineOthers(m); err != nil {
			return nil, err
		}
		models[i], open[i] = m, f.sides.Sides[i].Pieces(a, &r.Backends[i])
	}
	step, end := a.Progress("value")
	defer end()
	c := trace.NewComparer(models[0], models[1], trace.Options{OpenA: open[0], OpenB: open[1], MaxMemory: f.most,
		Tolerances: f.criteria.Tolerances, RouterTies: f.ties, Progress: step})
	others, err := golden.WithOwnPasts(models[1], cases)
	if err != nil {
		return nil, err
	}
	for i, one := range cases {
		if len(one.Follows) > 0 || len(others[i].Follows) > 0 {
			return nil, fmt.Errorf("case %d: --layers does not support cases in which each model computes its own "+
				"past", i)
		}
		other, err := feeds.Fitted(models[1], others[i])
		if err != nil {
			return nil, err
		}
		v, err := c.Run(one.Inputs, other.Inputs, i)
		if err != nil {
			return nil, cli.Failed(err)
		}
		r.Values.Add(v)
	}
	r.Conclude()
	return r, nil
}
