package planning

import (
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// Digests reports whether the output includes digests of files.
func (p *Plan) Digests() bool { return p.app.JSON || p.HTML != "" }

// Draw draws a plan's sites for the page before they are replaced.
func (p *Plan) Draw(found *rewrite.Plan) {
	if p.page != nil {
		p.page.AddSites(found.Report)
	}
}

// previewPage writes the page of a dry run to a temporary file. It replaces the sites in memory, so that the page can
// show the remaining nodes.
func (p *Plan) previewPage(m *onnx.Model, found *rewrite.Plan) (*atomicfile.Prepared, error) {
	if p.page == nil {
		return nil, nil
	}
	err := found.Replace()
	if found.Report.DryRun = true; err != nil {
		return nil, err
	}
	return p.PreparePage(m, "", nil)
}

// PreparePage writes the page about a patched model to a temporary file if requested. file is the written model, or ""
// if failure prevented it.
func (p *Plan) PreparePage(m *onnx.Model, file string, failure error) (*atomicfile.Prepared, error) {
	if p.page == nil {
		return nil, nil
	}
	p.page.End(m, file)
	if file == "" && failure != nil {
		p.page.Failure = failure.Error()
	}
	return atomicfile.Prepare(p.HTML, p.page.Write)
}

// SayPage reports the page that was written.
func (p *Plan) SayPage() {
	if p.page != nil {
		p.app.Say("wrote %s: open it in a browser", p.HTML)
	}
}
