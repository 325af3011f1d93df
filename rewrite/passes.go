package rewrite

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/mojo-patch/mojo-patch/rewrite/heads"
	"github.com/mojo-patch/mojo-patch/rewrite/latentcache"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedcache"
	"github.com/mojo-patch/mojo-patch/rewrite/precision"
	"github.com/mojo-patch/mojo-patch/rewrite/products"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/runson"
	"github.com/mojo-patch/mojo-patch/rewrite/sampling"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// A step of a run is one pass over the whole model. It does nothing unless it was requested.
type step struct {
	name string
	run  func(*Plan) error
}

// StepError is the error of a step that a model may do without. The model must not be used: read it again, and leave
// the option out.
type StepError struct {
	Flag string // that requested the step: "last-logits" or "cache"
	Err  error
}

// Error returns the message of Err.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }

// preparing are the passes that bring a model to the requested form. After them, functions are inlined, and sites are
// found and checked.
var preparing = []step{
	{"freed dimensions", (*Plan).freeDims},
	{"precision", (*Plan).convertType},
	{"oldest opset", (*Plan).raise},
	{"opset of the provider", (*Plan).prepareProvider},
	{"fixed dimensions", func(p *Plan) error { infer.DeclareFixed(p.run.Model); return nil }},
	{"last logits", (*Plan).lastLogits},
	{"target's opset and shapes", (*Plan).prepareTarget},
	{"merged decoder", (*Plan).takeMerged},
}

// rewriting are the passes after the search and the checks.
var rewriting = []step{
	{"sites", (*Plan).replaceSites},
	{"heads in place", (*Plan).leaveHeads},
	{"ops for CANN", (*Plan).avoidCANN},
	{"weights of other tools as they were", (*Plan).restoreFloats},
	{"latent caches", (*Plan).keepLatents},
	{"static and paged caches", (*Plan).keepCaches},
	{"own products", (*Plan).ownProducts},
	{"products with weights of 16 bits", (*Plan).halfProducts},
	{"merged products", (*Plan).mergeProducts},
	{"choice of tokens", (*Plan).sample},
	{"target's products", (*Plan).lowerProducts},
	{"target's attention on pools", (*Plan).lowerPaged},
	{"ops outside the standard", (*Plan).findForeign},
	{"nodes without kernels", (*Plan).lowerNodes},
}

// PassReport reports one pass: its time, and the number of nodes before and after, except nodes of functions.
type PassReport struct {
	Name          string
	Took          time.Duration
	Before, After int
}

// inOrder runs passes in order, and reports each.
func (p *Plan) inOrder(passes []step) error {
	before := countNodes(p.run.Model)
	for _, x := range passes {
		start := time.Now()
		if err := x.run(p); err != nil {
			return err
		}
		r := PassReport{Name: x.name, Took: time.Since(start), Before: before, After: countNodes(p.run.Model)}
		p.Report.Passes, before = append(p.Report.Passes, r), r.After
	}
	return nil
}

func countNodes(m *onnx.Model) (n int) {
	m.Graph.Walk(func(g *onnx.Graph) { n += len(g.Nodes) })
	return n
}

