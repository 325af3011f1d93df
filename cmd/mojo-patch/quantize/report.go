package quantize

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/compare"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/precision"
	"github.com/mojo-patch/mojo-patch/rewrite/products"
	"github.com/mojo-patch/mojo-patch/rewrite/quantize"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// Report is the JSON of quantize.
type Report struct {
	Schema      int    `json:"schema"`
	Model       string `json:"model"`
	Output      string `json:"output,omitempty"`
	Written     bool   `json:"written"`
	Activations string `json:"activations"`
	// DType and Safe describe the conversions before quantization; absent without --dtype and --safe.
	DType *precision.DTypeReport `json:"dtype,omitempty"`
	Safe  *streams.SafeReport    `json:"safe,omitempty"`
	// Before and After are the total bytes of the model's initializers.
	Before  int64                 `json:"bytes_before"`
	After   int64                 `json:"bytes_after"`
	Formats []quantizedFormat     `json:"formats"`
	Weights []*quantize.Weight    `json:"weights"`
	Skipped []quantize.Skipped    `json:"skipped"`
	Check   *quantizeCheck        `json:"check"`
	Merged  *products.MergeReport `json:"merged,omitempty"`
	// Cases compare the logits on recorded inputs with the original model's.
	Backend string             `json:"backend,omitempty"`
	Cases   []compare.CaseDiff `json:"cases,omitempty"`
}

// quantizedFormat counts the weights of one format.
type quantizedFormat struct {
	Format  string  `json:"format"`
	Weights int     `json:"weights"`
	Bits    float64 `json:"bits"`
	Before  int64   `json:"bytes_before"`
	After   int64   `json:"bytes_after"`
}

// quantizeCheck holds the worst results of the checks, relative to the greatest magnitude.
type quantizeCheck struct {
	Kinds      int     `json:"kinds"`
	Structural float64 `json:"structural"`
	Definition float64 `json:"definition"`
	Kernels    int     `json:"kernels"`
	Kernel     float64 `json:"kernel"`
}

// fill summarizes the weights.
func (r *Report) fill(m *onnx.Model, p *quantize.Plan, c *quantized.Report) {
	r.Schema = cli.JSONSchema
	r.Weights, r.Skipped = append([]*quantize.Weight{}, p.Weights...), append([]quantize.Skipped{}, p.Skipped...)
	r.Formats = []quantizedFormat{}
	for _, w := range p.Weights {
		i := slices.IndexFunc(r.Formats, func(f quantizedFormat) bool { return f.Format == w.Format })
		if i < 0 {
			i = len(r.Formats)
			r.Formats = append(r.Formats, quantizedFormat{Format: w.Format, Bits: w.Bits})
		}
		f := &r.Formats[i]
		f.Weights, f.Before, f.After = f.Weights+1, f.Before+w.Before, f.After+w.After
		r.Before += w.Before
	}
	for _, g := range m.Graphs() { // in their present form
		for _, v := range g.Initializers() {
			r.After += max(v.Const.Size(), 0)
		}
	}
	r.Before += r.After
	for _, w := range p.Weights {
		r.Before -= w.After
	}
	r.Activations = cmp.Or(strings.Join(c.Activations, " and "), r.Activations)
	r.Check = &quantizeCheck{c.Checked, c.Structural, c.Definition, c.Kernels, c.Kernel}
}

// mostWorst is the number of weights whose errors are printed.
const mostWorst = 10

func (r *Report) write(a *cli.App) {
	w := a.Human()
	if r.DType != nil {
		fmt.Fprintln(w, r.DType.Text())
	}
	if r.Safe != nil {
		fmt.Fprint(w, r.Safe.Text())
	}
	if len(r.Formats) > 0 {
		t := cli.NewTable("format", ">weights", ">bits a weight", ">before", ">after")
		for _, f := range r.Formats {
			t.Add(f.Format, f.Weights, fmt.Sprintf("%.2f", f.Bits), english.Bytes(f.Before), english.Bytes(f.After))
		}
		t.Write(w)
		r.worst(a)
	}
	for why, list := range cli.Grouped(r.Skipped, func(s quantize.Skipped) string { return s.Reason }) {
		var names []string
		var size int64
		for _, s := range list {
			names, size = append(names, s.Name), size+s.Bytes
		}
		fmt.Fprintf(w, "stays float, %s: %s (%s), %s\n", why, cli.Counted(len(names), "weight"),
			a.Names(names), english.Bytes(size))
	}
	if len(r.Formats) == 0 {
		return
	}
	fmt.Fprintf(w, "products with %s activations; checked %s of site: worst difference %.3g of the greatest "+
		"magnitude, structure %.3g", r.Activations, cli.Counted(r.Check.Kinds, "kind"), r.Check.Definition,
		r.Check.Structural)
	if r.Check.Kernels > 0 {
		fmt.Fprintf(w, ", kernel %.3g\n", r.Check.Kernel)
	} else {
		fmt.Fprintln(w, "; no kernel was run")
	}
	if r.Merged != nil {
		fmt.Fprintf(w, "products: %s\n", r.Merged.Text())
	}
	if len(r.Cases) > 0 {
		fmt.Fprintf(w, "against %s on recorded inputs, in %s\n", r.Model, r.Backend)
		compare.WriteLogits(a, r.Cases)
	}
}

// worst lists the weights with the greatest errors, of their products if known.
func (r *Report) worst(a *cli.App) {
	list := slices.Clone(r.Weights)
	known := slices.ContainsFunc(list, func(w *quantize.Weight) bool { return w.Product != nil })
	of := func(w *quantize.Weight) float64 {
		if w.Product != nil {
			return *w.Product
		}
		return w.RMS
	}
	slices.SortStableFunc(list, func(a, b *quantize.Weight) int { return cmp.Compare(of(b), of(a)) })
	if !a.Verbose {
		list = list[:min(len(list), mostWorst)]
	}
	header := []string{"worst", "format", "shape", ">relative RMS", ">cosine"}
	if known {
		header = append(header, ">of products")
	}
	t := cli.NewTable(header...)
	for _, w := range list {
		shape := []int64{w.N, w.K}
		if w.Experts > 0 {
			shape = append([]int64{w.Experts}, shape...)
		}
		row := []any{w.Name, w.Format, shape, fmt.Sprintf("%.4f", w.RMS), fmt.Sprintf("%.6f", w.Cosine)}
		if w.Product != nil {
			row = append(row, fmt.Sprintf("%.4f", *w.Product))
		} else if known {
			row = append(row, "")
		}
		t.Add(row...)
	}
	t.Write(a.Human())
}
