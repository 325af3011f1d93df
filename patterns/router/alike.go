package router

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// The layers of a model have routers of one form: the first is read, and the others are it with other weights.

// readings are those of a graph's routings, by their form.
type readings struct {
	byForm map[string]*reading
}

// reading is what was found out about a routing.
type reading struct {
	form  *form
	found *Router
	v     *onnx.Value
	why   *reason.Reason
}

// read reads a routing, or takes what is known of one of the same form.
func (known *readings) read(p *reader) (found *Router, v *onnx.Value, why *reason.Reason) {
	f := newForm(p)
	if f == nil {
		return p.last()
	}
	was := known.byForm[f.String()]
	if was != nil && !slices.ContainsFunc(was.form.corrections, func(c *onnx.Value) bool {
		return was.found == nil || c != was.found.Bias // a constant whose numbers count
	}) {
		return was.of(p.r, f)
	}
	found, v, why = p.last()
	if known.byForm == nil {
		known.byForm = map[string]*reading{}
	}
	if !p.r.budget.Spent() {
		known.byForm[f.String()] = &reading{f, found, v, why}
	}
	return found, v, why
}

// of returns what was read, with the values of another routing of the form.
func (was *reading) of(r *Routing, f *form) (*Router, *onnx.Value, *reason.Reason) {
	stands := match.Standing(was.form.values, f.values)
	if was.found == nil {
		why := reason.New(was.why.Code, r.TopK, "%w", was.why)
		if n := was.why.Node; n != nil && len(n.Outputs) > 0 && stands(n.Outputs[0]) != nil {
			why.Node = stands(n.Outputs[0]).Producer
		}
		return nil, nil, why
	}
	own := *was.found
	own.Routing, own.Logits, own.Bias = r, stands(own.Logits), stands(own.Bias)
	return &own, stands(was.v), nil
}

// form is what lies between a routing's logits and weights as text that does not name its values.
type form struct {
	strings.Builder
	values      []*onnx.Value // in the order in which they stand there
	places      map[*onnx.Value]int
	corrections []*onnx.Value // constants whose numbers are not part of it
}

// maxNumbers bounds the elements of a constant whose numbers are part of a form.
const maxNumbers = 1 << 16

var seed = maphash.MakeSeed()

// newForm writes a routing; nil where that cannot be.
func newForm(p *reader) *form {
	way, err := p.plan(p.r.Logits, slices.DeleteFunc(p.r.Cut(), func(v *onnx.Value) bool { return v == nil })...)
	if err != nil {
		return nil
	}
	f := &form{places: map[*onnx.Value]int{}}
	f.corrections = corrections(p.g, p.r, way.Nodes)
	f.write(p, p.r.Logits)
	for _, n := range way.Nodes {
		key, ok := match.AttributesKey(n)
		if !ok && !n.Is("ConstantOfShape") && !n.Is("Constant") {
			return nil
		}
		fmt.Fprintf(f, "\n%s.%s%s", n.Domain, n.OpType, key)
		if a := n.Attr("value"); a != nil && a.Tensor != nil && !f.number(a.Tensor) {
			return nil
		}
		for _, in := range p.g.Operands(n) {
			if in == nil {
				f.WriteByte('-')
			} else if place, ok := f.places[in]; ok {
				fmt.Fprintf(f, "#%d", place)
			} else if t := in.Constant(); t != nil {
				if f.write(p, in); !slices.Contains(f.corrections, in) && !f.number(t) {
					return nil
				}
			} else if t := way.Known[in]; t != nil {
				fmt.Fprint(f, t.DataType, t.Shape, t.I)
			} else {
				return nil
			}
			f.WriteByte(',')
		}
		fmt.Fprint(f, n == p.r.TopK, slices.Contains(p.r.before, n))
		for _, out := range n.Outputs {
			f.write(p, out)
		}
	}
	fmt.Fprint(f, "\n", p.r.K, p.r.Experts)
	for _, v := range p.r.Cut() {
		fmt.Fprint(f, slices.Index(f.values, v), v == nil)
	}
	return f
}

// write gives a value its place, and writes what is known of it.
func (f *form) write(p *reader, v *onnx.Value) {
	if v == nil {
		return
	}
	f.places[v] = len(f.values)
	f.values = append(f.values, v)
	p.g.WriteType(f, v)
	fmt.Fprint(f, p.r.ByID[v], slices.Contains(p.r.chosen, v))
}

// number writes the elements of a constant; it reports whether it can.
func (f *form) number(t *onnx.Tensor) bool {
	if t.Len() > maxNumbers {
		return false
	}
	elements, err := t.Bytes()
	fmt.Fprint(f, t.DataType, t.Dims, maphash.Bytes(seed, elements))
	return err == nil
}
