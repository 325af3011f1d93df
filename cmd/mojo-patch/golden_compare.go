package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/spf13/cobra"
)

func newGoldenCompare(a *app) *cobra.Command {
	k := &criteria{}
	c := &cobra.Command{
		Use:   "compare GOT WANT",
		Short: "Compare recorded outputs with other recorded ones",
		Long: `compare reads two recordings (.npz files, or folders of ONNX test data) and compares the outputs of the first with those
of the second, case by case and by name, as diff does. Nothing is run. It exits with 1 when an output is out of tolerance.

` + logitsHelp,
		Example: `  mojo-patch golden compare here.npz there.npz
  mojo-patch golden compare here.npz there.npz --atol 1e-2 --max-kl 1e-4`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("compare takes two recordings, %d are given\nusage: %s", len(args), c.UseLine())
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
	a.jsonFlag(c)
	return c
}

// comparable errs when the recordings are not of the same cases.
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
				return fmt.Errorf("the input %q of case %d is not the same in %s and %s: their outputs cannot be "+
					"compared", w.Name, i, paths[0], paths[1])
			}
		}
	}
	return nil
}
