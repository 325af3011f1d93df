// Package kernels is the command kernels.
package kernels

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/spf13/cobra"
)

// New returns the command kernels.
func New(a *cli.App) *cobra.Command {
	var lib, onnxruntime, model string
	var inputs feeds.InputFlags
	c := &cobra.Command{
		Use:   "kernels",
		Short: "List the kernels by op, type and device, and try each on this machine",
		Long: `kernels lists every kernel with the ops, types and devices that it supports. If onnxruntime and the
kernel library are found, it runs each kernel on the hard inputs that apply checks sites with (small,
large, tiny, zero, one-hot, repeated; for attention, paddings), in every form that its attributes
allow, and compares it with the op's definition. It exits with 1 if a kernel fails, and with 4 if
onnxruntime or the library is missing. Standard ops need no library and are not tried.

--model tries the kernels that a model needs, in the forms, types and shapes of its fused nodes, or, if
it was not patched, of the nodes that apply would make. --dim sets the sizes of its inputs.

` + session.DevicesHelp,
		Example: `  mojo-patch kernels
  mojo-patch kernels --kernels-lib build/libmojo_ops.so --json
  mojo-patch kernels --model model.onnx --dim batch=1 --dim sequence=512`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := inputs.Check(c); err != nil {
				return err
			}
			try := func(onnxruntime, lib string) ([]prober.KernelRow, error) {
				return prober.TryKernels(a, onnxruntime, lib)
			}
			if model != "" {
				needed, err := neededKernels(a, model, &inputs)
				if err != nil {
					return err
				}
				if len(needed) == 0 {
					return cli.ExitWith(cli.ExitNothing,
						fmt.Errorf("%s needs no kernel: it has no fused ops, and apply "+
							"makes none", model))
				}
				try = func(onnxruntime, lib string) ([]prober.KernelRow, error) {
					return tryNeeded(needed, onnxruntime, lib)
				}
			} else if c.Flags().Changed("dim") || c.Flags().Changed("inputs") || c.Flags().Changed("seed") {
				return errors.New("--dim, --inputs and --seed require --model")
			}
			rows, missing := try(onnxruntime, lib)
			if err := a.Result(Result{cli.JSONSchema, rows}); err != nil {
				return err
			}
			if !a.JSON {
				writeKernels(a.Out, rows)
			}
			if missing != nil {
				return cli.Environment(missing)
			}
			for _, r := range rows {
				if r.Status == prober.KernelFails {
					return cli.Failed(fmt.Errorf("%s (%s): %s", r.Op, strings.Join(r.Types, ", "), r.Reason))
				}
			}
			return nil
		},
	}
	session.LibraryFlags(c, &onnxruntime, &lib)
	c.Flags().StringVar(&model, "model", "", "try the kernels that this model needs, with its shapes and types")
	cli.CompleteFile(c, "model", "onnx")
	inputs.AddTo(c)
	a.JSONFlag(c, "kernels")
	return c
}

func writeKernels(w io.Writer, rows []prober.KernelRow) {
	ofModel := len(rows) > 0 && rows[0].Nodes > 0
	t := cli.NewTable("kernel", "op", "types", "device", "here", ">forms", ">max rel", "")
	if ofModel {
		t = cli.NewTable("kernel", "op", "inputs", "device", "here", ">nodes", ">max rel", "")
	}
	away := map[string]string{}
	for _, r := range rows {
		rel, count, types := "", "", strings.Join(r.Types, ", ")
		if r.Forms > 0 {
			count = fmt.Sprint(r.Forms)
		}
		if ofModel {
			count, types = fmt.Sprint(r.Nodes), inputsText(r.Types, r.Shapes)
		}
		if r.MaxRel != nil {
			rel = fmt.Sprintf("%.2g", *r.MaxRel)
		}
		if r.Away { // reported once for the device
			away[r.Device] = r.Reason
			r.Reason = ""
		}
		t.Add(r.Kernel, r.Op, types, r.Device, r.Status, count, rel, r.Reason)
	}
	t.Write(w)
	for _, device := range slices.Sorted(maps.Keys(away)) {
		if reason := away[device]; reason != "" {
			fmt.Fprintf(w, "the kernels for %s were not tried: %s\n", device, reason)
		}
	}
}

// Result is the result of kernels.
type Result struct {
	Schema  int                `json:"schema"`
	Kernels []prober.KernelRow `json:"kernels"`
}
