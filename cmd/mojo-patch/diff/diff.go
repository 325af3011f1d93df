// Package diff is the command diff.
package diff

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

type options struct {
	backend  session.Backend
	inputs   feeds.InputFlags
	criteria compare.Criteria
	sides    session.SideFlags
	layersFlags
	page     cli.PageFlag
	golden   string
	cases    int
	hard     bool
	nudge    bool                // --sensitivity
	existing bool                // compare only tokens, not padding
	padded   map[int]golden.Hard // cases whose padding is not compared
}

// New returns the command diff.
func New(a *cli.App) *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "diff MODEL [MODEL] [KEY=VALUE...] | diff MODEL... --golden FILE",
		Short: "Compare the outputs of two models, or of models with recorded ones",
		Long: `diff runs two models on the same inputs (--inputs, or random ones) and compares the second model's
outputs with the first model's. With --golden it runs each model on the recorded inputs and compares
with the recorded outputs; --layers then compares each further model with the first. It exits with 1
if an output is out of tolerance. It compares outputs by name: a missing output is a failure; an
output that only the compared model has is reported.

An element is within tolerance if |got - want| <= atol + rtol * |want|. By default float32 has 1e-4
for both; float16 and bfloat16 have 4 units in the last place of the largest magnitude in the
output.

--hard adds inputs that commonly expose attention bugs: padding on the left and on the right, holes,
a row of only padding, one token and several after a past, for a batch, and a context longer than the
numbers in the graph, one of which may be a window. diff skips and reports inputs that the first model
cannot run, such as a context longer than its tables of positions.

If the second model stores its past in another form than the first, as after apply --mla-cache, each
model computes its past itself.

No token reads the values that a model computes for padding. --ignore-padding does not compare them,
which is the default in half precision: models that mask a score twice, as GPT-2 does, compute other
values there once their attention is fused.

--left and --right set options only for the first or the second model; with one of them a single model
is compared with itself.

--layers shows where two models start to differ. It compares the values inside the models. It aligns
them by the replaced values recorded in fused nodes, by equal structure, by weights, and last by names.
It reports the first value out of tolerance, the worst one, a table by block (embedding, layer 0
attention, …), and the tokens that routers sent to other experts, with the margins. If both models have
a branch or loop, its values are compared too, iteration by iteration. The models run piece by piece
and values are dropped once they are compared, so at most --max-memory of them are held. The outputs'
tolerances apply; the default absolute tolerance is relative to a value's greatest magnitude.
The exit code depends only on the outputs. With --router-ties, if the second model chose other experts
in a tie (a margin within the tolerance of the model's type), it continues with the first model's
experts; diff passes if all else agrees. If the outputs differ only while no value inside is read,
--layers lists the ties in the failed cases, those in an output's worst row first.

--sensitivity measures how much the first model changes by itself. It changes the model's weights and
inputs by one unit in the last place, three times, and reports the change of the outputs beside the
second model's. An output that is out of tolerance passes if its difference is at most twice the
largest of these changes, in the greatest and in the mean square difference. Use it for models that
quantize their activations as they run.

` + session.RanksHelp + "\n\n" + compare.LogitsHelp,
		Example: `  mojo-patch diff model.onnx patched.onnx
  mojo-patch diff model.onnx patched.onnx --dim sequence=32 --cases 4
  mojo-patch diff model.onnx patched.onnx --hard
  mojo-patch diff patched.onnx --golden recorded.npz --atol 1e-5 --atol logits:1e-3
  mojo-patch diff int8.onnx patched.onnx --sensitivity
  mojo-patch diff model.onnx for-openvino.onnx --provider openvino
  mojo-patch diff model.onnx patched.onnx --layers --max-memory 512M
  mojo-patch diff model.onnx patched.onnx --html report.html
  mojo-patch diff patched.onnx --layers --left evaluator --right provider=cuda
  mojo-patch diff model.onnx half.onnx --atol 1 --max-kl 1e-3 --min-top1 0.99`,
		Args:              f.backend.ModelArgs(1, 2),
		ValidArgsFunction: cli.CompleteModels(2),
		RunE:              func(c *cobra.Command, args []string) error { return f.diff(a, c, f.backend.Take(args, 1)) },
	}
	f.backend.AddTo(c)
	f.inputs.AddTo(c)
	c.Flags().StringVar(&f.golden, "golden", "", "recorded cases: .npz, or a folder of ONNX test data")
	cli.CompleteFile(c, "golden", "npz")
	c.Flags().IntVar(&f.cases, "cases", 1, "number of random cases")
	c.Flags().BoolVar(&f.hard, "hard", false, "add inputs that commonly expose attention bugs")
	c.Flags().BoolVar(&f.existing, "ignore-padding", false, "compare only the values computed for "+
		"tokens, not for padding")
	c.Flags().BoolVar(&f.nudge, "sensitivity", false,
		"pass if the first model changes as much when its weights change by one unit in the last place")
	f.sides.AddTo(c)
	f.layersFlags.flags(c)
	pageFlags(&f.page, c)
	f.criteria.AddTo(c)
	cli.Rules(c, "ignore-padding requires hard", "hard excludes inputs: --hard makes inputs",
		"golden excludes inputs seed dim cases hard left right sensitivity: --golden sets the inputs")
	cli.Headings(c, "golden inputs dim cases hard html layers provider json", "Inputs: seed ignore-padding",
		cli.BoundsHeading, "Layers: max-memory router-ties sensitivity",
		"Runtime: left right backend provider-option provider-library provider-device provider-only kernels "+
			"optimize threads products evaluator", cli.PathsHeading)
	a.JSONFlag(c, "diff")
	return c
}

