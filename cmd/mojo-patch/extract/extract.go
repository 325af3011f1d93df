// Package extract is the command extract.
package extract

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/parts"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/cut"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/spf13/cobra"
)

type options struct {
	backend  session.Backend
	inputs   feeds.InputFlags
	patterns planning.PatternFlag
	inline   planning.InlineFlag
	out      string
	golden   string
	nodes    []string
	from, to []string
	block    string
	sites    []string
	cases    int
}

// New returns the command extract.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "extract MODEL -o DIR",
		Short: "Extract a part of a model, with the inputs and outputs that it has in the whole model",
		Long: `extract writes a part of a model to DIR/model.onnx, and the inputs and outputs of the part to
DIR/golden.npz: it runs the whole model on random inputs (or the inputs in a file) and records its
values at the cut. The part includes the weights that it reads, and the nodes that are computed only
from constants and shapes, so that apply finds most of the blocks that it finds in the whole model.

Choose a part by nodes (--node, with all nodes between them), by values (--from, --to), by a block of a
layer ("layer 0 attention", "layer 3 experts" or moe, "layer 1 mlp") or by a site as match --json names
it. A block reaches from its projections to the addition to the residual stream.
The files of --patterns are copied to DIR/patterns.`,
		Example: `  mojo-patch extract model.onnx -o part --block 'layer 3 moe'
  mojo-patch extract model.onnx -o part --node /model/layers.0/mlp/act_fn/Mul --node /model/layers.0/mlp/down_proj/MatMul
  mojo-patch extract model.onnx -o part --from hidden_4 --to hidden_5 --inputs recorded.npz
  mojo-patch diff part/model.onnx --golden part/golden.npz`,
		Args:              f.backend.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.extract(a, c, f.backend.Take(args, 1)[0])
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "new folder to write")
	fl.StringArrayVar(&f.nodes, "node", nil, "a node of the part, by its name (repeatable)")
	fl.StringArrayVar(&f.from, "from", nil, "a value that the part starts from (repeatable; default: model inputs)")
	fl.StringArrayVar(&f.to, "to", nil, "a value that the part computes (repeatable)")
	fl.StringVar(&f.block, "block", "", "a block of a layer, such as 'layer 0 attention'")
	fl.StringArrayVar(&f.sites, "site", nil, "the site of this id, as match --json reports it (repeatable)")
	fl.StringVar(&f.golden, "golden", "", "run the whole model on the inputs of these recorded cases")
	fl.IntVar(&f.cases, "cases", 1, "number of random cases")
	f.backend.AddTo(c)
	f.inputs.AddTo(c)
	f.patterns.AddTo(c)
	f.inline.AddTo(c)
	cli.CompleteFile(c, "golden", "npz")
	c.MarkFlagsOneRequired("node", "to", "block", "site")
	cli.Rules(c, "to from excludes node block site", "node excludes block site", "block excludes site",
		"golden excludes inputs")
	cli.Headings(c, "output node block site from to golden json", "Sites: patterns inline",
		"Inputs: cases inputs dim seed", cli.RuntimeHeading, cli.PathsHeading)
	a.JSONFlag(c, "extract")
	return c
}

func (f *options) extract(a *cli.App, c *cobra.Command, path string) error {
	switch {
	case f.out == "":
		return errors.New("-o DIR is missing")
	case f.cases < 1:
		return fmt.Errorf("--cases %d: must be 1 or more", f.cases)
	}
	if err := errors.Join(f.backend.Check(c), f.inputs.Check(c), cli.NewFolder(f.out)); err != nil {
		return err
	}
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	cut, err := f.cut(m)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.inputs.File = cmp.Or(f.inputs.File, f.golden)
	cases, err := f.inputs.Cases(m, f.cases)
	if err != nil {
		return err
	}
	e, err := parts.WriteCut(a, &f.backend, cut, cases, f.out, func(folder string) error {
		_, err := parts.CopyPatterns(f.patterns.Paths, folder)
		return err
	})
	if err != nil {
		return err
	}
	return a.Result(e)
}

// cut finds the requested part. It searches for blocks and sites as apply does.
func (f *options) cut(m *onnx.Model) (*cut.Part, error) {
	if f.block == "" && len(f.sites) == 0 {
		cutter := cut.New(m)
		if len(f.nodes) > 0 {
			nodes, err := nodesNamed(m, f.nodes)
			if err != nil {
				return nil, err
			}
			return cutter.Around(nodes...)
		}
		from, err := valuesNamed(m, f.from)
		if err != nil {
			return nil, err
		}
		to, err := valuesNamed(m, f.to)
		if err != nil {
			return nil, err
		}
		return cutter.Between(from, to)
	}
	set, err := f.patterns.Set()
	if err != nil {
		return nil, fmt.Errorf("--patterns: %w", err)
	}
	functions, err := f.inline.Value()
	if err != nil {
		return nil, err
	}
	p, err := rewrite.New(rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff, Inline: functions,
		Patterns: set})
	if err != nil {
		return nil, err
	}
	plan, err := p.Plan(m)
	if err != nil {
		return nil, err
	}
	cutter := cut.New(m)
	if f.block == "" {
		return parts.CutSites(cutter, plan.Report.Sites, f.sites)
	}
	asked := strings.Replace(strings.ToLower(f.block), "moe", trace.Experts, 1)
	var names []string
	for _, b := range trace.Cores(m, plan.Report.Sites) {
		if b.String() == asked {
			return cutter.Block(b.Match)
		}
		names = append(names, b.String())
	}
	if len(names) == 0 {
		return nil, errors.New("no block was found in the main graph: choose a part by nodes or values")
	}
	return nil, fmt.Errorf("unknown block %q; the blocks are %s", f.block, strings.Join(names, ", "))
}

func nodesNamed(m *onnx.Model, names []string) ([]*onnx.Node, error) {
	byName := map[string][]*onnx.Node{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			byName[n.Label()] = append(byName[n.Label()], n)
		}
	}
	var nodes []*onnx.Node
	for _, name := range names {
		switch list := byName[name]; len(list) {
		case 0:
			return nil, fmt.Errorf("unknown node %q (name a node without a name by its output)", name)
		case 1:
			nodes = append(nodes, list[0])
		default:
			return nil, fmt.Errorf("%d nodes are named %q: choose values instead, with --from and "+
				"--to", len(list), name)
		}
	}
	return nodes, nil
}

func valuesNamed(m *onnx.Model, names []string) ([]*onnx.Value, error) {
	var values []*onnx.Value
	for _, name := range names {
		v := m.Graph.Value(name)
		if v == nil {
			return nil, fmt.Errorf("the main graph has no value %q", name)
		}
		values = append(values, v)
	}
	return values, nil
}
