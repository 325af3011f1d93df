package audit

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/trace/ranges"
)

// write prints the report for a person.
func (r *RangesReport) write(a *cli.App) {
	if r.Widened != "" {
		a.Say("%s computes in %s: it was widened to float32 with the same weights", r.Model, r.Widened)
	}
	if r.Inputs == "random" {
		a.Say("on random inputs, which say little: use --prompt, --text or --inputs for real ones")
	}
	a.Say("%s in %s, %s examined in %s, at most %s held at once, in %s", cli.Counted(len(r.Values), "value"),
		cli.Counted(r.Cases, "run"), english.Bytes(r.Run.Bytes), cli.Counted(r.Run.Pieces, "piece"),
		english.Bytes(r.Run.Peak), r.Backend)
	w := a.Human()
	t := cli.NewTable("block", ">values", ">overflow", ">greatest", ">below 6e-8", ">float16", ">bfloat16",
		"worst value")
	for _, b := range r.Blocks {
		t.Add(b.Block, b.Values, b.Overflow, number(b.Greatest), percent(b.Under), lossText(b.Float16),
			lossText(b.BFloat16), b.Worst)
	}
	t.Write(w)
	worst := r.ranges.Worst(cli.CommonOps)
	if a.Verbose {
		worst = r.ranges.Worst(len(r.Values))
	}
	t = cli.NewTable("value", "block", "made by", ">greatest", ">beyond 65504", ">below 6e-8", ">float16", ">bfloat16")
	for _, v := range worst {
		t.Add(v.Value, rangeBlock(v), v.Op, number(v.Greatest), percent(v.Over), percent(v.Under),
			lossText(v.Float16.Error), lossText(v.BFloat16.Error))
	}
	t.Section(w, "the values that float16 represents worst, with the relative error of rounding", len(worst))
	for _, v := range r.Values {
		if v.NaN+v.Infinite > 0 {
			a.Detail("%q in %s has %d NaN and %d infinite elements in float32", v.Value, rangeBlock(v), v.NaN,
				v.Infinite)
		}
	}
	for _, text := range r.Run.Skipped {
		a.Say("not examined: %s", text)
	}
	a.Say("%s", page.RangesVerdict(r.ranges))
}

// number formats a magnitude for a table.
func number(x float64) string { return fmt.Sprintf("%.6g", x) }

// lossText formats an error for a table.
func lossText(x float64) string { return fmt.Sprintf("%.2g", x) }

// percent formats a share for a table.
func percent(x float64) string {
	if x == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3g %%", 100*x)
}

// rangeBlock returns the block of a value and its place in the block.
func rangeBlock(r *ranges.Row) string {
	if where := r.Where(); where != "" {
		return r.Block + ", " + where
	}
	return r.Block
}

// page writes the page if one is requested.
func (r *RangesReport) page(a *cli.App, file string) error {
	if file == "" {
		return nil
	}
	p := &page.Ranges{Tool: cli.Version(), Model: r.Model, Backend: r.Backend, Widened: r.Widened, Inputs: r.Inputs,
		Cases: r.Cases, MaxMemory: r.Limit, Run: r.Run, Values: r.ranges}
	if err := atomicfile.WriteFile(file, p.Write); err != nil {
		return err
	}
	a.Say("wrote %s: open it in a browser", file)
	return nil
}
