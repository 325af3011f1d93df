package rewrite

import (
	"errors"
	"fmt"
	"time"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// OpsetReport says that a model was raised to another opset, or why not: its opset is older than fused ops need, or its
// functions import another opset and could not be inlined otherwise.
type OpsetReport struct {
	Before int64  `json:"before"` // of the model
	After  int64  `json:"after"`
	Reason string `json:"reason,omitempty"` // why the model stays unchanged; absent if it was raised
	Limit  string `json:"limit,omitempty"`  // why it was not raised to the target's opset
}

// Text returns the report in words.
func (r *OpsetReport) Text() string {
	switch {
	case r.Reason != "":
		return fmt.Sprintf("opset %d was not raised to %d, which fused ops need: %s", r.Before, r.After, r.Reason)
	case r.Limit != "" && r.Before == r.After:
		return fmt.Sprintf("opset %d was not raised: %s", r.Before, r.Limit)
	case r.Limit != "":
		return fmt.Sprintf("raised opset %d to %d, and no further: %s", r.Before, r.After, r.Limit)
	case r.Before == r.After:
		return fmt.Sprintf("raised functions to opset %d, the model's", r.After)
	}
	return fmt.Sprintf("raised opset %d to %d", r.Before, r.After)
}

// raise converts a model of an older opset to the oldest that fused ops support, and if functions import another opset,
// the model and its functions to the newest of them. If nothing is fused then, the model is restored.
func (p *Plan) raise() error {
	c, m := p.request, p.run.Model
	from := m.Opset("")
	if from < convert.Oldest || c.Target != nil { // a target has another opset
		return nil
	}
	to, needed := max(from, fused.MinOpset), from < fused.MinOpset
	if c.Inline != inline.None && c.Inline != "" {
		for f := range inline.Called(m) {
			if o := f.Opset(""); o != 0 && o != from && f.Domain != fused.Domain {
				to, needed = max(to, o), true
			}
		}
	}
	if c.PagedType == onnx.Float8E4M3FN && from < newestRaised {
		to, needed = max(to, newestRaised), true
	}
	if !needed {
		return nil
	}
	if err := p.raiseTo(to); err != nil && from < fused.MinOpset {
		p.Report.Opset = &OpsetReport{Before: from, After: to, Reason: err.Error()}
	}
	return nil
}

// newestRaised is the newest opset that a model is raised to without a request: that of onnxruntime 1.15, the oldest
// version that runs the kernels.
const newestRaised = 19

// raiseForSites raises the model to the opset of the newest standard op that a match emits, such as LayerNormalization.
// If it reports true, the model must be searched again.
func (p *Plan) raiseForSites() bool {
	var to int64
	for _, f := range p.Found {
		for _, m := range f.Matches {
			if old := (*patterns.OpsetError)(nil); errors.As(m.Problem, &old) && old.Since <= newestRaised {
				to = max(to, old.Since)
			}
		}
	}
	return to > 0 && p.request.Target == nil && p.raiseTo(to) == nil
}

// raiseTo converts the model to a newer opset in which onnxruntime still runs all its nodes.
func (p *Plan) raiseTo(to int64) error {
	m := p.run.Model
	if at, limit := target.Raisable(m, infer.Analyze(m), to); at < to {
		return limit
	}
	from, restore := m.Opset(""), edit.Whole(m).Undo
	if err := convert.Opset(m, to); err != nil {
		return err
	}
	if r := p.Report.Opset; r != nil {
		from = r.Before
	}
	p.Report.Opset = &OpsetReport{Before: from, After: to}
	if !p.request.LastLogits && p.restore == nil {
		p.restore = restore
	}
	return nil
}

// inline inlines functions with blocks, and infers the shapes of the model that is searched.
func (p *Plan) inline() error {
	start := time.Now()
	in := &inline.Inliner{Model: p.run.Model, Mode: p.request.Inline, Find: p.request.find, Skips: p.run.Skips}
	inlined, err := in.Run()
	if err != nil {
		return err
	}
	if p.Report.Inlined = inlined.Report; inlined.Report != nil {
		if p.restore == nil || inlined.Restore == nil {
			p.restore = inlined.Restore
		}
		p.Report.TimeMS.Inline = lap(&start)
	}
	if p.run.Facts = inlined.Facts; p.run.Facts == nil {
		p.run.Facts = infer.Analyze(p.run.Model)
	}
	p.Report.TimeMS.Infer = lap(&start)
	return nil
}
