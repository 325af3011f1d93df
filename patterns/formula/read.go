package formula

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Reader reads elements of the values of a graph as formulas.
type Reader struct {
	*Prover
	g *match.View
	// Size returns a dimension as a sum, by its sizes in the worlds of shape inference; nil if it is unknown.
	Size func(v *onnx.Value, axis int) *Sum
	// Leaf returns the reader for a value that is not followed further; nil for other values.
	Leaf func(v *onnx.Value) LeafReader

	// Limits receives the sizes that are assumed to fit into tables; nil allows no assumptions.
	Limits *[]Limit

	byKey    map[string]*Expr
	elements map[string]*Expr
	tables   map[*onnx.Value]*table
	sized    map[*onnx.Value]bool // memo of Sized
	depth    int
}

// NewReader returns a reader of the values of a graph. Its caller must set Size.
func NewReader(g *match.View) *Reader {
	return &Reader{Prover: &Prover{}, g: g, byKey: map[string]*Expr{}, elements: map[string]*Expr{},
		tables: map[*onnx.Value]*table{}, sized: map[*onnx.Value]bool{}}
}

// maxDepth bounds the nodes between an element and its sources.
const maxDepth = 1 << 12

func (r *Reader) intern(e Expr) *Expr {
	key := e.key()
	if have := r.byKey[key]; have != nil {
		return have
	}
	e.id = len(r.byKey) + 1
	r.byKey[key] = &e
	return &e
}

// Sum returns the formula of a sum.
func (r *Reader) Sum(s *Sum) *Expr { return r.intern(Expr{op: opValue, value: valueOf(s)}) }

func (r *Reader) number(n int64) *Expr { return r.Sum(Number(n)) }

func (r *Reader) unknown(n *onnx.Node, format string, args ...any) *Expr {
	return r.intern(Expr{op: opUnknown, node: n, what: fmt.Sprintf(format, args...)})
}

// apply returns the formula of a standard op or of an op of this package.
func (r *Reader) apply(n *onnx.Node, op string, args ...*Expr) *Expr {
	return r.folded(Expr{op: op, args: args, node: n})
}

// folded is intern that folds constants.
func (r *Reader) folded(e Expr) *Expr {
	if !slices.ContainsFunc(e.args, func(a *Expr) bool { return a.op != opValue || a.value.Sum != nil }) {
		c := &Case{prover: r.Prover, values: map[*Expr]Value{}, vars: map[*Var]bool{}}
		if v, err := c.evaluate(&e); err == nil && v.Sum == nil {
			return r.intern(Expr{op: opValue, value: v})
		}
	}
	return r.intern(e)
}

// integers is apply for an op on integers.
func (r *Reader) integers(n *onnx.Node, op string, args ...*Expr) *Expr {
	if op == "Add" || op == "Sub" {
		if b := args[1].value; args[1].op == opValue && b.Sum == nil && b.Number == 0 {
			return args[0]
		}
		if s, ok := args[0].value.asSum(); ok && args[0].op == opValue && args[1].op == opValue {
			if t, ok := args[1].value.asSum(); ok { // so that equal places are equal expressions
				if op == "Sub" {
					t = t.Times(-1)
				}
				return r.Sum(s.Plus(t))
			}
		}
	}
	return r.folded(Expr{op: op, args: args, node: n, integer: true})
}

// is reports whether a formula is the number n.
func (e *Expr) is(n float64) bool {
	return e.op == opValue && e.value.Sum == nil && e.value.Number == n
}

// Element returns the element of a value at a place.
func (r *Reader) Element(v *onnx.Value, at ...*Expr) *Expr {
	if v == nil {
		return r.unknown(nil, "an input is missing")
	}
	key := fmt.Sprintf("%p", v)
	for _, e := range at {
		key += fmt.Sprint(",", e.id)
	}
	if e := r.elements[key]; e != nil {
		return e
	}
	if r.depth > maxDepth {
		return r.unknown(v.Producer, "too many nodes compute it")
	}
	if !r.spend(valueSteps) {
		return r.unknown(v.Producer, spent)
	}
	r.depth++
	e := r.element(v, at)
	r.depth--
	r.elements[key] = e
	return e
}

