package learn

import (
	"fmt"
	"math"
	"strconv"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// A Number is a constant of a region that may differ in another model.
type Number struct {
	Name  string
	Value float64
	of    string // the attribute that it determines; "" if it follows from the size of rows
	tells string // the attribute as an expression of the number
}

// attribute is a number of the op that a constant may determine.
type attribute struct {
	name  string
	value float64
}

// relation tells how a number of a region may follow from an attribute a of the op and the number of channels n. back
// is the inverse, in terms of the number's name and n's expression.
type relation struct {
	name string // of the number, from the attribute's
	of   func(a, n float64) float64
	back string
}

// ofAttributes are tried in order.
var ofAttributes = []relation{
	{"%s", func(a, _ float64) float64 { return a }, "%[1]s"},
	{"negative_%s", func(a, _ float64) float64 { return -a }, "-%[1]s"},
	{"%s_of_sum", func(a, n float64) float64 { return a * n }, "%[1]s / (%[2]s)"},
	{"part_of_%s", func(a, n float64) float64 { return a / n }, "%[1]s * %[2]s"},
	{"root_of_%s", func(a, _ float64) float64 { return math.Sqrt(a) }, "%[1]s * %[1]s"},
	{"root_of_%s_of_sum", func(a, n float64) float64 { return math.Sqrt(a * n) }, "%[1]s * %[1]s / (%[2]s)"},
	{"twice_%s", func(a, _ float64) float64 { return 2 * a }, "%[1]s / 2"},
	{"half_%s", func(a, _ float64) float64 { return a / 2 }, "2 * %[1]s"},
	{"negative_half_%s", func(a, _ float64) float64 { return -a / 2 }, "-2 * %[1]s"},
	{"inverse_%s", func(a, _ float64) float64 { return 1 / a }, "1 / %[1]s"},
}

// ofSizes are the numbers that follow only from the number of channels, which back computes.
var ofSizes = []relation{
	{"size", func(_, n float64) float64 { return n }, "%[1]s"},
	{"negative_size", func(_, n float64) float64 { return -n }, "-%[1]s"},
	{"part", func(_, n float64) float64 { return 1 / n }, "1 / %[1]s"},
	{"root", func(_, n float64) float64 { return math.Sqrt(n) }, "%[1]s * %[1]s"},
	{"root_part", func(_, n float64) float64 { return 1 / math.Sqrt(n) }, "1 / (%[1]s * %[1]s)"},
}

// plain are numbers of formulas, which do not identify a number of the op.
var plain = map[float64]bool{0: true, 1: true, -1: true, 2: true, -2: true, 0.5: true, -0.5: true}

// attributes records the numbers of the op.
func (w *writer) attributes() {
	for _, a := range w.m.Attributes {
		switch {
		case a.Type == onnx.AttrFloat && !plain[float64(a.Float)]:
			w.known = append(w.known, attribute{a.Name, float64(a.Float)})
		case a.Name == rotaryDim:
			w.rotary = float64(a.Int)
		}
	}
}

// number returns the pattern of a constant: a capture if it may be another number.
func (w *writer) number(x float64) notation.Expr {
	if name := w.generalized(x); name != "" {
		return &notation.Capture{Name: name}
	}
	return &notation.Number{Value: short(x)}
}

// short returns the shortest decimal number for a float32.
func short(x float64) float64 {
	if float64(float32(x)) != x {
		return x
	}
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64)
	if err != nil {
		return x
	}
	return y
}

