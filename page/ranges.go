package page

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/trace"
	"github.com/mojo-patch/mojo-patch/trace/ranges"
)

// Ranges is the page about the magnitudes of a model's values.
type Ranges struct {
	Tool           string // its version
	Model, Backend string
	Widened        string // the half type of the model, which ran in float32; "" for one in float32
	Inputs         string
	Cases          int
	MaxMemory      int64 // bytes of values that could be held at once
	Run            trace.Watched
	Values         *ranges.Ranges
}

//go:embed ranges.html
var rangesHTML string

var rangesPage = parsed(rangesHTML)

// Write writes the page.
func (p *Ranges) Write(w io.Writer) error { return rangesPage().Execute(w, p) }

// Title returns the title of the page.
func (p *Ranges) Title() string { return "Ranges of " + filepath.Base(p.Model) }

// Verdict names the first overflow.
func (p *Ranges) Verdict() string { return RangesVerdict(p.Values) }

// Limit is float16's greatest number on the axis.
func (p *Ranges) Limit() float64 { return p.at(ranges.Greatest) }

// Worst lists the values that lose most in float16.
func (p *Ranges) Worst() []*ranges.Row { return p.Values.Worst(mostWorst) }

// RangesVerdict names the first value that overflows float16, and says what to do.
func RangesVerdict(r *ranges.Ranges) string {
	first, next := r.First(), r.FirstIn16()
	if first == nil {
		return "no value overflows float16 on these inputs"
	}
	text := "first to overflow float16: " + describe(first)
	const choose = "use apply --dtype float16 --safe to scale such values, or --dtype bfloat16, which represents them"
	switch {
	case next == nil:
		return text + "; apply --dtype float16 leaves every value that overflows in float32"
	case next == first:
		return text + "; " + choose
	}
	return text + "; apply --dtype float16 leaves it in float32, but not " + describe(next) + "; " + choose
}

func describe(r *ranges.Row) string {
	at := r.Block
	if where := r.Where(); where != "" {
		at += ", " + where
	}
	return fmt.Sprintf("%q in %s (%s), which reaches %.6g", r.Value, at, r.Op, r.Greatest)
}

// layerRange is a layer, or a part outside of layers, in the picture.
type layerRange struct {
	Name  string
	Marks []rangeMark
}

// rangeMark is the greatest magnitude of a part of a layer.
type rangeMark struct {
	*ranges.BlockRow
	Kind string // as of a mark
	At   float64
}

// Failed reports whether values overflow.
func (m rangeMark) Failed() bool { return m.Overflow > 0 }

// Layers lists the greatest magnitudes layer by layer, in the order of the model.
func (p *Ranges) Layers() []*layerRange {
	var list []*layerRange
	at := map[string]*layerRange{}
	for _, b := range p.Values.Blocks() {
		name := layerName(b.Place)
		if at[name] == nil {
			at[name] = &layerRange{Name: name}
			list = append(list, at[name])
		}
		at[name].Marks = append(at[name].Marks, rangeMark{b, kindOf(b.Place.Part), p.at(b.Greatest)})
	}
	return list
}

// The axis of magnitudes goes at least from 10^leastMagnitude to 10^mostMagnitude.
const (
	leastMagnitude = -6
	mostMagnitude  = 6
)

// decades is the greatest power of ten on the axis.
func (p *Ranges) decades() float64 {
	most := float64(mostMagnitude)
	for _, r := range p.Values.Rows {
		most = max(most, math.Ceil(math.Log10(max(r.Greatest, 1))))
	}
	return most
}

// at returns a magnitude's position on the axis, in percent, clamped at its start.
func (p *Ranges) at(x float64) float64 {
	along := max(math.Log10(max(x, math.Pow10(leastMagnitude)))-leastMagnitude, 0)
	return axisFrom + (axisTo-axisFrom)*along/(p.decades()-leastMagnitude)
}

// Ticks are the lines of the axis of magnitudes.
func (p *Ranges) Ticks() []tick {
	step := 3.0
	for p.decades()-leastMagnitude > 6*step {
		step += 3
	}
	var list []tick
	for e := float64(leastMagnitude); e <= p.decades(); e += step {
		list = append(list, tick{p.at(math.Pow(10, e)), fmt.Sprintf("1e%.0f", e)})
	}
	return list
}
