package main

import (
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// digests reports whether the output includes digests of files.
func (p *plan) digests() bool { return p.app.json || p.html != "" }

// draw draws a plan's sites for the page before they are replaced.
func (p *plan) draw(found *rewrite.Plan) {
	if p.page != nil {
		p.page.AddSites(found.Report)
	}
}

// previewPage writes the page of a dry run to a temporary file. It replaces the sites in memory, so that the page can
// show the remaining nodes.
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

// preparePage writes the page about a patched model to a temporary file if requested. file is the written model, or ""
// if failure prevented it.
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

// outputs are the temporary files of one run. They are renamed together, before a model.
type outputs []*atomicfile.Prepared

// add takes a temporary file, or nil.
func (o *outputs) add(file *atomicfile.Prepared, err error) error {
	if file != nil {
		*o = append(*o, file)
	}
	return err
}

// rename renames the files, within atomicfile.Commit.
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
