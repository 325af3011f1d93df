package generate

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
)

// remembered is the number of recent tokens per sequence that a model which chooses keeps. It bounds the steps in
// flight.
const remembered = 16

// The names that a model which chooses adds to its inputs and outputs. A token is remembered as -1 if its logit is not
// a finite number.
const (
	chooserPrefix = "generate."
	rememberedIn  = chooserPrefix + "past_tokens" // int64 [remembered, rows], the last one chosen at the end
	rememberedOut = chooserPrefix + "tokens"
	nextIDs       = chooserPrefix + "next_ids"
)

// nextName returns the name of the output that holds the next step's value of an input that counts.
func nextName(p port) string { return chooserPrefix + "next." + p.name }

// OpenSession opens the model at m.Path for generation. If the provider is CUDA, CheckSteady passes and the model has
// no states, it opens a model that chooses the likeliest tokens itself and writes the inputs of the next step. Then a
// CUDA graph is a whole step, and several steps can be queued before the host reads the first token.
func OpenSession(m *onnx.Model, options ...ort.Option) (*ort.Session, error) {
	if ort.HasProvider("CUDA", options...) && CheckSteady(m) == nil {
		if b, err := choosing(m.Path); err == nil { // else the host chooses
			return ort.OpenBytes(b, m.Path, options...)
		}
	}
	return ort.Open(m.Path, options...)
}

// choosing returns the model at path with the nodes of addChooser.
func choosing(path string) ([]byte, error) {
	m, err := onnx.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := addChooser(m); err != nil {
		return nil, err
	}
	return onnx.Marshal(m)
}

// addChooser adds the nodes that choose tokens to a model whose steps are steady. Among equal logits they take the
// lowest id, as Sampler does.
//
// The new outputs are bound to the buffers that the inputs are read from. So each is computed from the chosen token: by
// then every input that the logits depend on has been read.
func addChooser(m *onnx.Model) error {
	l, err := newLayout(m)
	if err != nil {
		return err
	}
	if l.hasStates() { // onnxruntime repeats a step to record it, and a repeated step would go on from a later token
		return fmt.Errorf("%s: cannot choose tokens in the graph: the model has states", m.Path)
	}
	c := &chooser{g: m.Graph}
	x := c.g.Value(l.logits.name)
	rank, idRank := len(l.logits.dims), len(l.ids.dims)
	width := int64(-1)
	if rank > 0 {
		width = l.logits.dims[rank-1].Value
	}
	if x == nil || width < 1 || rank != idRank && rank != idRank+1 {
		return fmt.Errorf("%s: cannot choose tokens in the graph: logits %s of ids %s are not supported", m.Path,
			l.logits, l.ids)
	}
	if axis := rank - 2; rank > idRank && l.logits.dims[axis].Value != 1 { // keep only the last position of a prompt
		x = c.node("Slice", x, c.numbers(-1), c.numbers(math.MaxInt64), c.numbers(int64(axis)))
	}
	if l.logits.dataType != onnx.Float {
		x = c.cast(x, onnx.Float)
	}
	name := nextIDs
	if l.ids.dataType != onnx.Int64 || idRank != 2 {
		name = ""
	}
	at, greatest := c.choose(x, width, name)
	ids := at
	if name == "" {
		if idRank == 1 {
			ids = c.node("Reshape", ids, c.numbers(-1))
		}
		ids = c.named(nextIDs, "Cast", []*onnx.Value{ids}, onnx.IntAttr("to", int64(l.ids.dataType)))
	}
	c.output(ids, l.ids)

	zero := c.g.AddInitializer(onnx.NewFloat32s(chooserPrefix+"zero", nil, []float32{0}))
	isNumber := c.node("Equal", c.node("Sub", greatest, greatest), zero)
	known := c.node("Reshape", c.node("Where", isNumber, at, c.numbers(-1)), c.numbers(1, -1))

	past := c.g.AddInput(rememberedIn, onnx.Type{DataType: onnx.Int64, HasShape: true,
		Dims: []onnx.Dim{{Value: remembered}, {Value: -1, Param: chooserPrefix + "rows"}}})
	later := c.node("Slice", past, c.numbers(1), c.numbers(math.MaxInt64), c.numbers(0))
	all := c.named(rememberedOut, "Concat", []*onnx.Value{later, known}, onnx.IntAttr("axis", 0))
	c.output(all, port{dataType: onnx.Int64, dims: []onnx.Dim{{Value: remembered}, {Value: -1}}})

	each := c.node("Reshape", c.cast(isNumber, onnx.Int64), c.numbers(-1)) // ones, or the run ends with an error
	for _, p := range l.others {
		if p.counts() {
			c.count(p, each)
		}
	}
	if c.taken != "" {
		return fmt.Errorf("%s: cannot choose tokens in the graph: the model already has a value %q", m.Path, c.taken)
	}
	return nil
}

// choose finds the greatest logit of each row. It returns its index, named name unless that is empty, and its value,
// both [rows, 1].
func (c *chooser) choose(x *onnx.Value, width int64, name string) (at, greatest *onnx.Value) {
	x = c.node("Reshape", x, c.numbers(-1, width))
	axis := onnx.IntAttr("axis", 1)
	at = c.named(name, "ArgMax", []*onnx.Value{x}, axis)
	return at, c.named("", "GatherElements", []*onnx.Value{x, at}, axis)
}

type chooser struct {
	g     *onnx.Graph
	taken string // a name that the model already uses
}

func (c *chooser) node(op string, inputs ...*onnx.Value) *onnx.Value { return c.named("", op, inputs) }

// named adds a node whose output has this name, or any name if it is empty.
func (c *chooser) named(name, op string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	hint := name
	if hint == "" {
		hint = chooserPrefix + op
	}
	v := c.g.NewValue(hint)
	if name != "" && v.Name != name {
		c.taken = name
	}
	n := c.g.AddNode(op, inputs, []*onnx.Value{v}, attrs...)
	n.Name = v.Name
	return v
}

func (c *chooser) numbers(list ...int64) *onnx.Value {
	return c.g.AddInitializer(onnx.NewInt64s(chooserPrefix+"numbers", list))
}

func (c *chooser) cast(v *onnx.Value, to onnx.DataType) *onnx.Value {
	return c.named("", "Cast", []*onnx.Value{v}, onnx.IntAttr("to", int64(to)))
}

// output makes a value an output of the port's type. It leaves the dimensions open, because a prompt has another shape.
func (c *chooser) output(v *onnx.Value, p port) {
	t := onnx.Type{DataType: p.dataType, HasShape: true}
	for range p.dims {
		t.Dims = append(t.Dims, onnx.Dim{Value: -1})
	}
	v.SetType(t)
	c.g.AddOutput(v)
}

// count adds one to an input that counts. each has a one per row.
func (c *chooser) count(p port, each *onnx.Value) {
	one := each
	switch rank := len(p.dims); {
	case rank >= 2 && p.dims[rank-2].Value != 1:
		one = c.node("Reshape", each, c.numbers(-1, 1))
	case rank != 1 || p.role == roles.Position || p.dims[0].Value == 1:
		one = c.node("Gather", each, c.g.AddInitializer(onnx.NewInt64s(chooserPrefix+"first", []int64{0})))
	}
	if len(p.dims) == 0 {
		one = c.node("Squeeze", one)
	}
	if p.dataType != onnx.Int64 {
		one = c.cast(one, p.dataType)
	}
	c.output(c.named(nextName(p), "Add", []*onnx.Value{c.g.Value(p.name), one}), p)
}
