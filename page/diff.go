package page

import (
	_ "embed"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/trace"
)

// Diff is the page about two models that were compared, or a model and recorded outputs.
type Diff struct {
	Tool           string // its version
	Model, Against string // paths of the models compared
	Backend        string // runs the model
	Passed         bool
	Verdict        string // in words
	Outputs        []Output
	Problems       []string          // failed comparisons
	Inside         *trace.Comparison // nil if only outputs were compared
	Runners        [2]string         // run the pieces of the two models
	MaxMemory      int64             // bytes of values that could be held at once
	Moved          []Moved
}

// Output is an output of one case.
type Output struct {
	Case int
	golden.Stats
}

// Moved compares how far an output is off with how far it moves when the first model's weights and inputs move by one
// unit in the last place.
type Moved struct {
	Case                  int
	Output, Other, Itself string
	Within, Passed        bool // Passed: by the tolerance
}

//go:embed diff.html
var diffHTML string

var diffPage = parsed(diffHTML)

// Write writes the page.
func (p *Diff) Write(w io.Writer) error { return diffPage().Execute(w, p) }

// Title returns the title of the page.
func (p *Diff) Title() string {
	return fmt.Sprintf("%s against %s", filepath.Base(p.Model), filepath.Base(p.Against))
}

// Count is a count out of a total.
type Count struct{ Some, All int }

// Within counts the outputs within tolerance.
func (p *Diff) Within() (c Count) {
	for _, o := range p.Outputs {
		if c.All++; o.Passed {
			c.Some++
		}
	}
	return c
}

// Out counts the inner values that are out of tolerance.
func (p *Diff) Out() (c Count) {
	for _, r := range p.Inside.Rows {
		if c.All++; !r.Stats.Passed {
			c.Some++
		}
	}
	return c
}

// Flips counts the tokens that went to other experts, and how many of them were ties.
func (p *Diff) Flips() (c Count) {
	for _, r := range p.Inside.Routers {
		c.All += len(r.Flips)
		c.Some += r.Ties()
	}
	return c
}

// layerErrors are the greatest errors of a layer, or outside of layers.
type layerErrors struct {
	Name  string
	Marks []mark
	Allow float64 // place of the narrowest tolerance on the axis
}

// mark is the greatest error of a part of a layer.
type mark struct {
	trace.BlockRow
	Kind string // its class: norm, mixing, feeding
	At   float64
}

// Layers collects the errors layer by layer, in the order of the model.
func (p *Diff) Layers() []*layerErrors {
	var list []*layerErrors
	at := map[string]*layerErrors{}
	for _, b := range p.Inside.Blocks() {
		l := at[layerName(b.Place)]
		if l == nil {
			l = &layerErrors{Name: layerName(b.Place), Allow: 2}
			at[l.Name], list = l, append(list, l)
		}
		x := b.Error
		if b.NaN > 0 {
			x = 1
		}
		l.Marks = append(l.Marks, mark{b, kindOf(b.Place.Part), position(x)})
	}
	for _, r := range p.Inside.Rows {
		l := at[layerName(r.Place)]
		l.Allow = min(l.Allow, r.Stats.Allowed())
	}
	for _, l := range list {
		if l.Allow = position(l.Allow); l.Allow == exactAt { // integers: all must be equal
			l.Allow = -1
		}
	}
	return list
}

// layerName returns the name of a block's layer, or of a part outside of layers.
func layerName(b trace.Block) string {
	if b.Layer < 0 {
		return b.Part
	}
	return fmt.Sprintf("layer %d", b.Layer)
}

func kindOf(part string) string {
	switch part {
	case trace.Attention, trace.Mixer:
		return "mixing"
	case trace.MLP, trace.Experts:
		return "feeding"
	}
	return "norm"
}

// mostWorst is the number of worst values listed.
const mostWorst = 15

// Worst lists the values with the greatest errors, without exact ones.
func (p *Diff) Worst() []*trace.Row {
	var rows []*trace.Row
	for i := range p.Inside.Rows {
		if r := &p.Inside.Rows[i]; r.Error != 0 || !r.Stats.Passed {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b *trace.Row) int {
		switch {
		case a.Worse(b):
			return -1
		case b.Worse(a):
			return 1
		}
		return 0
	})
	return rows[:min(len(rows), mostWorst)]
}

// Logits reports whether outputs hold logits.
func (p *Diff) Logits() bool {
	return slices.ContainsFunc(p.Outputs, func(o Output) bool { return o.Stats.Logits != nil })
}
