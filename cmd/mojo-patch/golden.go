package main

import (
	"fmt"
	"os"
	"strings"

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
	var b backend
	var in inputFlags
	var out string
	var count int
	var force bool
	c := &cobra.Command{
		Use:   "record MODEL -o FILE.npz|DIR [KEY=VALUE...]",
		Short: "Run a model and keep its inputs and outputs to compare with later",
		Long: `record runs a model on random inputs, or on those of a file, and writes inputs and outputs: to FILE.npz (arrays
0.in.NAME, 0.out.NAME, …, and n, the number of cases), or to DIR/test_data_set_N/input_I.pb and output_I.pb, the layout
of ONNX test data. diff and apply compare with them.`,
		Example: `  mojo-patch golden record model.onnx -o recorded.npz --cases 3
  mojo-patch golden record model.onnx -o test_data --dim batch=1 --dim sequence=16
  mojo-patch diff patched.onnx --golden recorded.npz`,
		Args:              b.modelArgs(1, 1),
		ValidArgsFunction: completeModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return fmt.Errorf("-o FILE.npz or -o DIR is missing")
			}
			if count < 1 {
				return fmt.Errorf("--cases %d: it is 1 or more", count)
			}
			args = b.take(args, 1)
			if err := b.check(c); err != nil {
				return err
			}
			if err := in.check(c); err != nil {
				return err
			}
			if err := savable(out); err != nil {
				return err
			}
			if _, err := os.Stat(out); err == nil && strings.HasSuffix(out, ".npz") && !force {
				return fmt.Errorf("%s is there already: --force replaces it", out)
			}
			m, err := a.read(args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			cases, err := in.cases(m, count)
			if err != nil {
				return err
			}
			r, what, err := b.open(a, m)
			if err != nil {
				return err
			}
			defer r.Close()
			times, err := runCases(a, r, cases, 1)
			if err != nil {
				return failed(err)
			}
			if err := save(out, cases); err != nil {
				return err
			}
			a.say("wrote %s to %s", counted(len(cases), "case"), out)
			if a.json || a.verbose {
				return reportRun(a, args[0], what, cases, times)
			}
			return nil
		},
	}
	b.flags(c)
	in.flags(c)
	c.Flags().StringVarP(&out, "output", "o", "", "file or folder to write")
	completeFile(c, "output", "npz")
	c.Flags().IntVar(&count, "cases", 1, "number of random cases")
	c.Flags().BoolVar(&force, "force", false, "replace an .npz file that is there already")
	a.jsonFlag(c)
	return c
}
