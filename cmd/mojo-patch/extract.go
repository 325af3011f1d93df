package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/rewrite/cut"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/spf13/cobra"
)

// The files of a folder that extract writes.
const (
	extractedModel  = "model.onnx"
	extractedGolden = "golden.npz"
)

type extractFlags struct {
	backend  backend
	inputs   inputFlags
	patterns patternFlag
	inline   inlineFlag
	out      string
	golden   string
	nodes    []string
	from, to []string
	block    string
	sites    []string
	cases    int
}

func newExtract(a *app) *cobra.Command {
	f := &extractFlags{}
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
		Args:              f.backend.modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.extract(a, c, f.backend.take(args, 1)[0])
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
	f.backend.flags(c)
	f.inputs.flags(c)
	f.patterns.flags(c)
	f.inline.flags(c)
	completeFile(c, "golden", "npz")
	c.MarkFlagsOneRequired("node", "to", "block", "site")
	for _, other := range []string{"to", "from"} {
		c.MarkFlagsMutuallyExclusive(other, "node")
		c.MarkFlagsMutuallyExclusive(other, "block")
		c.MarkFlagsMutuallyExclusive(other, "site")
	}
	c.MarkFlagsMutuallyExclusive("node", "block", "site")
	c.MarkFlagsMutuallyExclusive("golden", "inputs")
	headings(c, "output node block site from to golden json", "Sites: patterns inline",
		"Inputs: cases inputs dim seed", runtimeHeading, pathsHeading)
	a.jsonFlag(c, "extract")
	return c
}

func (f *extractFlags) extract(a *app, c *cobra.Command, path string) error {
	switch {
	case f.out == "":
		return errors.New("-o DIR is missing")
	case f.cases < 1:
		return fmt.Errorf("--cases %d: must be 1 or more", f.cases)
	}
	if err := errors.Join(f.backend.check(c), f.inputs.check(c), newFolder(f.out)); err != nil {
		return err
	}
	m, err := a.read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	cut, err := f.cut(m)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.inputs.file = cmp.Or(f.inputs.file, f.golden)
	cases, err := f.inputs.cases(m, f.cases)
	if err != nil {
		return err
	}
	e, err := a.writeCut(&f.backend, cut, cases, f.out, func(folder string) error {
		_, err := copyPatterns(f.patterns.paths, folder)
		return err
	})
	if err != nil {
		return err
	}
	return a.result(e)
}

// cut finds the requested part. It searches for blocks and sites as apply does.
func (f *extractFlags) cut(m *onnx.Model) (*cut.Part, error) {
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
	set, err := f.patterns.set()
	if err != nil {
		return nil, fmt.Errorf("--patterns: %w", err)
	}
	functions, err := f.inline.value()
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
		return cutSites(cutter, plan.Report.Sites, f.sites)
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

// cutSites cuts out the sites with these ids.
func cutSites(c *cut.Cutter, sites []rewrite.SiteReport, ids []string) (*cut.Part, error) {
	var matches []*patterns.Match
	for _, id := range ids {
		i := slices.IndexFunc(sites, func(s rewrite.SiteReport) bool { return s.ID == id && s.Match != nil })
		if i < 0 {
			return nil, fmt.Errorf("unknown site %q: match --json lists the sites", id)
		}
		matches = append(matches, sites[i].Match)
	}
	return c.Sites(matches...)
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

// extracted describes the folder that extract writes.
type extracted struct {
	Schema  int      `json:"schema"`
	Folder  string   `json:"folder"`
	Nodes   int      `json:"nodes"`
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
	Cases   int      `json:"cases"`
}

// writeCut runs the whole model on cases, and writes the part with its inputs and outputs to a new folder, which
// appears whole. more writes other files to it.
func (a *app) writeCut(b *backend, cut *cut.Part, cases []golden.Case, out string, more func(folder string) error,
	beside ...*atomicfile.Prepared) (*extracted, error) {
	part, err := cut.Model()
	if err != nil {
		return nil, err
	}
	if cases, err = a.atCut(b, cut, cases); err != nil {
		return nil, err
	}
	if err := inHalf(part, cases); err != nil { // as diff compares
		return nil, err
	}
	err = atomicfile.WriteFolder(out, func(folder string) error {
		if err := onnx.Write(filepath.Join(folder, extractedModel), part); err != nil {
			return err
		}
		if err := golden.SaveNPZ(filepath.Join(folder, extractedGolden), cases); err != nil {
			return err
		}
		return more(folder)
	}, beside...)
	if err != nil {
		return nil, err
	}
	e := &extracted{Schema: jsonSchema, Folder: out, Nodes: len(part.Graph.Nodes), Cases: len(cases)}
	for _, v := range part.Graph.Inputs {
		e.Inputs = append(e.Inputs, v.Name)
	}
	for _, v := range part.Graph.Outputs {
		e.Outputs = append(e.Outputs, v.Name)
	}
	a.say("wrote %s: %s, %s, %s, %s", out, counted(e.Nodes, "node"), counted(len(e.Inputs), "input"),
		counted(len(e.Outputs), "output"), counted(e.Cases, "case"))
	return e, nil
}

// atCut runs the nodes before the end of the cut, and returns the inputs and outputs of the part.
func (a *app) atCut(b *backend, cut *cut.Part, cases []golden.Case) (_ []golden.Case, err error) {
	whole, err := cut.Whole()
	if err != nil {
		return nil, err
	}
	folder, err := atomicfile.MkdirTemp("", "mojo-patch-extract-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, atomicfile.Remove(folder)) }()
	whole.Path = filepath.Join(folder, extractedModel)
	if !b.evaluator {
		if err := onnx.Write(whole.Path, whole); err != nil {
			return nil, err
		}
	}
	r, what, err := b.open(a, whole)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ran := make([]golden.Case, len(cases))
	for i, c := range cases { // the part may need fewer inputs than the model
		for _, v := range whole.Graph.Inputs {
			if t := c.Input(v.Name); t != nil {
				ran[i].Inputs = append(ran[i].Inputs, t)
			}
		}
	}
	if _, err := runCases(a, r, ran, 1); err != nil {
		return nil, failed(err)
	}
	a.detail("the whole model was run in %s", what)
	var kept []golden.Case
	for i, c := range ran {
		var k golden.Case
		for _, p := range cut.Inputs {
			t := c.Output(p.Value.Name)
			if t == nil {
				t = cases[i].Input(p.Value.Name)
			}
			if t == nil {
				return nil, fmt.Errorf("case %d has no %q", i, p.Value.Name)
			}
			k.Inputs = append(k.Inputs, t)
		}
		for _, v := range cut.Outputs {
			k.Outputs = append(k.Outputs, c.Output(v.Name))
		}
		kept = append(kept, k)
	}
	return kept, nil
}
