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

// previewPage writes the page aside about a model that is not to be written: its sites are replaced in memory, so that
// the page can say what would be left.
func (p *plan) previewPage(m *onnx.Model, found *rewrite.Plan) (*atomicfile.Prepared, error) {
	if p.page == nil {
		return nil, nil
	}
	err := found.Replace()
	if found.Report.DryRun = true; err != nil {
		return nil, err
	}
	return p.preparePage(m, "", nil)
}

// preparePage writes the page aside, if one is asked for, about a model whose sites were replaced. file is what was
// written of it, "" if failure is why it was not.
func (p *plan) preparePage(m *onnx.Model, file string, failure error) (*atomicfile.Prepared, error) {
	if p.page == nil {
		return nil, nil
	}
	p.page.End(m, file)
	if file == "" && failure != nil {
		p.page.Failure = failure.Error()
	}
	return atomicfile.Prepare(p.html, p.page.Write)
}

func (p *plan) sayPage() {
	if p.page != nil {
		p.app.say("wrote %s: open it in a browser", p.html)
	}
}

// outputs are the files that one run writes, each beside its place. They are put there together, and before a model.
type outputs []*atomicfile.Prepared

// add takes a file that was written aside, or none.
func (o *outputs) add(file *atomicfile.Prepared, err error) error {
	if file != nil {
		*o = append(*o, file)
	}
	return err
}

// rename puts the files in their places, within atomicfile.Commit.
func (o *outputs) rename() error {
	for _, file := range *o {
		if err := file.Rename(); err != nil {
			return err
		}
	}
	return nil
}

func (o *outputs) close() {
	for _, file := range *o {
		file.Close()
	}
}