func (f *options) check(c *cobra.Command, args []string) error {
	if err := f.sides.Check(c, f.backend); err != nil {
		return err
	}
	if f.page.HTML != "" && f.golden == "" && !c.Flags().Changed("layers") {
		f.layers = true
	}
	if err := f.layersFlags.check(c); err != nil {
		return err
	}
	if err := f.page.Check(args, f.golden != ""); err != nil {
		return err
	}
	if err := f.inputs.Check(c); err != nil {
		return err
	}
	if f.golden == "" && len(args) < 2 {
		return errors.New("diff needs a second model, --golden FILE, --left or --right to compare with")
	}
	if f.golden != "" && f.layers && len(args) < 2 {
		return errors.New("--layers compares the values inside two models: name the original model before this one")
	}
	if f.cases < 1 {
		return fmt.Errorf("--cases %d: must be 1 or more", f.cases)
	}
	return f.criteria.Parse(c)
}

func (f *options) diff(a *cli.App, c *cobra.Command, args []string) error {
	if len(args) == 1 && f.sides.Given() {
		args = []string{args[0], args[0]}
	}
	args, err := f.backend.Ranks(a, c, args)
	if err != nil {
		return err
	}
	if err := f.check(c, args); err != nil {
		return err
	}
	err = errors.Join(
		f.backend.RejectRanked(f.layers, "--layers", "it runs models piece by piece"),
		f.backend.RejectRanked(f.nudge, "--sensitivity", "it changes the weights of a whole model"),
	)
	if err != nil {
		return err
	}
	first, err := a.Read(args[0])
	if err != nil {
		return err
	}
	defer first.Close()
	var names []string
	for _, v := range first.Graph.Outputs {
		names = append(names, v.Name)
	}
	if err := f.criteria.Fit(names, golden.Vocabulary(first)); err != nil {
		return err
	}
	want, against, rest, err := f.wanted(a, first, args)
	if err != nil {
		return err
	}
	var moved []map[string]compare.Spread
	if f.nudge {
		if moved, err = f.nudged(a, args[0], want); err != nil {
			return err
		}
	}
	var all []compare.Comparison
	for i, path := range rest {
		r, err := f.compare(a, path, against, want)
		if err != nil {
			return err
		}
		if f.layers && (f.golden == "" || i > 0) {
			inside, err := f.compareLayers(a, args[0], path, want)
			if err != nil {
				return err
			}
			inside.Settle(a, r, f.ties)
		}
		if f.nudge {
			r.Weigh(moved)
		}
		all = append(all, *r)
	}
	err = f.criteria.Report(a, all)
	if cli.ExitCode(err) == cli.ExitFailed && a.Ranks == 0 {
		f.sayWhy(a, args)
		f.advise(a, first, want, f.golden != "" && len(args) == 1)
	}
	if a.Rank > 0 {
		return err
	}
	if failure := writePage(&f.page, a, all, f.most); failure != nil {
		return failure
	}
	return err
}

// wanted returns the cases to compare with, their origin, and the paths of the models to compare.
func (f *options) wanted(a *cli.App, first *onnx.Model, args []string) ([]golden.Case, string, []string, error) {
	if f.golden != "" {
		cases, err := feeds.Recorded(f.golden, first)
		return cases, f.golden, args, err
	}
	cases, err := f.inputs.Cases(first, f.cases)
	if err != nil {
		return nil, "", nil, err
	}
	begun, err := keepsOther(a, args[1], cases[0])
	if err != nil {
		return nil, "", nil, err
	}
	r, _, err := f.sides.Sides[0].Open(a, first)
	if err != nil {
		return nil, "", nil, err
	}
	defer r.Close()
	if begun && f.inputs.File == "" {
		cases, err = f.begun(a, first, r)
	} else {
		_, err = feeds.RunCases(a, r, cases, 1)
	}
	if err != nil {
		return nil, "", nil, cli.Failed(err)
	}
	if f.hard {
		hard, err := f.hardCases(a, first, r, len(cases), begun)
		if err != nil {
			return nil, "", nil, err
		}
		cases = append(cases, hard...)
	}
	if err := feeds.InHalf(first, cases); err != nil {
		return nil, "", nil, err
	}
	return cases, args[0], args[1:], nil
}

