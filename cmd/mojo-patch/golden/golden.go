// Package golden is the command golden.
package golden

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/run"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/spf13/cobra"
)

// New returns the command golden.
func New(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "golden",
		Short: "Record inputs and outputs of a model, compare recordings",
		Example: "  mojo-patch golden record model.onnx -o recorded.npz\n  mojo-patch golden compare recorded.npz " +
			"elsewhere.npz",
		RunE: cli.Group,
	}
	c.AddCommand(newGoldenRecord(a), newGoldenCompare(a))
	return c
}

func newGoldenRecord(a *cli.App) *cobra.Command {
	f := &run.Options{Repeat: 1, Record: true}
	c := &cobra.Command{
		Use:   "record MODEL -o FILE.npz|DIR [KEY=VALUE...]",
		Short: "Run a model and record its inputs and outputs for later comparison",
		Long: `record runs a model on random inputs, or on the inputs in a file, and writes inputs and outputs to
FILE.npz (arrays 0.in.NAME, 0.out.NAME, …, and n, the number of cases), or to
DIR/test_data_set_N/input_I.pb and output_I.pb, the layout of ONNX test data. diff and apply compare
with them.`,
		Example: `  mojo-patch golden record model.onnx -o recorded.npz --cases 3
  mojo-patch golden record model.onnx -o test_data --dim batch=1 --dim sequence=16
  mojo-patch diff patched.onnx --golden recorded.npz`,
		Args:              f.Backend.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.Out == "" {
				return fmt.Errorf("-o FILE.npz or -o DIR is missing")
			}
			if f.Count < 1 {
				return fmt.Errorf("--cases %d: must be 1 or more", f.Count)
			}
			if _, err := os.Stat(f.Out); err == nil && strings.HasSuffix(f.Out, ".npz") && !f.Force {
				return fmt.Errorf("%s exists already: use --force to replace it", f.Out)
			}
			return f.Run(a, c, args)
		},
	}
	f.Backend.AddTo(c)
	f.Inputs.AddTo(c)
	c.Flags().StringVarP(&f.Out, "output", "o", "", "file or folder to write")
	cli.CompleteFile(c, "output", "npz")
	c.Flags().IntVar(&f.Count, "cases", 1, "number of random cases")
	c.Flags().BoolVar(&f.Force, "force", false, "replace an existing .npz file")
	cli.Headings(c, "output cases force json", cli.InputsHeading, cli.RuntimeHeading, cli.PathsHeading)
	a.JSONFlag(c, "run")
	return c
}

func newGoldenCompare(a *cli.App) *cobra.Command {
	k := &compare.Criteria{}
	c := &cobra.Command{
		Use:   "compare GOT WANT",
		Short: "Compare recorded outputs with other recorded outputs",
		Long: `compare reads two recordings (.npz files, or folders of ONNX test data) and compares the outputs of
the first with the outputs of the second, case by case and by name, as diff does. It runs nothing. It
exits with 1 if an output is out of tolerance.

` + compare.LogitsHelp,
		Example: `  mojo-patch golden compare here.npz there.npz
  mojo-patch golden compare here.npz there.npz --atol 1e-2 --max-kl 1e-4`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("compare takes two recordings, but got %d\nusage: %s", len(args), c.UseLine())
			}
			return nil
		},
		ValidArgsFunction: cli.CompleteFiles(2, "npz"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := k.Parse(c); err != nil {
				return err
			}
			got, err := golden.Load(args[0], nil)
			if err != nil {
				return err
			}
			want, err := golden.Load(args[1], nil)
			if err != nil {
				return err
			}
			if err := comparable(args, got, want); err != nil {
				return err
			}
			var names []string
			for _, o := range want[0].Outputs {
				names = append(names, o.Name)
			}
			if err := k.Fit(names, 0); err != nil {
				return err
			}
			r := compare.Comparison{Model: args[0], Against: args[1]}
			if err := k.Compare(&r, got, want, nil); err != nil {
				return err
			}
			return k.Report(a, []compare.Comparison{r})
		},
	}
	k.AddTo(c)
	a.JSONFlag(c, "diff")
	return c
}

// comparable returns an error if the recordings hold different cases.
func comparable(paths []string, got, want []golden.Case) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s holds %s, %s holds %s", paths[0], cli.Counted(len(got), "case"), paths[1],
			cli.Counted(len(want), "case"))
	}
	if len(want) == 0 {
		return fmt.Errorf("%s and %s hold no cases", paths[0], paths[1])
	}
	for i, c := range want {
		if len(c.Outputs) == 0 {
			return fmt.Errorf("case %d of %s has no outputs to compare with", i, paths[1])
		}
		for _, w := range c.Inputs {
			g := got[i].Input(w.Name)
			if g == nil {
				continue
			}
			p, errGot := g.Bytes()
			q, errWant := w.Bytes()
			if err := errors.Join(errGot, errWant); err != nil {
				return err
			}
			if g.DataType != w.DataType || !slices.Equal(g.Dims, w.Dims) || !bytes.Equal(p, q) {
				return fmt.Errorf("the input %q of case %d differs between %s and %s: their outputs cannot be "+
					"compared", w.Name, i, paths[0], paths[1])
			}
		}
	}
	return nil
}
