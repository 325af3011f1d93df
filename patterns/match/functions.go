package match

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// function is a function that conditions may call.
type function struct {
	takes string // the kinds of its arguments: v is a value, n a number, s a text
	apply func(g *View, args []any) any
	// phrase describes the finding of a function that answers yes or no; nil for other functions.
	phrase func(g *View, args []any, names []string, yes bool) string
	// lacks returns the reason if too little is known for an answer, given the result found. It may be nil.
	lacks func(g *View, args []any, found any) reason.Code
}

// call applies the function. It returns an error if an argument is of the wrong kind.
func (f function) call(g *View, args []any) (any, error) {
	for i, kind := range f.takes {
		if x := args[i]; !isKind(kind, x) {
			return nil, fmt.Errorf("argument %d is %v, which has the wrong type", i+1, x)
		}
	}
	return f.apply(g, args), nil
}

func isKind(kind rune, x any) bool {
	switch x.(type) {
	case *onnx.Value:
		return kind == 'v'
	case float64:
		return kind == 'n'
	}
	_, isText := x.(string)
	return isText && kind == 's'
}

// functions, with v, w for values:
//
//	rank(v)               number of dimensions, -1 when unknown
//	dim(v, axis)          a dimension, -1 when unknown or not a constant
//	type(v)               element type, such as "float16"; "undefined" when unknown
//	sameshape(v, w)       both shapes are known and equal
//	samedim(v, i, w, j)   dimension i of v and j of w are known and equal
//	near(n, m)            two numbers are equal except for rounding
//	broadcasts(v, w)      v broadcasts to the shape of w without enlarging it
//	reads(v, w)           v is computed from w, or may be
//	centered(v)           v is the difference of a tensor and its mean, the first step of LayerNorm
//	weighted(v)           v is multiplied with a constant
//	is(v, "Name")         the pattern of this name, if it is in the set, matches at v
//	routed(v)             v is computed from weights or rows picked by data: part of an expert, not of a dense layer
var functions map[string]function

func init() {
	functions = map[string]function{
		"rank": {takes: "v", apply: ofValue((*View).rank), lacks: unknown},
		"type": {takes: "v", apply: ofValue((*View).dataType), lacks: unknown},
		"dim":  {takes: "vn", apply: dimFunction, lacks: unknown},
		"centered": {takes: "v", apply: ofValue((*View).centered),
			phrase: is("%s has its mean subtracted, as in a LayerNorm")},
		"routed": {takes: "v", apply: ofValue(func(g *View, v *onnx.Value) any { return g.Routed(v) }),
			phrase: is("%s comes from rows or weights that the data selects, as in an expert")},
		"weighted": {takes: "v", apply: ofValue(func(g *View, v *onnx.Value) any { return g.Weighted(v) }),
			phrase: is("%s is multiplied by a constant")},
		"is": {takes: "vs", apply: func(g *View, a []any) any { return g.is(a[0].(*onnx.Value), a[1].(string)) },
			phrase: is("%s is the result of a pattern: %s")},
		"reads":      {takes: "vv", apply: ofValues((*View).reads), phrase: is("%s is computed from %s")},
		"sameshape":  {takes: "vv", apply: ofValues((*View).sameShape), phrase: twoShapes, lacks: lacksShapes},
		"samedim":    {takes: "vnvn", apply: sameDimFunction},
		"near":       {takes: "nn", apply: nearFunction},
		"broadcasts": {takes: "vv", apply: ofValues((*View).broadcasts), phrase: twoShapes, lacks: lacksShapes},
	}
}

// unknown returns Unknown if a function returned a negative number or no type.
func unknown(_ *View, _ []any, found any) reason.Code {
	if n, isNumber := found.(float64); isNumber && n < 0 || found == onnx.Undefined.String() {
		return reason.Unknown
	}
	return ""
}

func ofValue(f func(*View, *onnx.Value) any) func(*View, []any) any {
	return func(g *View, a []any) any { return f(g, a[0].(*onnx.Value)) }
}

func ofValues(f func(g *View, v, w *onnx.Value) bool) func(*View, []any) any {
	return func(g *View, a []any) any { return f(g, a[0].(*onnx.Value), a[1].(*onnx.Value)) }
}

// is returns a phrase function that formats the names of the arguments for yes and returns "" for no.
func is(format string) func(*View, []any, []string, bool) string {
	return func(_ *View, _ []any, names []string, yes bool) string {
		if !yes {
			return ""
		}
		args := make([]any, len(names))
		for i, n := range names {
			args[i] = n
		}
		return "that " + fmt.Sprintf(format, args...)
	}
}

func dimFunction(g *View, a []any) any {
	if d, ok := g.Facts.Dim(a[0].(*onnx.Value), int(a[1].(float64))); ok {
		return float64(d)
	}
	return -1.0
}

func sameDimFunction(g *View, a []any) any {
	return g.Facts.SameDim(a[0].(*onnx.Value), int(a[1].(float64)), a[2].(*onnx.Value), int(a[3].(float64)))
}

