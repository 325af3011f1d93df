package diff

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
)

// advise says after a failure what to try next, judging by the first model and a second run of it. alone means that the
// model was compared only with recorded outputs.
func (f *options) advise(a *cli.App, first *onnx.Model, want []golden.Case, alone bool) {
	if n := quantized.CountRounded(first); n > 0 && !f.nudge && f.golden == "" {
		a.Say("%s has %s that round activations to 8 bits, so a difference in the last digit may become a whole "+
			"step: try --sensitivity", first.Path, cli.Counted(n, "node"))
	}
	if firstNode(first, routes) != nil && !f.ties {
		with := ""
		if alone {
			with = "the original model before this one, and "
		}
		a.Say("%s routes tokens to experts: with %s--layers --router-ties diff reports whether tokens went to others "+
			"in a tie, and passes if that is all", first.Path, with)
	}
	if side := f.sides.Sides[0]; side.Optimize != "none" && !side.Evaluator && f.golden == "" {
		switch moved, err := f.movedByOptimizer(a, first, want); {
		case err != nil:
			a.Detail("%s was not run without optimization: %v", first.Path, err)
		case moved:
			a.Say("%s itself has different outputs when onnxruntime does not optimize it: compare with --optimize none",
				first.Path)
		}
	}
}

// sayWhy reports causes of differences that patching does not introduce: onnxruntime rounds more than the model's nodes
// say, or nodes are random.
func (f *options) sayWhy(a *cli.App, paths []string) {
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		m, err := a.Read(path)
		if err != nil {
			continue
		}
		if n := quantized.RoundedByRuntime(m); n > 0 {
			a.Say("onnxruntime rounds activations of %s in %s to 8 bits unless the session's configuration has "+
				"session.qdq_matmulnbits_accuracy_level=0", cli.Counted(n, "product"), path)
		}
		if n := firstNode(m, isRandom); n != nil {
			a.Say("node %q (%s) in %s is random: every run differs unless it has a seed", n.Label(), n.OpType, path)
		}
		m.Close()
	}
}

// firstNode returns the first node of a model for which is returns true, or nil.
func firstNode(m *onnx.Model, is func(*onnx.Node) bool) *onnx.Node {
	for _, g := range m.Graphs() {
		if i := slices.IndexFunc(g.Nodes, is); i >= 0 {
			return g.Nodes[i]
		}
	}
	return nil
}

// isRandom reports whether the results of a node are random.
func isRandom(n *onnx.Node) bool { return n.IsRandom() || n.Is("Dropout") && trains(n.Input(2)) }

// trains reports whether the input training_mode of a Dropout may be true.
func trains(mode *onnx.Value) bool {
	if mode == nil || mode.Constant() == nil {
		return mode != nil
	}
	data, err := mode.Constant().Bytes()
	return err != nil || slices.Max(append(data[:len(data):len(data)], 0)) > 0
}

// routes reports whether a node may choose experts.
func routes(n *onnx.Node) bool {
	return n.Is("TopK") || n.Domain == fused.Domain && n.OpType == fused.TopKRouterName
}

// movedByOptimizer reports whether the first model's outputs are out of tolerance without onnxruntime's optimizations.
func (f *options) movedByOptimizer(a *cli.App, first *onnx.Model, want []golden.Case) (bool, error) {
	plain := f.sides.Sides[0]
	plain.Optimize = "none"
	quiet := *a
	quiet.Quiet, quiet.Verbose = true, false
	r, _, err := plain.Open(&quiet, first)
	if err != nil {
		return false, err
	}
	defer r.Close()
	cases := make([]golden.Case, len(want))
	for i, c := range want {
		if len(c.Follows) > 0 {
			return false, errors.New("it computes its pasts itself")
		}
		cases[i] = golden.Case{Inputs: c.Inputs}
	}
	if _, err := feeds.RunCases(&quiet, r, cases, 1); err != nil {
		return false, err
	}
	for i := range cases {
		stats, err := golden.CompareAll(cases[i].Outputs, want[i].Outputs, f.criteria.Tolerances)
		if err != nil {
			return false, fmt.Errorf("case %d: %w", i, err)
		}
		if !golden.Passed(stats) {
			return true, nil
		}
	}
	return false, nil
}
