package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/spf13/cobra"
)

// layersFlags are the flags of diff --layers.
type layersFlags struct {
	layers bool
	memory string
	ties   bool
	most   int64
}

func (f *layersFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.layers, "layers", false, "also compare the values inside the models, block by block")
	c.Flags().StringVar(&f.memory, "max-memory", "1G", "with --layers: the most bytes of values to hold at once")
	c.Flags().BoolVar(&f.ties, "router-ties", false,
		"with --layers: pass if tokens go to other experts in a tie and all else agrees")
}

func (f *layersFlags) check(c *cobra.Command) (err error) {
	for _, name := range []string{"max-memory", "router-ties"} {
		if c.Flags().Changed(name) && !f.layers {
			return fmt.Errorf("--%s requires --layers", name)
		}
	}
	f.most, err = parseBytes(f.memory)
	if err != nil {
		return fmt.Errorf("--max-memory: %w", err)
	}
	return nil
}

var bytesPattern = regexp.MustCompile(`^([0-9]+)([kKMGT]?)(i?B)?$`)

// parseBytes parses a number of bytes such as 512M; the factors k, M, G and T are powers of 1024.
func parseBytes(text string) (int64, error) {
	parts := bytesPattern.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is not a number of bytes: write for example 512M or 2G", text)
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	shift := 10 * (strings.Index(" kMGT", strings.Replace(parts[2], "K", "k", 1)))
	if parts[2] == "" {
		shift = 0
	}
	if err != nil || n < 1 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is too large a number of bytes", text)
	}
	return n << shift, nil
}

// layersReport holds the results that diff --layers adds to a comparison.
type layersReport struct {
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

// compareLayers runs both models side by side and compares their intermediate values.
func (f *diffFlags) compareLayers(a *app, first, second string, cases []golden.Case) (*layersReport, error) {
	var models [2]*onnx.Model
	var open [2]trace.Open
	r := &layersReport{Limit: f.most, Passed: true, Found: map[string]int{}, Values: &trace.Comparison{}}
	for i, path := range []string{first, second} {
		m, err := a.read(path)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		if err := inlineOthers(m); err != nil {
			return nil, err
		}
		models[i], open[i] = m, f.sides.sides[i].pieces(a, &r.Backends[i])
	}
	step, end := a.progress("value")
	defer end()
	c := trace.NewComparer(models[0], models[1], trace.Options{OpenA: open[0], OpenB: open[1], MaxMemory: f.most,
		Tolerances: f.criteria.tolerances, RouterTies: f.ties, Progress: step})
	others, err := golden.WithOwnPasts(models[1], cases)
	if err != nil {
		return nil, err
	}
	for i, one := range cases {
		if len(one.Follows) > 0 || len(others[i].Follows) > 0 {
			return nil, fmt.Errorf("case %d: --layers does not support cases in which each model computes its own "+
				"past", i)
		}
		other, err := fitted(models[1], others[i])
		if err != nil {
			return nil, err
		}
		v, err := c.Run(one.Inputs, other.Inputs, i)
		if err != nil {
			return nil, failed(err)
		}
		r.Values.Add(v)
	}
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
	return r, nil
}

// inlineOthers inlines the functions that are not fused ops, so that their inner values can be compared.
func inlineOthers(m *onnx.Model) error {
	_, err := new(edit.Change).InlineFunctions(m, func(f *onnx.Function) bool { return f.Domain == fused.Domain })
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return nil
}

// pieces returns a function that opens pieces of a model as the flags say, and reports the runtime once.
func (b *backend) pieces(a *app, what *string) trace.Open {
	said := a
	inMemory := *b
	inMemory.openModel = func(m *onnx.Model, options ...ort.Option) (*ort.Session, error) {
		model, err := onnx.Marshal(m)
		if err != nil {
			return nil, err
		}
		return ort.OpenBytes(model, m.Path, options...)
	}
	return func(m *onnx.Model) (trace.Runner, error) {
		r, text, err := inMemory.open(said, m)
		quiet := *a
		quiet.quiet, quiet.verbose = true, false
		said, *what = &quiet, text
		return r, err
	}
}

// write writes the report for a person.
func (r *layersReport) write(a *app) {
	v := r.Values
	a.say("%s inside, %s moved in %s, at most %s held at once", counted(len(v.Rows), "value"), english.Bytes(v.Bytes),
		counted(v.Pieces, "piece"), english.Bytes(v.Peak))
	t := newTable("block", ">values", ">out of tolerance", ">error", "worst value")
	for _, b := range r.Blocks {
		t.add(b.Block, b.Values, b.Failed, fmt.Sprintf("%.3g", b.Error), b.Worst)
	}
	t.write(a.human())
	if f := r.First; f != nil {
		a.say("first out of tolerance: %s", describeRow(f))
		if f.Before != nil {
			a.say("  its inputs are at most %.3g off", *f.Before)
		}
		a.detail("  %s", f.Stats.Summary())
	}
	if r.Worst != nil && r.Worst.Error > 0 && (r.First == nil || r.Worst.Value != r.First.Value) {
		a.say("worst: %s", describeRow(r.Worst))
	}
	for _, c := range v.Routers {
		at := c.Block
		if where := c.Where(); where != "" {
			at += ", " + where
		}
		a.say("%s, %q: %d of %s went to other experts, %d of them in a tie", at, c.Value, len(c.Flips),
			counted(int(c.Tokens), "token"), c.Ties())
		for i, f := range c.Flips {
			if i == 3 && !a.verbose {
				a.say("  … (-v lists all)")
				break
			}
			a.say("  %s", f)
		}
	}
	for _, text := range v.Skipped {
		a.say("not examined: %s", text)
	}
	for _, text := range v.Unlike {
		a.detail("treated as equal and not compared: %s", text)
	}
	if a.verbose {
		t := newTable("value", "block", "made by", "other", "aligned by", ">error", ">cosine", "")
		for _, row := range v.Rows {
			t.add(row.Value, row.Block, row.Op, row.OpB, row.By, fmt.Sprintf("%.3g", row.Error),
				fmt.Sprintf("%.7f", row.Stats.Cosine), a.verdict(row.Stats.Passed, "passed"))
		}
		t.write(a.human())
	}
}

func describeRow(r *trace.Row) string {
	made := r.Op
	if r.OpB != r.Op {
		made += " against " + r.OpB
	}
	at := r.Block
	if where := r.Where(); where != "" {
		at += ", " + where
	}
	return fmt.Sprintf("%q in %s (%s), error %.3g of the greatest magnitude", r.Value, at, made, r.Error)
}

// settle sets the verdict of the comparison that the report belongs to. With --router-ties, the comparison passes if
// the outputs that were out of tolerance agree in the run that followed the ties.
func (r *layersReport) settle(a *app, c *comparison, ties bool) {
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
		a.say("the outputs agree when the values inside are read, which keeps onnxruntime from fusing: compare " +
			"with --optimize none")
	}
}
