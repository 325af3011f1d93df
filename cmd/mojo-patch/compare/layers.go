package compare

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/trace"
)

// LayersReport holds the results that diff --layers adds to a comparison.
type LayersReport struct {
	Backends [2]string         `json:"backends"`
	First    *trace.Row        `json:"first,omitempty"` // out of tolerance
	Worst    *trace.Row        `json:"worst,omitempty"`
	Blocks   []trace.BlockRow  `json:"blocks"`
	Limit    int64             `json:"max_memory"`
	Passed   bool              `json:"outputs_passed"`
	Found    map[string]int    `json:"aligned"` // the number of values aligned by each method
	Values   *trace.Comparison `json:"comparison"`
	ties     int
	flips    int
}

// Conclude counts and picks from the values, once all cases were compared.
func (r *LayersReport) Conclude() {
	for _, row := range r.Values.Rows {
		if row.Case == 0 {
			r.Found[row.By]++
		}
	}
	r.First, r.Worst, r.Blocks = r.Values.First(), r.Values.Worst(), r.Values.Blocks()
	r.Passed = golden.Passed(r.Values.Outputs)
	for _, choice := range r.Values.Routers {
		r.flips, r.ties = r.flips+len(choice.Flips), r.ties+choice.Ties()
	}
}

// write writes the report for a person.
func (r *LayersReport) write(a *cli.App) {
	v := r.Values
	a.Say("%s inside, %s moved in %s, at most %s held at once", cli.Counted(len(v.Rows), "value"),
		english.Bytes(v.Bytes),
		cli.Counted(v.Pieces, "piece"), english.Bytes(v.Peak))
	t := cli.NewTable("block", ">values", ">out of tolerance", ">error", "worst value")
	for _, b := range r.Blocks {
		t.Add(b.Block, b.Values, b.Failed, fmt.Sprintf("%.3g", b.Error), b.Worst)
	}
	t.Write(a.Human())
	if f := r.First; f != nil {
		a.Say("first out of tolerance: %s", describeRow(f))
		if f.Before != nil {
			a.Say("  its inputs are at most %.3g off", *f.Before)
		}
		a.Detail("  %s", f.Stats.Summary())
	}
	if r.Worst != nil && r.Worst.Error > 0 && (r.First == nil || r.Worst.Value != r.First.Value) {
		a.Say("worst: %s", describeRow(r.Worst))
	}
	for _, c := range v.Routers {
		a.Say("%s, %q: %d of %s went to other experts, %d of them in a tie", placed(c.Block, c.Path), c.Value,
			len(c.Flips), cli.Counted(int(c.Tokens), "token"), c.Ties())
		sayFew(a, c.Flips)
	}
	for _, text := range v.Skipped {
		a.Say("not examined: %s", text)
	}
	for _, text := range v.Unlike {
		a.Detail("treated as equal and not compared: %s", text)
	}
	if a.Verbose {
		t := cli.NewTable("value", "block", "made by", "other", "aligned by", ">error", ">cosine", "")
		for _, row := range v.Rows {
			t.Add(row.Value, row.Block, row.Op, row.OpB, row.By, fmt.Sprintf("%.3g", row.Error),
				fmt.Sprintf("%.7f", row.Stats.Cosine), a.Verdict(row.Stats.Passed, "passed"))
		}
		t.Write(a.Human())
	}
}

func describeRow(r *trace.Row) string {
	made := r.Op
	if r.OpB != r.Op {
		made += " against " + r.OpB
	}
	return fmt.Sprintf("%q in %s (%s), error %.3g of the greatest magnitude", r.Value, placed(r.Block, r.Path), made,
		r.Error)
}

// placed is a block and where in it.
func placed(block string, path trace.Path) string {
	if where := path.Where(); where != "" {
		return block + ", " + where
	}
	return block
}

// Settle sets the verdict of the comparison that the report belongs to. With --router-ties, the comparison passes if
// the outputs that were out of tolerance agree in the run that followed the ties.
func (r *LayersReport) Settle(a *cli.App, c *Comparison, ties bool) {
	c.Layers = r
	again := true
	for _, d := range c.Cases {
		again = again && d.Error == ""
		for _, s := range d.Outputs {
			again = again && (s.Passed || slices.ContainsFunc(r.Values.Outputs, func(o golden.Stats) bool {
				return o.Name == s.Name
			}))
		}
	}
	switch {
	case ties && !c.Passed && r.Passed && again && r.ties > 0 && r.ties == r.flips:
		c.Passed, c.Ties = true, r.ties
	case !c.Passed && r.Passed && r.flips == 0:
		a.Say("the outputs agree when the values inside are read, which keeps onnxruntime from fusing: compare " +
			"with --optimize none")
		r.sayNear(a, c)
	}
}

// sayNear names the ties in the cases out of tolerance, those in an output's worst row first.
func (r *LayersReport) sayNear(a *cli.App, c *Comparison) {
	var worst, others []string
	for _, n := range r.Values.Near {
		text, failed, in := fmt.Sprintf("case %d, %s, %q: %s", n.Case, placed(n.Block, n.Path), n.Value, n), false, ""
		for _, d := range c.Cases {
			for _, s := range d.Outputs {
				if d.Case != n.Case || s.Passed {
					continue
				}
				failed = true
				if s.Worst != nil && rowOf(s.Shape, s.Worst.Index, n.Tokens) == n.Token {
					in += fmt.Sprintf(" (%s is worst at %v, in this row)", s.Name, s.Worst.Index)
				}
			}
		}
		if in != "" {
			worst = append(worst, text+in)
		} else if failed {
			others = append(others, text)
		}
	}
	all := append(worst, others...)
	if len(all) == 0 {
		return
	}
	a.Say("%s between two experts that other roundings may decide otherwise:", cli.Counted(len(all), "tie"))
	sayFew(a, all)
}

// sayFew says the first three of a list, and with -v all.
func sayFew[T any](a *cli.App, list []T) {
	for i, x := range list {
		if i == 3 && !a.Verbose {
			a.Say("  … (-v lists all)")
			return
		}
		a.Say("  %v", x)
	}
}

// rowOf returns the row of an element, -1 if the shape does not begin with so many rows.
func rowOf(shape, index []int64, rows int64) int64 {
	row, count := int64(0), int64(1)
	for i, dim := range shape {
		if count >= rows && i > 0 {
			break
		}
		row, count = row*dim+index[i], count*dim
	}
	if count != rows {
		return -1
	}
	return row
}
