// Package dims frees dimensions of inputs whose sizes an exporter baked into constants.
//
// The model runs only at the sizes of its export example. To free a dimension, the package runs the model at other
// sizes in the built-in evaluator. If a node fails, it tries the constants that the node depends on and that may be the
// size: elements of shapes, indices and counts, and the lengths of tables. A choice with which the model runs is a
// reading. Equal numbers prove nothing: every reading must agree with the original in all ways that can be tested at
// its one size (evidence.go). If two remaining readings differ at some size, the dimension is not freed.
package dims

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
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
}

func (p place) String() string { return p.input.Name + "." + strconv.Itoa(p.axis) }

// Names of dimensions that need no declaration: axis 0 of all inputs; axis 1 of inputs with two or three dimensions;
// axis 2 of inputs with four dimensions, after the batch and the heads.
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
			d.places = append(d.places, place{v, axis})
		}
	} else {
		d.places = named(m, d.Name)
		if len(d.places) == 0 {
			d.places = usual(m, d.Name)
		}
	}
	if len(d.places) == 0 {
		return errors.New("no input has it; name its axes by NAME=INPUT.AXIS+INPUT.AXIS")
	}
	for _, p := range d.places {
		t, _ := p.input.Type()
		if n := t.Dims[p.axis].Value; n >= 0 {
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

// named lists the axes of inputs declared with a name.
func named(m *onnx.Model, name string) (list []place) {
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		for axis, d := range t.Dims {
			if d.Param == name && v.Const == nil {
				list = append(list, place{v, axis})
			}
		}
	}
	return list
}

// usual lists the usual axes of a dimension with this name that are declared as numbers.
func usual(m *onnx.Model, name string) (list []place) {
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		rank, axis := len(t.Dims), 0
		switch {
		case name == Batch && rank >= 1:
		case name == Sequence && (rank == 2 || rank == 3):
			axis = 1
		case name == Past && rank == 4 && len(m.Graph.Inputs) > 1:
			axis = 2
		default:
			continue
		}
		if t.Dims[axis].Value >= 0 && v.Const == nil {
			list = append(list, place{v, axis})
		}
	}
	return list
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
			open(&change, input(c, p.input.Name), p.axis, onnx.Dim{Value: -1, Param: d.Name})
		}
	}
	return c, nil
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
