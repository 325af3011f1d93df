// Package revert is the command revert.
package revert

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

type options struct {
	out  string
	only []string
	node string
}

// New returns the command revert.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "revert MODEL -o OUT",
		Short: "Write a patched model with standard ops instead of fused ops",
		Long: `revert replaces each fused op by its definition, which the model carries: the model then needs no
kernels and computes the same. revert does not undo the other changes of apply but reports them: sites
that became standard ops or ops of onnxruntime, stacked weights, caches in another form, and the opset.
apply finds the blocks of such a model again. --only and --node revert some of the sites.`,
		Example: `  mojo-patch revert model.mojo.onnx -o standard.onnx
  mojo-patch revert model.mojo.onnx -o without-attention.onnx --only Attention
  mojo-patch revert model.mojo.onnx -o second-layer.onnx --node '/layers\.1/' --json`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.revert(a, args[0])
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "file to write")
	fl.StringSliceVar(&f.only, "only", nil, "revert only the sites of these patterns, or of these fused ops")
	fl.StringVar(&f.node, "node", "", "revert only nodes whose name matches this regular expression")
	cli.CompleteFile(c, "output", "onnx")
	cli.CompleteValues(c, "only", planning.PatternNames, true)
	a.JSONFlag(c, "revert")
	return c
}

func (f *options) revert(a *cli.App, path string) error {
	node, err := regexp.Compile(f.node)
	switch {
	case err != nil:
		return fmt.Errorf("--node: %w", err)
	case f.out == "":
		return errors.New("-o OUT is missing")
	case cli.Same(path, f.out):
		return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", f.out)
	}
	if err := cli.Writable(f.out); err != nil {
		return err
	}
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	before := rewrite.DescribeModel(m, path)
	r, err := rewrite.Revert(m, func(p rewrite.PatchedNode) bool {
		op := strings.TrimPrefix(p.Op, fused.Domain+".")
		return (len(f.only) == 0 || slices.Contains(f.only, p.Pattern) || slices.Contains(f.only, op)) &&
			node.MatchString(p.Node)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(r.Reverted) == 0 && len(r.Left) > 0 {
		return fmt.Errorf("%s has %s, but --only and --node match no op", path,
			cli.Counted(len(r.Left), "fused op"))
	}
	staged, err := onnx.Stage(f.out, m)
	if err != nil {
		return err
	}
	if err := staged.Commit(); err != nil {
		return err
	}
	r.Input, r.Output = before, rewrite.DescribeModel(m, f.out)
	if err := a.Result(r); err != nil {
		return err
	}
	for _, n := range r.Reverted {
		a.Detail("reverted %s (%s)", n.Node, n.Op)
	}
	for _, n := range r.Standard {
		a.Detail("not reverted: %s (%s), which patching made (%s)", n.Node, n.Op, n.Pattern)
	}
	if n := len(r.Standard); n > 0 {
		a.Say("%s that patching made are not fused ops and are not reverted (use -v to list them)", cli.Counted(n,
			"node"))
	}
	a.Say("wrote %s: %s reverted, %d left; %d nodes, before %d", f.out, cli.Counted(len(r.Reverted), "fused op"),
		len(r.Left), r.Output.Nodes, before.Nodes)
	cli.SayCarried(a, staged.Data())
	return nil
}
