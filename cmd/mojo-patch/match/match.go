// Package match is the command match.
package match

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/planning"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// New returns the command match.
func New(a *cli.App) *cobra.Command {
	f := &planning.PlanFlags{}
	out := ""
	c := &cobra.Command{
		Use:   "match MODEL",
		Short: "List the sites that apply would replace or refuse, without writing a model",
		Long: `match finds and checks the blocks as apply does, and prints the result for each: the pattern and the
fused op, the site's last node, the kernel and its device, and the reason if the site would stay
unchanged. It does not write a model. It has the same flags and the same report as apply --dry-run. -v
also lists the near misses.

-o writes a plan: JSON with every site, its nodes, its check, its kernel, and whether to apply it. Edit
the plan and run apply --plan: a site with "apply": false, or whose entry was removed, stays
unchanged. The plan holds the SHA-256 of the model file, and the versions of tool and patterns.`,
		Example: `  mojo-patch match model.onnx
  mojo-patch match model.onnx --only RMSNorm,AddRMSNorm --verify all
  mojo-patch match model.onnx --json | jq '.sites[] | select(.status == "refused")'
  mojo-patch match model.onnx -o plan.json`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.Preset.Expand(a, c, args[0], planning.Changed(c), true); err != nil {
				return err
			}
			if err := cli.CheckRules(c); err != nil {
				return err
			}
			if out == "" {
				if c.Flags().Changed("output") {
					return errors.New("the path after -o is empty")
				}
				return f.Match(a, c, args[0], nil)
			}
			if cli.Same(args[0], out) {
				return fmt.Errorf("%s is the input, which is never overwritten: choose another file with -o", out)
			}
			if err := cli.Writable(out); err != nil {
				return err
			}
			return f.Match(a, c, args[0], func(p *rewrite.PlanFile) (*atomicfile.Prepared, error) {
				return f.SavePlan(c, out, args[0], p)
			})
		},
	}
	f.AddTo(c)
	c.Flags().StringVarP(&out, "output", "o", "", "write a plan to this file, for apply --plan")
	cli.CompleteFile(c, "output", "json")
	cli.Headings(c, "output for target dtype backend html only require json", "Decoders: last-logits",
		"Targets: shape accuracy-level runs-on", cli.SafeHeading, "Sites: skip node site include patterns inline",
		"Checks: verify check-kernels", "Trouble: assume-available allow-missing-weights", cli.PathsHeading)
	a.JSONFlag(c, "report")
	return c
}
