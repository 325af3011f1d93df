package quantized

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// A ProductsReport describes the products and tables with quantized weights of a model.
type ProductsReport struct {
	// Emits counts them by the target's replacement.
	Emits map[string]int `json:"emits,omitempty"`
	// Open counts those that stay, by reason.
	Open map[string]int `json:"open,omitempty"`
	// Check has the worst figures of all kinds, whose first rows were evaluated.
	Check *prove.CheckReport `json:"check,omitempty"`
	// Notes are for whoever runs the model.
	Notes []string `json:"notes,omitempty"`
}

// Include adds the counts of another report.
func (r *ProductsReport) Include(o *ProductsReport) {
	for k, n := range o.Emits {
		r.Emits[k] += n
	}
	for k, n := range o.Open {
		r.Open[k] += n
	}
	r.Notes = append(r.Notes, o.Notes...)
	switch {
	case r.Check == nil:
		r.Check = o.Check
	case o.Check != nil:
		r.Check.MaxRel, r.Check.Structural = max(r.Check.MaxRel, o.Check.MaxRel), max(r.Check.Structural,
			o.Check.Structural)
		if k := o.Check.Kernel; k != nil {
			r.Check.KernelRan(prove.KernelFigures{MaxRel: *k})
		}
	}
}

// Text returns the report as lines of text.
func (r *ProductsReport) Text() string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(r.Emits)) {
		list = append(list, fmt.Sprintf("%d %s", r.Emits[k], k))
	}
	text := strings.Join(list, ", ")
	if c := r.Check; c != nil && text != "" {
		text += fmt.Sprintf("; worst difference %.3g of the greatest magnitude, structure %.3g", c.MaxRel, c.Structural)
		if c.Kernel != nil {
			text += fmt.Sprintf(", kernel %.3g", *c.Kernel)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Open)) {
		text += fmt.Sprintf("\n  %d stay: %s", r.Open[k], k)
	}
	for _, n := range r.Notes {
		text += "\n  " + n
	}
	return cmp.Or(strings.TrimPrefix(text, "\n  "), "no product has quantized weights: round them with mojo-patch "+
		"quantize")
}

// Lower replaces mojo.Linear and mojo.Embedding by the target's ops. Only the model itself can contain them, because no
// pattern creates one. Each kind is checked with the first rows of its matrix, as every site is. The check does not
// round activations, because the targets' ops do not define their rounding.
func Lower(a *pass.Run, t *target.Target, accuracy int64) (*ProductsReport, error) {
	facts := infer.Analyze(a.Model)
	w := &productWriter{Run: a, target: t, facts: facts, experts: a.NewProver(),
		report:   &ProductsReport{Emits: map[string]int{}, Open: map[string]int{}},
		products: &target.Products{AccuracyLevel: accuracy}, accuracy: accuracy}
	var nodes []*onnx.Node
	for _, op := range lowered {
		for _, s := range a.Scopes() {
			for _, n := range s.Graph.Nodes {
				if n.Domain == fused.Domain && n.OpType == op {
					nodes = append(nodes, n)
				}
			}
		}
	}
	for _, n := range nodes {
		site := pass.FusedSite(w.Model, w.facts, n)
		if n.OpType != fused.QMoEName && fused.Lookup(n.OpType).Supports(site) == nil {
			w.products.Expect(target.NewCall(n, site))
		}
	}
	for _, n := range nodes {
		w.write(n)
	}
	if len(w.report.Emits)+len(w.report.Open) == 0 {
		return nil, nil
	}
	if w.report.Emits["DequantizeLinear, MatMul"] > 0 {
		w.report.Notes = append(w.report.Notes, "onnxruntime turns DequantizeLinear and MatMul into MatMulNBits and "+
			"rounds its activations to 8 bits. Prevent it with the session's configuration "+
			"session.qdq_matmulnbits_accuracy_level=0")
	}
	if n := w.report.Emits["FusedMatMul"]; n > 0 {
		w.report.Notes = append(w.report.Notes, english.Counted(n, "product")+" of 8 bits in float32: MatMulNBits has "+
			"fast kernels for 8 bits only at accuracy_level 4 (--accuracy-level 4)")
	}
	c := new(edit.Change)
	for _, op := range lowered {
		c.DropDefinitions(a.Model, op)
	}
	if slices.ContainsFunc(a.Model.Graphs(), func(g *onnx.Graph) bool { return edit.Uses(g, onnx.Microsoft) }) {
		c.ImportOpset(a.Model, nil, onnx.Microsoft, 1)
	}
	c.DropImport(a.Model, fused.Domain)
	return w.report, nil
}