// WritePasses writes the passes in order, with their times and the changes in the number of nodes.
func (r *Report) WritePasses(w io.Writer) error {
	for _, x := range r.Passes {
		change := ""
		if x.Before != x.After {
			change = fmt.Sprintf(", %d nodes, before %d", x.After, x.Before)
		}
		if _, err := fmt.Fprintf(w, "pass %-36s %.1f ms%s\n", x.Name, float64(x.Took.Microseconds())/1000,
			change); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) freeDims() (err error) {
	c := p.request
	if len(c.Free) == 0 {
		return nil
	}
	var recorded []golden.Case
	if c.Recorded != nil {
		if recorded, err = c.Recorded(p.run.Model); err != nil {
			return err
		}
	}
	if p.Report.Free, err = dims.Apply(p.run, c.Free, dims.Options{Recorded: recorded,
		ExtendMasks: c.ExtendMasks}); err != nil {
		return fmt.Errorf("free: %w", err)
	}
	p.Report.Changed = true
	return nil
}

func (p *Plan) convertType() (err error) {
	c := p.request
	if c.DType == onnx.Undefined {
		return nil
	}
	var providers []string
	if d := c.Backend.Devices(); len(d) == 1 && d[0] == "CUDA" {
		providers = []string{"cuda"}
	}
	p.Report.Changed = true
	if c.Safe != nil {
		if err = p.convertSafely(providers); err != nil {
			err = fmt.Errorf("in %s: %w", c.DType, err)
		}
		return err
	}
	if p.Report.DType, err = precision.Apply(p.run, c.DType, providers...); err != nil {
		return fmt.Errorf("in %s: %w", c.DType, err)
	}
	return nil
}

// convertSafely converts the model to float16 without overflow.
func (p *Plan) convertSafely(providers []string) error {
	options := *p.request.Safe
	options.Providers = providers
	safe, err := streams.Prepare(p.run, options)
	if err != nil {
		return err
	}
	p.Report.Safe = safe.Report
	if p.Report.DType, err = precision.ApplyExcept(p.run, p.request.DType, safe.Wide, providers...); err != nil {
		return err
	}
	p.Report.DType.Before = safe.From.String()
	return safe.Compare(p.run.Model)
}

func (p *Plan) prepareProvider() (err error) {
	if p.request.RunsOn == nil {
		return nil
	}
	r, err := runson.Prepare(p.run, p.request.RunsOn)
	if err != nil {
		return fmt.Errorf("runs-on: %w", err)
	}
	if p.Report.RunsOn = r; r.Changed() {
		p.Report.Changed, p.restore = true, nil // restore would undo this, too
	}
	return nil
}

func (p *Plan) lowerNodes() error {
	if p.request.RunsOn == nil {
		return nil
	}
	if err := runson.Apply(p.run, p.request.RunsOn, p.Report.RunsOn); err != nil {
		return fmt.Errorf("runs-on: %w", err)
	}
	p.Report.Changed = p.Report.Changed || p.Report.RunsOn.Changed()
	return nil
}

func (p *Plan) lastLogits() error {
	if !p.request.LastLogits {
		return nil
	}
	p.Report.Logits = LogitsLast
	if err := convert.LastLogits(p.run.Model); errors.Is(err, convert.ErrLastOnly) {
		p.Report.Logits = LogitsWereLast
	} else if err != nil {
		return &StepError{"last-logits", fmt.Errorf("last-logits: %w", err)}
	}
	return nil
}

func (p *Plan) prepareTarget() error {
	c, m := p.request, p.run.Model
	if c.Target == nil {
		return nil
	}
	from := m.Opset("")
	limit, err := target.Prepare(m, c.Target, c.Shapes)
	if limit != nil {
		p.Report.Opset = &OpsetReport{Before: from, After: m.Opset(""), Limit: limit.Error()}
	}
	return err
}

func (p *Plan) takeMerged() (err error) {
	if p.request.StaticCache != nil || p.request.PagedCache != 0 {
		if p.merged, err = staticcache.TakeMerged(p.run); err != nil {
			if p.request.PagedCache != 0 {
				err = fmt.Errorf("the cache cannot be paged: %w", err)
			}
			err = &StepError{"cache", err}
		}
	}
	return err
}

func (p *Plan) leaveHeads() error {
	if len(p.accepted) == 0 {
		return nil
	}
	unproven, err := heads.Apply(p.run)
	p.Report.Unproven = append(p.Report.Unproven, unproven...)
	return err
}

func (p *Plan) avoidCANN() (err error) {
	if len(p.accepted) == 0 || !p.kernels.Uses("npu") {
		return nil
	}
	var graphs []*onnx.Graph
	for _, s := range p.run.Scopes() {
		graphs = append(graphs, s.Graph)
	}
	p.Report.CANN, err = target.AvoidCANN(graphs, p.run.Facts)
	return err
}

func (p *Plan) restoreFloats() error { return p.floats.Restore() }

func (p *Plan) ownProducts() error {
	if p.request.OwnProducts == "" {
		return nil
	}
	r, kept, err := p.floats.Own()
	p.Report.Products, p.Report.Changed = r, p.Report.Changed || kept > 0
	return err
}

// halfProducts makes products read 16-bit weights as stored if the model runs only on the CPU: a GPU multiplies such
// weights natively.
func (p *Plan) halfProducts() error {
	c := p.request
	if d := c.Backend.Devices(); len(d) != 1 || d[0] != "CPU" || c.Target != nil || p.kernels.IsEmpty() {
		return nil
	}
	r, _, err := quantized.Half(p.run)
	if err != nil {
		return err
	}
	if p.Report.Products != nil {
		r.Include(p.Report.Products)
	}
	if len(r.Emits)+len(r.Open) > 0 {
		p.Report.Products, p.Report.Changed = r, p.Report.Changed || len(r.Emits) > 0
	}
	return nil
}

func (p *Plan) lowerProducts() error {
	c := p.request
	if c.Target == nil || !c.Target.Takes(fused.LinearName) {
		return nil
	}
	r, err := quantized.Lower(p.run, c.Target, c.AccuracyLevel)
	if r != nil {
		p.Report.Products, p.Report.Changed = r, p.Report.Changed || len(r.Emits) > 0
	}
	return err
}

func (p *Plan) keepLatents() (err error) {
	if !p.request.LatentCache {
		return nil
	}
	if p.Report.Latent, err = latentcache.Apply(p.run); err == nil {
		p.Report.Changed = true
	}
	return err
}

func (p *Plan) keepCaches() (err error) {
	if p.request.PagedCache != 0 {
		return p.pageCaches()
	}
	if p.request.StaticCache == nil {
		return nil
	}
	if p.Report.Cache, err = staticcache.Apply(p.run, *p.request.StaticCache, p.merged); err != nil {
		return &StepError{"cache", err}
	}
	p.Report.Changed = true
	return nil
}

// pageCaches makes caches buffers with a length for each sequence, and the buffers pools.
func (p *Plan) pageCaches() error {
	change, failed := pagedcache.Before(p.run, p.request.PagedCache, p.request.PagedType)
	buffers, err := staticcache.Apply(p.run, staticcache.Options{RowLengths: true, Packed: true}, p.merged)
	if err != nil {
		return fmt.Errorf("the cache cannot be paged: %w", err)
	}
	if failed != nil {
		return failed
	}
	p.Report.Changed = true
	p.Report.Paged, err = change.Apply(pagedcache.Buffers{Positions: buffers.Counted, Merged: p.merged})
	return err
}

func (p *Plan) mergeProducts() error {
	if p.request.Merge == NoMerge {
		return nil
	}
	r, unproven, err := products.Apply(p.run, p.request.Merge == MergeQuantized)
	if err != nil {
		return err
	}
	p.Report.Merged, p.Report.Changed = r, p.Report.Changed || r.Merged > 0
	p.Report.Unproven = append(p.Report.Unproven, unproven...)
	return nil
}

func (p *Plan) sample() (err error) {
	if !p.request.Sample {
		return nil
	}
	if p.Report.Sampling, err = sampling.Apply(p.run); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	p.Report.Changed = true
	return nil
}
