package main

import (
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// digests reports whether a result shows the digests of files.
func (p *plan) digests() bool { return p.app.json || p.html != "" }

// draw draws the sites of a plan for the page, before they are replaced.
func (p *plan) draw(found *rewrite.Plan) {
	if p.page != nil {
		p.page.AddSites(found.Report)
	}
}

// previewPage writes the page about a model that is not to be written: its sites are replaced in memory, so that the
// page can say what would be left.
func (p *plan) previewPage(m *onnx.Model, found *rewrite.Plan) error {
	if p.page == nil {
		return nil
	}
	err := found.Replace()
	if found.Report.DryRun = true; err != nil {
		return err
	}
	return p.writePage(m, true, nil)
}

// writePage writes the page, if one is asked for, about a model whose sites were replaced. failure is why it was not
// written.
func (p *plan) writePage(m *onnx.Model, written bool, failure error) error {
	if p.page == nil {
		return nil
	}
	p.page.End(m)
	if !written && failure != nil {
		p.page.Failure = failure.Error()
	}
	if err := atomicfile.WriteFile(p.html, p.page.Write); err != nil {
		return err
	}
	p.app.say("wrote %s: open it in a browser", p.html)
	return nil
}