// lowered are the ops that a target may replace. Tables come after products, because they may share a product's weight.
var lowered = []string{fused.LinearName, fused.EmbeddingName, fused.QMoEName}

type productWriter struct {
	*pass.Run
	target   *target.Target
	accuracy int64
	facts    *infer.Facts
	kinds    prove.Prover  // of products
	experts  *prove.Prover // of a target's experts
	report   *ProductsReport
	products *target.Products
}

func (w *productWriter) write(n *onnx.Node) {
	site := pass.FusedSite(w.Model, w.facts, n)
	err := fused.Lookup(n.OpType).Supports(site) // the model may be wrong
	if err == nil {
		err = w.check(n, site)
	}
	emits := ""
	if err == nil {
		call := target.NewCall(n, site)
		call.Products = w.products
		emits, err = w.target.Write(call)
	}
	if err != nil {
		w.report.Open[err.Error()]++
		return
	}
	w.report.Emits[emits]++
}

// check compares the target's nodes with the op on the first two panels of rows, using the checker of every site.
func (w *productWriter) check(n *onnx.Node, site fused.Site) error {
	if n.OpType == fused.QMoEName {
		return w.checkExperts(n, site)
	}
	matrix, err := firstPanels(n, site)
	if err != nil {
		return err
	}
	key := fmt.Sprint(n.OpType, site.Types, len(site.Dims[0]), matrix.Format, matrix.Code, matrix.Zero, matrix.Block,
		matrix.N, matrix.K)
	return w.kinds.Once(key, func() error { return w.checkKind(n, site, matrix) })
}

func (w *productWriter) checkKind(n *onnx.Node, site fused.Site, matrix *fused.Quantized) error {
	q := &quantizer{run: w.Run}
	stand := onnx.NewFunction("", "", "", 21).Body.NewNode(map[string]string{fused.LinearName: "MatMul",
		fused.EmbeddingName: "Gather"}[n.OpType], nil)
	bench, err := q.linearBench(matrix, reader{node: stand, typ: site.Types[0]})
	if err != nil {
		return err
	}
	bench.target, bench.products = w.target, &target.Products{AccuracyLevel: w.accuracy}
	r, err := bench.judge(bench.itself, "float")
	if err != nil || r == nil {
		return err
	}
	if w.report.Check == nil {
		w.report.Check = &prove.CheckReport{}
	}
	c := w.report.Check
	c.MaxRel, c.Structural = max(c.MaxRel, r.MaxRel), max(c.Structural, r.Structural)
	return nil
}

// firstPanels returns the first rows of a node's matrix.
func firstPanels(n *onnx.Node, site fused.Site) (*fused.Quantized, error) {
	a := fused.Read[fused.Embedding](site.Attributes)
	q := &fused.Quantized{Format: edit.FormatOf(n), Code: a.Code, Zero: a.Zero, Block: a.Block,
		N: min(a.N, sampleRows), K: a.K}
	for i, to := range []**onnx.Tensor{&q.Codes, &q.Scale, &q.Minus, &q.SuperScale, &q.SuperMinus} {
		v := n.Input(fused.LinearCodes + i) // an Embedding has the same input numbers
		if v == nil {
			continue
		}
		t := v.Constant()
		if t == nil {
			return nil, fmt.Errorf("the weights %q are computed", v.Name)
		}
		dims := slices.Clone(t.Dims)
		dims[0] = min(dims[0], (q.N+blocks.PanelRows-1)/blocks.PanelRows)
		sample, err := t.View(v.Name, dims, 0, nil)
		if err != nil {
			return nil, err
		}
		*to = sample
	}
	return q, nil
}
