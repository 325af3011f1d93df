package sites

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/attention"
	"github.com/mojo-patch/mojo-patch/patterns/shorten"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A block of attention in an export with fixed shapes is checked with fewer tokens if its nodes treat all tokens alike;
// package shorten decides that. The computation then does not depend on their number, and its time grows with the
// square of that number.

// fewTokens replace fixed numbers of tokens, by world. They are prime and exceed the lanes of a vector.
var fewTokens = [infer.Worlds]struct{ queries, keys int64 }{{13, 19}, {7, 11}, {11, 7}}

// shorter is a slice with fewer tokens.
type shorter struct {
	region *shorten.Region
	shapes map[*onnx.Value]*reference.Tensor // targets of the nodes' reshapes
	inputs [][]int64                         // the shapes of the match's inputs
	keys   int64
}

// shortens reports whether a block has fixed lengths worth shortening, none of which depends on a cache.
func (c *Site) shortens(facts *infer.Facts) bool {
	s := c.Match.Attention
	if s == nil || s.Packed || s.Rotary != nil || s.PastKey != nil || s.Causal || s.Window != 0 {
		return false
	}
	fixed := func(v *onnx.Value, axes attention.Axes) bool {
		axis := slices.IndexFunc(axes.Fields(), func(f string) bool { return strings.Contains(f, "s") })
		d, ok := facts.Dim(v, axis)
		return ok && d > prove.ManyTokens
	}
	return fixed(s.Q, s.QAxes) || fixed(s.K, s.KAxes)
}

// shorten prepares the evaluation of the slice with fewer tokens. It returns an error if that is impossible.
func (c *Site) shorten(w world, shapes [][]int64) (*shorter, error) {
	s := c.Match.Attention
	shapeOf := func(v *onnx.Value) ([]int64, error) {
		if i := slices.Index(c.Match.Inputs, v); i >= 0 {
			return shapes[i], nil
		}
		if shape, ok := w.facts.Shape(v, w.n); ok {
			return shape, nil
		}
		return nil, fmt.Errorf("the shape of %q is not known", v.Name)
	}
	given := map[*onnx.Value][]shorten.Dim{}
	queries, keys, err := lengthsOf(s, shapeOf)
	if err != nil {
		return nil, err
	}
	for _, o := range []struct {
		v        *onnx.Value
		axes     attention.Axes
		heads, h int64
		rows     rune
	}{{s.Q, s.QAxes, s.Heads, s.Width, 's'}, {s.K, s.KAxes, s.KeyHeads, s.Width, 'l'},
		{s.V, s.VAxes, s.KeyHeads, s.ValueWidth, 'l'}} {
		shape, err := shapeOf(o.v)
		if err != nil {
			return nil, err
		}
		rows := shorten.Factor{Name: 's', Size: queries}
		if o.rows == 'l' && keys != queries {
			rows = shorten.Factor{Name: 'l', Size: keys}
		}
		dims, err := dimsOf(o.axes, shape, map[rune]shorten.Factor{'s': rows, 'n': {Size: o.heads}, 'h': {Size: o.h}})
		if err != nil {
			return nil, err
		}
		given[o.v] = dims
	}
	for _, v := range append(slices.Clone(s.Bias), s.Choice) {
		if v == nil {
			continue
		}
		shape, err := shapeOf(v)
		if err != nil {
			return nil, err
		}
		if given[v], err = onScores(s, shape, queries, keys); err != nil {
			return nil, err
		}
	}
	for v, in := range c.slice.equal {
		if dims, ok := given[in]; ok {
			given[v] = dims
		}
	}
	region, err := shorten.Read(c.slice.nodes, given, w.facts.Opset(), shapeOf)
	if err != nil {
		return nil, err
	}
	for _, v := range c.Match.Outputs {
		if _, thin := region.Thin(v); thin {
			return nil, fmt.Errorf("%q does not depend on the tokens", v.Name)
		}
	}
	few := fewTokens[w.n%len(fewTokens)]
	length := func(name rune) int64 {
		if name == 's' {
			return min(few.queries, queries)
		}
		return min(few.keys, keys)
	}
	out := &shorter{region: region, shapes: region.Inputs(length), inputs: slices.Clone(shapes), keys: length('l')}
	if keys == queries {
		out.keys = length('s')
	}
	for i, v := range c.Match.Inputs {
		if dims, ok := given[v]; ok {
			out.inputs[i] = nil
			for _, d := range dims {
				out.inputs[i] = append(out.inputs[i], d.At(length))
			}
		}
	}
	return out, nil
}

// onScores returns the factors of the dimensions of a tensor added to the scores of a block.
func onScores(s *attention.Reading, shape []int64, queries, keys int64) ([]shorten.Dim, error) {
	fields := s.BiasAxes.Fields()
	if len(shape) == 4 || len(fields) == 4 {
		fields = strings.Split(strings.ReplaceAll(string(s.BiasAxes), " ", ""), "")
	}
	if len(shape) > len(fields) {
		return nil, fmt.Errorf("%d dimensions on scores of %d", len(shape), len(fields))
	}
	dims := make([]shorten.Dim, len(shape))
	for i, d := range shape {
		if dims[i] = shorten.Fixed(d); d == 1 {
			continue
		}
		switch field := fields[len(fields)-len(shape)+i]; {
		case field == "s" && d == queries:
			dims[i] = shorten.Of(shorten.Factor{Name: 's', Size: d})
		case field == "l" && d == keys && keys == queries:
			dims[i] = shorten.Of(shorten.Factor{Name: 's', Size: d})
		case field == "l" && d == keys:
			dims[i] = shorten.Of(shorten.Factor{Name: 'l', Size: d})
		case strings.ContainsAny(field, "sl"):
			return nil, fmt.Errorf("dimension %d of a bias is %d", i, d)
		}
	}
	return dims, nil
}

// lengthsOf returns the numbers of queries and keys of a block.
func lengthsOf(s *attention.Reading, shapeOf func(*onnx.Value) ([]int64, error)) (queries, keys int64, err error) {
	of := func(v *onnx.Value, axes attention.Axes) int64 {
		shape, e := shapeOf(v)
		axis := slices.Index(axes.Fields(), "s")
		if e != nil || axis < 0 || axis >= len(shape) {
			err = fmt.Errorf("how many rows %q has is not known", v.Name)
			return 0
		}
		return shape[axis]
	}
	return of(s.Q, s.QAxes), of(s.K, s.KAxes), err
}

// dimsOf returns the factors of the dimensions of a value with these axes and this shape. Only the batch may be missing
// from factors.
func dimsOf(axes attention.Axes, shape []int64, factors map[rune]shorten.Factor) ([]shorten.Dim, error) {
	fields := axes.Fields()
	if len(fields) != len(shape) {
		return nil, fmt.Errorf("%d dimensions instead of %d", len(shape), len(fields))
	}
	for i, f := range fields {
		if strings.Contains(f, "b") {
			rest := shape[i]
			for _, letter := range strings.ReplaceAll(f, "b", "") {
				rest /= max(factors[letter].Size, 1)
			}
			factors['b'] = shorten.Factor{Size: rest}
		}
	}
	dims := axes.Dims(factors)
	for i, d := range dims {
		if d.At(func(name rune) int64 {
			for _, f := range factors {
				if f.Name == name {
					return f.Size
				}
			}
			return 0
		}) != shape[i] {
			return nil, fmt.Errorf("dimension %d is %d", i, shape[i])
		}
	}
	return dims, nil
}
