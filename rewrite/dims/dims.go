// Package dims frees dimensions of inputs whose sizes an exporter baked into constants.
//
// The model runs only at the sizes of its export example. To free a dimension, the package runs the model at other
// sizes in the built-in evaluator. If a node fails, it tries the constants that the node depends on and that may be the
// size: elements of shapes, indices and counts, and the lengths of tables. A choice with which the model runs is a
// reading. Equal numbers prove nothing: every reading must agree with the original in all ways that can be tested at
// its one size (evidence.go). If two remaining readings differ at some size, the dimension is not freed.
package dims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A Dim is a dimension shared by inputs.
type Dim struct {
	Name string
	// Size is the size at export; 0 if unknown.
	Size   int64
	places []place
}

// place is one axis of an input.
type place struct {
	input *onnx.Value
	axis  int
	// rest is the size at export of the axis's other rows, as a mask has rows for the past and the new tokens, or 0.
	// Those of the dimension are the last ones, or the first ones.
	rest int64
	last bool
}

func (p place) String() string { return p.input.Name + "." + strconv.Itoa(p.axis) }

// Names of dimensions that need no declaration: axis 0 of all inputs; axis 1 of inputs with two or three dimensions;
// axis 2 of inputs with four dimensions, after the batch and the heads. With a cache, the last axis of a mask is the
// sum of the past and the sequence. Positions with three dimensions have another axis before these.
const (
	Batch    = "batch"
	Sequence = "sequence"
	Past     = "past"
)

// Find finds a dimension from the user's text: NAME, NAME=SIZE, NAME=INPUT.AXIS+INPUT.AXIS, or
// NAME=SIZE@INPUT.AXIS+INPUT.AXIS.
func Find(m *onnx.Model, text string) (*Dim, error) {
	name, rest, _ := strings.Cut(text, "=")
	d := &Dim{Name: name}
	size, list, both := strings.Cut(rest, "@")
	if !both && strings.Contains(rest, ".") {
		size, list = "", rest
	}
	if name == "" || both && list == "" {
		return nil, fmt.Errorf("%q is not a dimension: write NAME, NAME=SIZE or NAME=INPUT.AXIS+INPUT.AXIS", text)
	}
	if size != "" {
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("dimension %q: the size at export, %q, is not a positive number", name, size)
		}
		d.Size = n
	}
	if err := d.locate(m, list); err != nil {
		return nil, fmt.Errorf("dimension %q: %w", name, err)
	}
	return d, nil
}

// locate finds the places of a dimension, and its size if a place declares one.
func (d *Dim) locate(m *onnx.Model, list string) error {
	if list != "" {
		for _, at := range strings.Split(list, "+") {
			i := strings.LastIndex(at, ".")
			if i < 0 {
				return fmt.Errorf("%q is not INPUT.AXIS", at)
			}
			axis, err := strconv.Atoi(at[i+1:])
			v := input(m, at[:i])
			if v == nil || err != nil {
				return fmt.Errorf("%q: the model has no such input", at)
			}
			if t, _ := v.Type(); axis < 0 || axis >= len(t.Dims) {
				return fmt.Errorf("%q: input %q has %d dimensions", at, v.Name, len(t.Dims))
			}
			d.places = append(d.places, place{input: v, axis: axis})
		}
	} else {
		d.places = declaring(m, d.Name)
		if len(d.places) == 0 {
			d.places = usual(m, d.Name)
		}
	}
	if len(d.places) == 0 {
		return errors.New("no input has it; name its axes by NAME=INPUT.AXIS+INPUT.AXIS")
	}
	for _, p := range d.places {
		t, _ := p.input.Type()
		if n := t.Dims[p.axis].Value - p.rest; n >= 0 {
			if d.Size > 0 && d.Size != n {
				return fmt.Errorf("it is %d at %s and %d elsewhere; name its axes by %s=INPUT.AXIS+INPUT.AXIS",
					n, p, d.Size, d.Name)
			}
			d.Size = n
		}
	}
	return nil
}

func input(m *onnx.Model, name string) *onnx.Value {
	for _, v := range m.Graph.Inputs {
		if v.Name == name && v.Const == nil {
			return v
		}
	}
	return nil
}

// declaring lists the axes of inputs declared with a name.
func declaring(m *onnx.Model, name string) (list []place) {
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		for axis, d := range t.Dims {
			if d.Param == name && v.Const == nil {
				list = append(list, place{input: v, axis: axis})
			}
		}
	}
	return list
}

// usual lists the usual axes of a dimension with this name that are declared as numbers. Masks of a decoder with a
// cache have an axis for the past and the new tokens.
func usual(m *onnx.Model, name string) (list []place) {
	found := roles.Find(m)
	past, tokens := cached(found)
	for _, in := range found {
		rank, axis := len(in.Dims), kinds(in)
		if mask := in.Role == roles.Mask && past > 0 && tokens > 0; mask && name != Batch {
			if at := rank - 1; rank >= 2 && in.Dims[at].Value == past+tokens {
				if name == Sequence {
					if rank == 4 && in.Dims[2].Value == tokens {
						list = append(list, place{input: in.Value, axis: 2})
					}
					list = append(list, place{in.Value, at, past, true})
				} else if name == Past {
					list = append(list, place{in.Value, at, tokens, false})
				}
				continue
			}
		}
		switch {
		case name == Batch && rank >= 1:
		case name == Sequence && (rank == 2 || rank == 3):
			axis++
		case name == Past && rank == 4 && len(m.Graph.Inputs) > 1:
			axis = 2
		default:
			continue
		}
		if in.Dims[axis].Value >= 0 {
			list = append(list, place{input: in.Value, axis: axis})
		}
	}
	slices.SortStableFunc(list, func(p, q place) int { return cmp.Compare(p.rest, q.rest) }) // whole axes first
	if len(list) > 0 && list[0].rest > 0 {
		return nil
	}
	return list
}