func nearFunction(_ *View, a []any) any {
	x, y := a[0].(float64), a[1].(float64)
	return math.Abs(x-y) <= 1e-6*max(math.Abs(x), math.Abs(y))
}

// is tries the patterns of this name at v, regardless of other matches.
func (g *View) is(v *onnx.Value, name string) bool {
	v = g.Resolve(v)
	if v.Producer == nil {
		return false
	}
	return slices.ContainsFunc(g.index.At(v.Producer), func(p *notation.Pattern) bool {
		return p.Name == name && NewAttempt(g, p).At(v, nil)
	})
}

func (g *View) rank(v *onnx.Value) any {
	if r, ok := g.Facts.Rank(v); ok {
		return float64(r)
	}
	return -1.0
}

func (g *View) dataType(v *onnx.Value) any { return g.Facts.DataType(v).String() }

func (g *View) sameShape(v, w *onnx.Value) bool { return v == w || g.Facts.SameShape(v, w) }

func (g *View) broadcasts(v, w *onnx.Value) bool {
	return g.RowsBroadcast(Block{v, 0}, Block{w, 0})
}

// reads reports whether v is computed from w. It is also true if the search takes too long or meets a node that holds a
// graph.
func (g *View) reads(v, w *onnx.Value) bool {
	made, left := g.Position(Producer(g.Resolve(w))), 1<<10
	before := func(v *onnx.Value) bool { // no value before there reads w
		return v.Producer == nil || g.Position(v.Producer) < made
	}
	for u := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if before(v) {
			return nil
		}
		return v.MadeFrom()
	}, v) {
		if u == w {
			return true
		}
		if before(u) {
			continue
		}
		if left--; left < 0 || len(u.Producer.Subgraphs()) > 0 {
			return true
		}
	}
	return false
}

func (g *View) centered(v *onnx.Value) any {
	n := Producer(g.SkipCasts(v))
	if !n.Is("Sub") {
		return false
	}
	m := Producer(g.SkipCasts(n.Input(1)))
	return m.Is("ReduceMean") && m.Input(0) != nil && g.Same(g.SkipCasts(m.Input(0)), g.SkipCasts(n.Input(0)))
}

// SkipCasts goes back over casts of any kind.
func (g *View) SkipCasts(v *onnx.Value) *onnx.Value {
	v = g.Resolve(v)
	for Producer(v).Is("Cast") {
		v = g.Resolve(v.Producer.Input(0))
	}
	return v
}

// Weighted reports whether v is multiplied with weights: a constant that is not a scalar, perhaps cast or shifted.
func (g *View) Weighted(v *onnx.Value) bool {
	for _, u := range v.Uses() {
		n := u.Node
		if onnx.IsStandardDomain(n.Domain) && (n.OpType == "Cast" || n.OpType == "Identity") &&
			g.Weighted(n.Outputs[0]) {
			return true
		}
		if !n.Is("Mul") || len(n.Inputs) != 2 {
			continue
		}
		w := g.SkipCasts(n.Inputs[1-u.Index])
		if p := w.Producer; p.Is("Add") && g.SkipCasts(p.Input(0)).Constant() != nil {
			w = g.SkipCasts(p.Input(0))
			if _, _, isNumber := g.Scalar(w); isNumber {
				w = g.SkipCasts(p.Input(1))
			}
		}
		if t := w.Constant(); t != nil && len(t.Dims) > 0 {
			return true
		}
	}
	return false
}

// maxFilled bounds the elements of constants that are inspected.
const maxFilled = 1 << 16

// filledView is the built-in view Filled<value=n>(): a constant of several elements, all of them n.
func filledView(g *View, v *onnx.Value) (*ViewMatch, *ViewMiss) {
	if x, ok := g.Filled(v); ok {
		return &ViewMatch{Attributes: map[string]any{"value": x}}, nil
	}
	return nil, &ViewMiss{At: v}
}

// Filled returns the number that all elements of a constant equal; the constant must have at least two.
func (g *View) Filled(v *onnx.Value) (x float64, ok bool) {
	filled := *Memo[map[*onnx.Value][]float64](g)
	if filled == nil {
		filled = map[*onnx.Value][]float64{}
		*Memo[map[*onnx.Value][]float64](g) = filled
	}
	list, known := filled[v]
	if !known {
		list = g.filled(v)
		filled[v] = list
	}
	if len(list) == 0 {
		return 0, false
	}
	return list[0], true
}

// filled returns a list with the common element of a constant, an empty list for other values.
func (g *View) filled(v *onnx.Value) []float64 {
	t, ok := g.Facts.Constant(v)
	if c := v.Constant(); !ok && c != nil && c.DataType.IsFloat() && c.Len() >= 2 && c.Len() <= maxFilled {
		t, _ = reference.FromONNX(c)
	}
	if t == nil || len(t.F) < 2 || slices.ContainsFunc(t.F, func(x float64) bool { return x != t.F[0] }) {
		return nil
	}
	return t.F[:1]
}
