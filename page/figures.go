package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/mojo-patch/mojo-patch/rewrite"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// functions are the functions of the page's template.
var functions = template.FuncMap{
	"number":  func(n any) string { return english.Sprintf("%v", n) },
	"bytes":   bytesText,
	"counted": counted,
	"figure":  figureText,
	"part":    func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) },
	"add":     func(x, y float64) float64 { return x + y },
	"percent": func(x float64) float64 { return 100 * x },
	"join":    strings.Join,
	"base":    func(i int) bool { return i < mostOps },
	"graph":   func(d *drawing, id, title string) graphView { return graphView{d, id, title} },
	"fewer":   func(before, after int) string { return change(float64(before), float64(after)) },
	"least":   func(width float64) string { return fmt.Sprintf("%.0f", shrink*width) },
	"upper":   strings.ToUpper,
	"ticks":   ticks,
	"style":   func() template.CSS { return template.CSS(style) },
}

const (
	mostOps   = 12  // ops shown at once
	mostDrawn = 60  // nodes of a block that is drawn
	shrink    = 0.7 // how far a drawing shrinks before it scrolls
)

var english = message.NewPrinter(language.English)

// graphView is a drawing with its id and title.
type graphView struct {
	*drawing
	ID, Title string
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return english.Sprintf("%d %ss", n, noun)
}

func bytesText(n int64) string {
	x, unit := float64(n), "bytes"
	for _, larger := range []string{"kB", "MB", "GB", "TB"} {
		if x < 1000 {
			break
		}
		x, unit = x/1000, larger
	}
	return fmt.Sprintf("%.3g %s", x, unit)
}

// change formats the percent by which a number fell or rose.
func change(before, after float64) string {
	switch d := 100 * (after - before) / max(before, 1); {
	case before == after:
		return "unchanged"
	case d < 0:
		return fmt.Sprintf("%.3g %% fewer", -d)
	default:
		return fmt.Sprintf("%.3g %% more", d)
	}
}

// figureText formats a difference: 0 is exact.
func figureText(x float64) string {
	if x == 0 {
		return "0 (exact)"
	}
	return fmt.Sprintf("%.2g", x)
}

// tick is a line of the axis of differences.
type tick struct {
	At   float64 // percent of the width
	Text string
}

// The axis of differences goes from 10^least, slightly less than float64 can resolve, to 1. Exact zeros have a separate
// column on the left.
const (
	least    = -17
	exactAt  = 3.0
	axisFrom = 9.0
	axisTo   = 97.0
)

// position returns a difference's position on the axis, in percent. Differences above 1 and NaN are at 1.
func position(x float64) float64 {
	switch {
	case x == 0:
		return exactAt
	case math.IsNaN(x):
		return axisTo
	}
	decades := min(max(math.Log10(x), least), 0)
	return axisFrom + (axisTo-axisFrom)*(decades-least)/-least
}

// ticks are the lines of the axis of differences.
func ticks() []tick {
	ticks := []tick{{exactAt, "0"}}
	for e := -16; e <= 0; e += 4 {
		text := "1"
		if e < 0 {
			text = fmt.Sprintf("1e%d", e)
		}
		ticks = append(ticks, tick{position(math.Pow10(e)), text})
	}
	return ticks
}

// errorRow is a kind of block in the picture of differences.
type errorRow struct {
	*block
	// positions on the axis, or below 0
	Structure, Definition, Kernel, Tolerance float64
}

// Errors are the kinds of blocks that were evaluated.
func (p *Apply) Errors() []errorRow {
	var rows []errorRow
	for _, b := range p.Blocks {
		c := b.Check
		if c == nil {
			continue
		}
		row := errorRow{b, position(c.Structural), -1, -1, -1}
		if c.Tolerance > 0 || b.Status == rewrite.Fused { // a wrong formula is not tried with rounding
			row.Definition = position(c.MaxRel)
		}
		if c.Kernel != nil {
			row.Kernel = position(*c.Kernel)
		}
		if c.ToleranceRel > 0 && c.ToleranceRel < 1 {
			row.Tolerance = position(c.ToleranceRel)
		}
		rows = append(rows, row)
	}
	return rows
}

// Tally counts the ops of a drawing, in their order.
func (d *drawing) Tally() []string {
	var names []string
	count := map[string]int{}
	for _, b := range d.Boxes {
		if b.Kind == kindNode || b.Kind == kindFused || b.Kind == kindStandard {
			if count[b.Label]++; count[b.Label] == 1 {
				names = append(names, b.Label)
			}
		}
	}
	for i, name := range names {
		if count[name] > 1 {
			names[i] = fmt.Sprintf("%s × %d", name, count[name])
		}
	}
	return names
}
