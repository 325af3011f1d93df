package match

import (
	"math"
	"strings"
	"unicode"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
	"github.com/mojo-patch/mojo-patch/reference"
)

func (s *Attempt) matchAttrs(e *notation.Call, n *onnx.Node, i int, k func() bool) bool {
	if i == len(e.Attrs) {
		return k()
	}
	a := e.Attrs[i]
	rest := func() bool { return s.matchAttrs(e, n, i+1, k) }
	x := s.attribute(n, a.Name)
	if ints, ok := x.([]int64); ok && len(ints) == 1 && a.Ints == nil {
		x = float64(ints[0])
	}
	ok := false
	switch {
	case x == nil:
	case a.Capture >= 0:
		return s.capture(a.Capture, x, rest)
	case a.Number != nil:
		f, isNumber := x.(float64)
		ok = isNumber && (f == *a.Number || float32(f) == float32(*a.Number) ||
			isAxis(a.Name) && s.sameAxis(n, int64(f), int64(*a.Number), 1))
	case a.Text != nil:
		text, isText := x.(string)
		f, isNumber := x.(float64)
		ok = isText && (text == *a.Text || a.Name == "equation" && sameEquation(text, *a.Text)) ||
			isNumber && a.Name == "to" && onnx.DataType(f).String() == *a.Text
	default:
		ints, isInts := x.([]int64)
		ok = isInts && len(ints) == len(a.Ints)
		for i := 0; ok && i < len(ints); i++ {
			ok = ints[i] == a.Ints[i] || isAxis(a.Name) && s.sameAxis(n, ints[i], a.Ints[i], len(ints))
		}
	}
	if !ok {
		return s.failAttribute(e, a, n, rest)
	}
	return rest()
}

func isAxis(name string) bool { return name == "axis" || name == "axes" }

// sameAxis reports whether two axes are equal, counted from the front or the back of the node's first input. axes is
// the number of axes that the attribute lists.
func (s *Attempt) sameAxis(n *onnx.Node, a, b int64, axes int) bool {
	r, ok := s.g.Facts.Rank(n.Input(0))
	if !ok {
		return false
	}
	if n.OpType == "Unsqueeze" { // its axes refer to the output
		r += axes
	}
	mod := func(x int64) int64 {
		if x < 0 {
			x += int64(r)
		}
		return x
	}
	return mod(a) == mod(b)
}

// sameEquation reports whether two Einsum equations with an explicit output differ only in the names of letters.
func sameEquation(a, b string) bool {
	letters := func(equation string) string {
		names := map[rune]rune{}
		return strings.Map(func(r rune) rune {
			switch {
			case unicode.IsSpace(r):
				return -1
			case !unicode.IsLetter(r):
				return r
			case names[r] == 0:
				names[r] = 'a' + rune(len(names))
			}
			return names[r]
		}, equation)
	}
	return strings.Contains(a, "->") && letters(a) == letters(b)
}

// clipsNothing reports whether a bound of Clip admits all numbers of its type, like a missing bound.
func clipsNothing(c *reference.Tensor, bound string) bool {
	if len(c.F) != 1 {
		return false
	}
	greatest := math.MaxFloat32
	switch c.DataType {
	case onnx.Float16:
		greatest = 65504
	case onnx.BFloat16:
		greatest = 0x1.fep127
	case onnx.Double:
		greatest = math.MaxFloat64
	}
	return bound == "min" && c.F[0] <= -greatest || bound == "max" && c.F[0] >= greatest
}

// attribute returns an attribute as float64, string or []int64. It reads the input that replaces the attribute in newer
// opsets, or the default. It returns nil if the attribute is absent or unknown.
func (s *Attempt) attribute(n *onnx.Node, name string) any {
	if a := n.Attr(name); a != nil && a.RefName == "" {
		switch a.Type {
		case onnx.AttrInt:
			return float64(a.Int)
		case onnx.AttrFloat:
			return float64(a.Float)
		case onnx.AttrString:
			return a.String
		case onnx.AttrInts:
			return a.Ints
		}
		return nil
	}
	key := onnx.OpName(n.Domain, n.OpType)
	if i, ok := AttributeInputs[key][name]; ok && n.Input(i) != nil {
		if c, ok := s.g.Facts.Constant(n.Input(i)); ok {
			switch {
			case n.Is("Clip") && clipsNothing(c, name):
				return attributeDefaults[key][name]
			case len(c.F) == 1:
				return c.F[0]
			case c.I != nil:
				return c.I
			}
		}
		return nil
	}
	if name == "keepdims" && reductions[key] {
		return 1.0
	}
	return attributeDefaults[key][name]
}