func (r *Reader) element(v *onnx.Value, at []*Expr) *Expr {
	if r.Leaf != nil {
		if read := r.Leaf(v); read != nil {
			return r.intern(Expr{op: opElement, args: at, node: v.Producer, what: v.Name, read: read})
		}
	}
	if c := v.Constant(); c != nil {
		return r.constant(v, c, at)
	}
	n := v.Producer
	if n == nil {
		return r.unknown(nil, "it depends on the elements of %q", v.Name)
	}
	if rank, ok := r.g.Facts.Rank(v); !ok || rank != len(at) {
		return r.unknown(n, "the rank of %q is not known", v.Name)
	}
	read := readers[n.OpType]
	if read == nil || !onnx.IsStandardDomain(n.Domain) || n.IsRandom() && !n.Is("Dropout") {
		return r.unknown(n, "its op is not supported here")
	}
	return read(r, n, v, at)
}

// maxTable bounds the elements of a constant that is read.
const maxTable = 1 << 23

func (r *Reader) constant(v *onnx.Value, c *onnx.Tensor, at []*Expr) *Expr {
	if c.Len() > maxTable || c.Len() < 1 || len(c.Dims) != len(at) {
		return r.unknown(v.Producer, "the constant %q has %d elements", v.Name, c.Len())
	}
	b, ok := r.tables[v]
	if !ok {
		if t, err := reference.FromONNX(c); err == nil && t.S == nil {
			b = newTable(t)
		}
		r.tables[v] = b
	}
	if b == nil {
		return r.unknown(v.Producer, "the constant %q cannot be read", v.Name)
	}
	at = append([]*Expr{}, at...)
	fixed, i := true, 0
	for k, e := range at {
		if b.t.Shape[k] == 1 {
			at[k] = r.number(0)
			e = at[k]
		}
		if e.op != opValue || e.value.Sum != nil {
			fixed = false
			continue
		}
		x := int(e.value.Number)
		if x < 0 || x >= b.t.Shape[k] {
			return r.unknown(v.Producer, "the constant %q is read beyond its end", v.Name)
		}
		i += x * b.strides[k]
	}
	if fixed {
		return r.intern(Expr{op: opValue, value: Value{Number: b.at(i)}})
	}
	return r.intern(Expr{op: opLookup, args: at, table: b, node: v.Producer, what: v.Name})
}

// dims returns the dimensions of a value as formulas; nil unless they are known to be sums of sizes.
func (r *Reader) dims(v *onnx.Value) []*Expr {
	rank, ok := r.g.Facts.Rank(v)
	if !ok {
		return nil
	}
	list := make([]*Expr, rank)
	for axis := range list {
		if list[axis] = r.dim(v, axis); list[axis] == nil {
			return nil
		}
	}
	return list
}

func (r *Reader) dim(v *onnx.Value, axis int) *Expr {
	if c := v.Constant(); c != nil && axis < len(c.Dims) {
		return r.number(c.Dims[axis])
	}
	if !r.Sized(v) {
		return nil
	}
	if s := r.Size(v, axis); s != nil {
		return r.Sum(s)
	}
	return nil
}

// Place returns the place in v of the element that is broadcast to place at in a value of dimensions to. It returns an
// error if v's shape is unknown, or may be broadcast or not.
func (r *Reader) Place(v *onnx.Value, to []*Expr, at []*Expr) ([]*Expr, error) {
	dims := r.dims(v)
	more := len(to) - len(dims)
	if dims == nil || more < 0 {
		return nil, &UnknownError{v.Producer, fmt.Sprintf("the shape of %q is not known for all sizes", v.Name)}
	}
	list := make([]*Expr, len(dims))
	for i, d := range dims {
		switch {
		case d.is(1):
			list[i] = r.number(0)
		case d == to[i+more]:
			list[i] = at[i+more]
		default:
			return nil, &UnknownError{v.Producer, fmt.Sprintf("it is not known whether %q is broadcast", v.Name)}
		}
	}
	return list, nil
}

// broadcast returns the element of an input that is broadcast to a place of the node's result.
func (r *Reader) broadcast(n *onnx.Node, in, out *onnx.Value, at []*Expr) *Expr {
	to := r.dims(out)
	if to == nil {
		return r.unknown(n, "the shape of %q is not known for all sizes", out.Name)
	}
	place, err := r.Place(in, to, at)
	if err != nil {
		return r.unknown(n, "%v", err)
	}
	return r.Element(in, place...)
}