// generalized returns the name of a number that may differ, "" for others.
func (w *writer) generalized(x float64) string {
	for _, n := range w.numbers {
		if n.Value == x {
			return n.Name
		}
	}
	if plain[x] {
		return ""
	}
	size, text := w.size()
	add := func(name, of, tells string) string {
		name = w.fresh(name)
		w.numbers = append(w.numbers, Number{Name: name, Value: x, of: of, tells: tells})
		return name
	}
	for _, a := range w.known {
		for _, r := range ofAttributes {
			if (size > 0 || r.of(a.value, 1) == r.of(a.value, 2)) && near(x, r.of(a.value, size)) {
				name := w.fresh(fmt.Sprintf(r.name, a.name))
				tells := fmt.Sprintf(r.back, name, text)
				if other := w.teller(a.name); other != "" {
					w.conds = append(w.conds, fmt.Sprintf("near(%s, %s)", tells, other))
				}
				return add(name, a.name, tells)
			}
		}
	}
	if size <= 2 {
		return ""
	}
	for _, r := range ofSizes {
		if near(x, r.of(0, size)) {
			name := w.fresh(r.name)
			w.conds = append(w.conds, fmt.Sprintf("near(%s, %s)", fmt.Sprintf(r.back, name), text))
			return add(name, "", "")
		}
	}
	return ""
}

// rotaryDim is the attribute with the number of rotated channels.
const rotaryDim = fused.AttrRotaryDim

// count returns the name of a number of channels that follows from the number of rotated ones, "" for others.
func (w *writer) count(x float64) string {
	for _, n := range w.numbers {
		if n.Value == x && (n.of == rotaryDim || n.of == "") {
			return n.Name
		}
	}
	if w.rotary == 0 || x < 1 {
		return ""
	}
	all, _ := w.Facts.Dim(w.m.Inputs[0], -1)
	rest := float64(all) - w.rotary
	for _, r := range []struct {
		name, tells string
		is          float64
	}{{rotaryDim, "%s", w.rotary}, {"half", "2 * %s", w.rotary / 2},
		{"rest", "dim(" + w.params[0] + ", -1) - %s", rest}} {
		if x != r.is {
			continue
		}
		name := w.fresh(r.name)
		tells := fmt.Sprintf(r.tells, name)
		if other := w.teller(rotaryDim); other != "" {
			w.conds = append(w.conds, fmt.Sprintf("near(%s, %s)", tells, other))
		} else if rest == 0 {
			w.conds = append(w.conds, fmt.Sprintf("near(%s, dim(%s, -1))", tells, w.params[0]))
		}
		w.numbers = append(w.numbers, Number{Name: name, Value: x, of: rotaryDim, tells: tells})
		return name
	}
	return ""
}

// teller returns the expression that determines an attribute, "" if no number of the region does.
func (w *writer) teller(attribute string) string {
	for _, n := range w.numbers {
		if n.of == attribute {
			return n.tells
		}
	}
	return ""
}

// size returns the number of channels in a row and its expression; 0 without rows.
func (w *writer) size() (n float64, text string) {
	if w.x == nil {
		return 0, ""
	}
	count := int64(1)
	for axis := w.axis(); axis < 0; axis++ {
		at := w.axisOfX(int(axis))
		d, ok := w.Facts.Dim(w.x, at)
		if !ok {
			return 0, ""
		}
		count *= d
		if text != "" {
			text += " * "
		}
		text += fmt.Sprintf("dim(%s, %d)", w.params[0], at)
	}
	return float64(count), text
}

func near(x, y float64) bool { return math.Abs(x-y) <= 1e-6*max(math.Abs(x), math.Abs(y)) }

// axis returns the first of the axes that the op normalizes, counted from the last.
func (w *writer) axis() int64 {
	for _, a := range w.m.Attributes {
		if a.Name == "axis" {
			return a.Int
		}
	}
	return -1
}

// axisOfX returns the axis of x that an axis of the op's input is, both counted from the last: the replacement may
// transpose x first.
func (w *writer) axisOfX(axis int) int {
	for _, u := range w.m.Replacement.Inputs[0].Uses() {
		if perm := u.Node.AttrInts("perm"); u.Node.Is("Transpose") && len(perm) >= -axis {
			return int(perm[len(perm)+axis]) - len(perm)
		}
	}
	return axis
}