// keepsOther reports whether the model in a file keeps the past in another form than a case.
func keepsOther(a *cli.App, path string, c golden.Case) (bool, error) {
	m, err := a.Read(path)
	if err != nil {
		return false, err
	}
	defer m.Close()
	return golden.KeepsOther(m, c), nil
}

// begun runs the first model on random inputs, with pasts that the model computes itself.
func (f *options) begun(a *cli.App, m *onnx.Model, r session.Runner) ([]golden.Case, error) {
	dims, err := f.inputs.Sizes()
	if err != nil {
		return nil, err
	}
	var cases []golden.Case
	for i := range f.cases {
		h, err := golden.Plain(m, f.inputs.Seed+uint64(i), dims)
		if err != nil {
			return nil, err
		}
		_, ran, err := runBegun(a, m, r, h)
		if err != nil {
			return nil, err
		}
		cases = append(cases, ran...)
	}
	return cases, nil
}

// runBegun runs a model on the tokens of the past, if any, and then on the inputs after that past.
func runBegun(a *cli.App, m *onnx.Model, r session.Runner, h golden.Hard) ([]golden.Hard, []golden.Case, error) {
	before, behind, err := h.Begun(m)
	if err != nil {
		return nil, nil, err
	}
	list, cases := []golden.Hard{h}, []golden.Case{behind}
	if before != nil {
		list, cases = []golden.Hard{*before, h}, []golden.Case{{Inputs: before.Inputs}, behind}
	}
	_, err = feeds.RunCases(a, r, cases, 1)
	return list, cases, err
}

// hardCases runs the first model on its hard inputs. It returns those that run, with the outputs, and prints their
// names. Their case numbers start at count. If begun is set, the model computes the pasts itself.
func (f *options) hardCases(a *cli.App, m *onnx.Model, r session.Runner, count int, begun bool) ([]golden.Case, error) {
	dims, err := f.inputs.Sizes()
	if err != nil {
		return nil, err
	}
	hard, err := golden.HardInputs(m, f.inputs.Seed, dims)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	var cases []golden.Case
	f.padded = map[int]golden.Hard{}
	for _, h := range hard {
		list, ran := []golden.Hard{h}, []golden.Case{{Inputs: h.Inputs}}
		if begun {
			list, ran, err = runBegun(a, m, r, h)
		} else {
			_, err = feeds.RunCases(a, r, ran, 1)
		}
		if err != nil {
			a.Say("%s does not run with %s, so that input is skipped: %v", m.Path, h.Name, err)
			continue
		}
		for i, h := range list {
			a.Detail("case %d: %s", count+len(cases), h.Name)
			if f.existing || golden.Half(m) != onnx.Undefined {
				f.padded[count+len(cases)] = h
			}
			cases = append(cases, ran[i])
		}
	}
	return cases, nil
}

func (f *options) compare(a *cli.App, path, against string, want []golden.Case) (*compare.Comparison, error) {
	m, err := a.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r, what, err := f.sides.Sides[1].Open(a, m)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	got := make([]golden.Case, len(want))
	if want, err = feeds.OwnParts(m, want); err != nil {
		return nil, err
	}
	if want, err = golden.WithOwnPasts(m, want); err != nil {
		return nil, fmt.Errorf("cannot run %s on %s: %w", path, against, err)
	}
	for i, c := range want {
		if want[i], err = feeds.Fitted(m, c); err != nil {
			return nil, fmt.Errorf("cannot run %s on case %d of %s: %w", path, i, against, err)
		}
		got[i].Inputs, got[i].Follows = want[i].Inputs, want[i].Follows
	}
	uncompared(a, m, want[0].Outputs)
	times, err := feeds.RunCases(a, r, got, 1)
	if err != nil {
		return nil, cli.Failed(err)
	}
	for i, h := range f.padded {
		for _, c := range []*golden.Case{&got[i], &want[i]} {
			if c.Outputs, err = h.WithoutPadding(c.Outputs); err != nil {
				return nil, err
			}
		}
	}
	result := &compare.Comparison{Model: path, Against: against, Backend: what}
	return result, f.criteria.Compare(result, got, want, times)
}

// uncompared reports the outputs of the model that have no expected values.
func uncompared(a *cli.App, m *onnx.Model, want []*onnx.Tensor) {
	for _, v := range m.Graph.Outputs {
		if !slices.ContainsFunc(want, func(t *onnx.Tensor) bool { return t.Name == v.Name }) {
			a.Say("output %q of %s is not compared: the other side has no output with this name", v.Name, m.Path)
		}
	}
}