// cached returns the lengths of the cache and of the new tokens. Each is 0 if it is not a number.
func cached(inputs []*roles.Input) (past, tokens int64) {
	for _, in := range inputs {
		switch {
		case in.Role == roles.Mask:
		case len(in.Dims) == 4 && in.DataType.IsFloat():
			past = max(past, in.Dims[2].Value)
		case len(in.Dims) == 2 && in.DataType.IsInteger() || len(in.Dims) == 3: // ids, positions or embeddings
			tokens = max(tokens, in.Dims[1+kinds(in)].Value)
		}
	}
	return past, max(tokens, 0)
}

// kinds returns the number of axes before the batch: positions of images have one, for time, height and width.
func kinds(in *roles.Input) int {
	if in.Role == roles.Position && len(in.Dims) == 3 {
		return 1
	}
	return 0
}

// Open returns a copy of a model that declares the dimensions by their names. It accepts recorded cases of other sizes.
func Open(m *onnx.Model, dims []*Dim) (*onnx.Model, error) {
	c, err := m.Clone()
	if err != nil {
		return nil, err
	}
	var change edit.Change
	for _, d := range dims {
		for _, p := range d.places {
			open(&change, input(c, p.input.Name), p.axis, onnx.Dim{Value: -1, Param: named(dims, d, p)})
		}
	}
	return c, nil
}

// other returns the dimension of an axis's other rows, or nil if they keep their size.
func (p place) other(dims []*Dim, d *Dim) *Dim {
	for _, x := range dims {
		if p.rest > 0 && x != d && slices.ContainsFunc(x.places, func(q place) bool {
			return q.input.Name == p.input.Name && q.axis == p.axis && q.last != p.last
		}) {
			return x
		}
	}
	return nil
}

// named returns the declared name of an axis.
func named(dims []*Dim, d *Dim, p place) string {
	other := p.other(dims, d)
	switch {
	case p.rest == 0:
		return d.Name
	case other == nil:
		return fmt.Sprintf("%s + %d", d.Name, p.rest)
	case p.last:
		return other.Name + " + " + d.Name
	}
	return d.Name + " + " + other.Name
}

// around returns how many rows of a tensor precede and follow the n rows of the dimension.
func (p place) around(t *reference.Tensor, n int) (before, after int) {
	switch rest := t.Shape[p.axis] - n; {
	case p.rest == 0:
		return 0, 0
	case p.last:
		return rest, 0
	default:
		return 0, rest
	}
}

// rows returns the size of a dimension in inputs.
func (d *Dim) rows(in map[string]*reference.Tensor) int {
	p := d.places[0]
	return in[p.input.Name].Shape[p.axis]
}

// within replaces the n rows of the dimension in a tensor by others.
func (p place) within(t *reference.Tensor, n int, rows ...*reference.Tensor) *reference.Tensor {
	before, after := p.around(t, n)
	size := t.Shape[p.axis]
	list := slices.Concat([]*reference.Tensor{slice(t, p.axis, 0, before)}, rows,
		[]*reference.Tensor{slice(t, p.axis, size-after, size)})
	some := slices.DeleteFunc(slices.Clone(list), func(x *reference.Tensor) bool { return x.Len() == 0 })
	if len(some) == 0 {
		some = list
	}
	return join(some, p.axis)
}

// part returns rows of the dimension, which has n.
func (p place) part(t *reference.Tensor, n, from, to int) *reference.Tensor {
	before, _ := p.around(t, n)
	return slice(t, p.axis, before+from, before+to)
}

// open declares one dimension of an input.
func open(c *edit.Change, v *onnx.Value, axis int, d onnx.Dim) {
	t, _ := v.Type()
	t.Dims = slices.Clone(t.Dims)
	t.Dims[axis] = d
	c.SetType(v, t)
}

// FindAll finds several dimensions (see Find).
func FindAll(m *onnx.Model, list []string) ([]*Dim, error) {
	var dims []*Dim
	for _, text := range list {
		d, err := Find(m, text)
		if err != nil {
			return nil, err
		}
		dims = append(dims, d)
	}
	return dims, nil
}

// Known lists the dimensions that a model names, and the usual ones among those that it declares as numbers.
func Known(m *onnx.Model) (list []*Dim) {
	var names []string
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		for _, d := range t.Dims {
			if d.Param != "" && !slices.Contains(names, d.Param) {
				names = append(names, d.Param)
			}
		}
	}
	for _, name := range []string{Batch, Sequence, Past} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		d := &Dim{Name: name}
		if d.locate(m, "") == nil {
			list = append(list, d)
		}
	}
	return list
}
