package diff

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/spf13/cobra"
)

func pageFlags(f *cli.PageFlag, c *cobra.Command) {
	c.Flags().StringVar(&f.HTML, "html", "",
		"also write the comparison as one page: first difference, worst values, routers (implies --layers)")
	cli.CompleteFile(c, "html", "html")
}

// write writes the page about one comparison.
func writePage(f *cli.PageFlag, a *cli.App, all []compare.Comparison, most int64) error {
	if f.HTML == "" {
		return nil
	}
	r := all[0]
	p := &page.Diff{Tool: cli.Version(), Model: r.Model, Against: r.Against, Backend: r.Backend, Passed: r.Passed,
		Verdict: "FAILED", MaxMemory: most}
	if r.Passed {
		p.Verdict = r.Verdict()
	}
	for _, c := range r.Cases {
		for _, s := range c.Outputs {
			p.Outputs = append(p.Outputs, page.Output{Case: c.Case, Stats: s})
		}
		if c.Error != "" {
			p.Problems = append(p.Problems, fmt.Sprintf("case %d: %s", c.Case, c.Error))
		}
	}
	if r.Layers != nil {
		p.Inside, p.Runners = r.Layers.Values, r.Layers.Backends
	}
	for _, s := range r.Sensitivity {
		p.Moved = append(p.Moved, page.Moved{Case: s.Case, Output: s.Output, Other: s.Other.String(),
			Itself: s.Nudged.String(), Within: s.Within, Passed: s.Passed})
	}
	if err := atomicfile.WriteFile(f.HTML, p.Write); err != nil {
		return err
	}
	a.Say("wrote %s: open it in a browser", f.HTML)
	return nil
}
