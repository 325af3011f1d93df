package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/spf13/cobra"
)

func newGolden(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "golden",
		Short: "Record inputs and outputs of a model, compare recordings",
		Example: "  mojo-patch golden record model.onnx -o recorded.npz\n  mojo-patch golden compare recorded.npz " +
			"elsewhere.npz",
		RunE: group,
	}
	c.AddCommand(newGoldenRecord(a), newGoldenCompare(a))
	return c
}

func newGoldenRecord(a *app) *cobra.Command {
	f := &runFlags{repeat: 1, record: true}
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
		Args:              f.backend.modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.out == "" {
				return fmt.Errorf("-o FILE.npz or -o DIR is missing")
			}
			if f.count < 1 {
				return fmt.Errorf("--cases %d: must be 1 or more", f.count)
			}
			if _, err := os.Stat(f.out); err == nil && strings.HasSuffix(f.out, ".npz") && !f.force {
				return fmt.Errorf("%s exists already: use --force to replace it", f.out)
			}
			return f.run(a, c, args)
		},
	}
	f.backend.flags(c)
	f.inputs.flags(c)
	c.Flags().StringVarP(&f.out, "output", "o", "", "file or folder to write")
	completeFile(c, "output", "npz")
	c.Flags().IntVar(&f.count, "cases", 1, "number of random cases")
	c.Flags().BoolVar(&f.force, "force", false, "replace an existing .npz file")
	headings(c, "output cases force json", inputsHeading, runtimeHeading, pathsHeading)
	a.jsonFlag(c, "run")
	return c
}

func newGoldenCompare(a *app) *cobra.Command {
	k := &criteria{}
	c := &cobra.Command{
		Use:   "compare GOT WANT",
		Short: "Compare recorded outputs with other recorded outputs",
		Long: `compare reads two recordings (.npz files, or folders of ONNX test data) and compares the outputs of
the first with those of the second, case by case and by name, as diff does. It runs nothing. It
exits with 1 if an output is out of tolerance.

` + logitsHelp,
		Example: `  mojo-patch golden compare here.npz there.npz
  mojo-patch golden compare here.npz there.npz --atol 1e-2 --max-kl 1e-4`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("compare takes two recordings, but got %d\nusage: %s", len(args), c.UseLine())
			}
			return nil
		},
		ValidArgsFunction: completeFiles(2, "npz"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := k.parse(c); err != nil {
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
			if err := k.fit(names, 0); err != nil {
				return err
			}
			r := comparison{Model: args[0], Against: args[1]}
			if err := k.compare(&r, got, want, nil); err != nil {
				return err
			}
			return k.report(a, []comparison{r})
		},
	}
	k.flags(c)
	a.jsonFlag(c, "diff")
	return c
}

// comparable returns an error if the recordings hold different cases.
func comparable(paths []string, got, want []golden.Case) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s holds %s, %s holds %s", paths[0], counted(len(got), "case"), paths[1],
			counted(len(want), "case"))
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
