package generate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
)

// steady returns why an input or output changes its shape, or its place, from one token to the next; nil where none
// does, and the decoding steps of a batch can run in memory that stays the same.
func (l *layout) steady() error {
	if !l.cached() {
		return errors.New("the model has no cache")
	}
	for i := range l.caches {
		if c := &l.caches[i]; !c.isBuffer() {
			return fmt.Errorf("cache %q grows with each token: patch the model with --cache static --past-length",
				c.past.name)
		}
	}
	if !l.has(roles.PastLength) {
		return errors.New("the length of the attention mask tells how many tokens there are, and grows with them: " +
			"patch the model with --cache static --past-length")
	}
	if l.byRows() {
		return errors.New("each sequence has a number of tokens of its own: patch the model with --past-length, " +
			"without =rows")
	}
	for _, p := range l.others {
		if p.role == roles.Mask && len(p.dims) != 2 {
			return fmt.Errorf("mask %s has an axis for the new tokens", p)
		}
	}
	return nil
}

// counts reports whether an input is one more for each token.
func (p *port) counts() bool {
	switch p.role {
	case roles.Position, roles.Total, roles.Last, roles.PastLength:
		return true
	}
	return false
}

// steps runs the decoding steps of a batch, of one token of each sequence, in memory that stays where it is: what the
// tokens change is written over. So a step can be a CUDA graph, which is recorded in the first run. onnxruntime frees a
// graph with its session, and each batch records its own.
type steps struct {
	binding *ort.Binding
	fed     []*ort.Value // the ids, then the inputs that count
	ports   []port       // theirs
	logits  *ort.Value
	feeder  *feeder // nil where the host writes what is fed
	past    int     // how many tokens are in the cache by what was fed last, -1 before
}

// newSteps binds inputs and outputs for the next token of each sequence, with logits of these dimensions.
func (b *batch) newSteps(logits []int64) (_ *steps, err error) {
	g := b.g
	s := &steps{past: -1}
	if s.binding, err = g.session.Bind(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if g.session.RecordsGraphs() {
		if err := s.binding.Configure(graphID, strconv.FormatInt(g.graphs.Add(1), 10)); err != nil {
			return nil, err
		}
	}
	w := b.window(b.alike(), 1, 1)
	for row := range w.end {
		w.end[row] = w.room // no token reads further than the cache is filled
	}
	s.ports = []port{g.layout.ids}
	for _, p := range g.layout.others {
		if p.counts() {
			s.ports = append(s.ports, p)
			continue
		}
		t, err := w.tensor(p)
		if err == nil {
			err = s.binding.Input(t)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, p := range s.ports {
		t, err := w.tensor(p)
		if err != nil {
			return nil, err
		}
		v, err := g.session.Allocate(p.name, t.Dims)
		if err != nil {
			return nil, err
		}
		s.fed = append(s.fed, v)
		if err := s.binding.InputValue(p.name, v); err != nil {
			return nil, err
		}
	}
	for i := range g.layout.caches {
		c := &g.layout.caches[i]
		v := b.held[c.past.name]
		if err := errors.Join(s.binding.InputValue(c.past.name, v), s.binding.OutputValue(c.present, v)); err != nil {
			return nil, err
		}
	}
	if s.logits, err = g.session.Allocate(g.layout.logits.name, logits); err != nil {
		return nil, err
	}
	return s, s.binding.OutputValue(g.layout.logits.name, s.logits)
}

// graphID is the entry of a run's options that numbers CUDA graphs; notRecorded is that of runs of which none is made.
const graphID, notRecorded = "gpu_graph_id", "-1"

// step runs the model on the one token of each sequence that it has not seen.
func (b *batch) step(ctx context.Context) error {
	s := b.steps
	if s.past != b.past { // else the feeder has made what is fed
		w := b.window(b.alike(), 1, 1)
		for i, p := range s.ports {
			t, err := w.tensor(p)
			if err == nil {
				err = s.fed[i].Write(t)
			}
			if err != nil {
				return err
			}
		}
	}
	s.past = -1
	if err := s.binding.Run(ctx); err != nil {
		return err
	}
	b.fresh, b.starts, b.chosen = 1, b.alike(), nil
	b.buffers.Steps++
	if !b.greedy || !b.g.feeds {
		return errors.Join(b.logits.close(), b.logits.copy(s.logits))
	}
	if s.feeder == nil {
		var err error
		if s.feeder, err = b.g.newFeeder(s); err != nil {
			return err
		}
	}
	var err error
	if b.chosen, err = s.feeder.run(ctx); err != nil {
		return err
	}
	b.buffers.Fed = true
	s.past = b.past + 1
	return nil
}

// close frees what is bound, but for the caches.
func (s *steps) close() error {
	var errs []error
	if s.feeder != nil {
		errs = append(errs, s.feeder.close())
	}
	if s.binding != nil {
		errs = append(errs, s.binding.Close())
	}
	for _, v := range append(slices.Clone(s.fed), s.logits) {
		if v != nil {
			errs = append(errs, v.Close())
		}
	}
	return errors.Join(errs...)
}

// feeder chooses the likeliest token of each sequence where the logits lie, and writes what the next step is fed.
type feeder struct {
	session *ort.Session
	binding *ort.Binding
}

// The outputs of a feeder: two for the host, and the ids.
const chosenOutput, greatestOutput, idsOutput = "chosen", "greatest", "ids"

// newFeeder makes a feeder for steps. What counts is read and written in one place.
func (g *Generator) newFeeder(s *steps) (_ *feeder, err error) {
	f := &feeder{}
	if f.session, err = g.session.Beside(feederModel(s)); err != nil {
		return nil, fmt.Errorf("cannot open the model that chooses tokens: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.binding, err = f.session.Bind(); err != nil {
		return nil, err
	}
	err = errors.Join(f.binding.HostOutput(chosenOutput), f.binding.HostOutput(greatestOutput),
		f.binding.InputValue(s.logits.Name, s.logits), f.binding.OutputValue(idsOutput, s.fed[0]))
	for i, p := range s.ports[1:] {
		err = errors.Join(err, f.binding.InputValue(p.name, s.fed[1+i]),
			f.binding.OutputValue(nextName(p), s.fed[1+i]))
	}
	return f, err
}

// nextName is what a feeder calls its output for an input that counts.
func nextName(p port) string { return p.name + ".next" }

// run returns the ids that were chosen.
func (f *feeder) run(ctx context.Context) (ids []int64, err error) {
	if err := errors.Join(f.binding.HostOutput(chosenOutput), f.binding.HostOutput(greatestOutput)); err != nil {
		return nil, err
	}
	if err := f.binding.Run(ctx); err != nil {
		return nil, err
	}
	outputs, err := f.binding.Outputs()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, v := range outputs {
			err = errors.Join(err, v.Close())
		}
	}()
	chosen, err := outputs[0].Bytes()
	if err != nil {
		return nil, err
	}
	greatest, err := outputs[1].Bytes()
	if err != nil {
		return nil, err
	}
	for b := range slices.Chunk(chosen, 8) {
		ids = append(ids, int64(binary.LittleEndian.Uint64(b)))
		x := math.Float32frombits(binary.LittleEndian.Uint32(greatest))
		if greatest = greatest[4:]; x != x || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("logits of sequence %d: the greatest, of token %d, is %v", len(ids)-1,
				ids[len(ids)-1], x)
		}
	}
	return ids, nil
}

func (f *feeder) close() error {
	var err error
	if f.binding != nil {
		err = f.binding.Close()
	}
	return errors.Join(err, f.session.Close())
}

// feederModel makes the model of a feeder: of equal logits it takes the lowest id, as Sampler does.
func feederModel(s *steps) *onnx.Model {
	m := onnx.New(8, 17)
	g := m.Graph
	g.Name = "feeder"
	tensor := func(dt onnx.DataType, dims ...int64) onnx.Type {
		t := onnx.Type{DataType: dt, HasShape: true}
		for _, d := range dims {
			t.Dims = append(t.Dims, onnx.Dim{Value: d})
		}
		return t
	}
	node := func(op, name string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
		v := g.NewValue(name)
		g.AddNode(op, inputs, []*onnx.Value{v}, attrs...)
		return v
	}
	cast := func(name string, v *onnx.Value, to onnx.DataType) *onnx.Value {
		return node("Cast", name, []*onnx.Value{v}, onnx.IntAttr("to", int64(to)))
	}
	output := func(v *onnx.Value, t onnx.Type) {
		v.SetType(t)
		g.AddOutput(v)
	}
	dims, ids := s.logits.Dims, s.fed[0]
	vocabulary := dims[len(dims)-1]
	rows := (&onnx.Tensor{Dims: ids.Dims}).Len()
	x := g.AddInput(s.logits.Name, tensor(s.logits.DataType, dims...))
	if s.logits.DataType != onnx.Float {
		x = cast("scores", x, onnx.Float)
	}
	byRows := g.AddInitializer(onnx.NewInt64s("by_rows", []int64{rows, vocabulary}))
	x = node("Reshape", "rows", []*onnx.Value{x, byRows})
	axis := onnx.IntAttr("axis", 1)
	id := node("ArgMax", chosenOutput, []*onnx.Value{x}, axis)
	output(id, tensor(onnx.Int64, rows, 1))
	output(node("GatherElements", greatestOutput, []*onnx.Value{x, id}, axis), tensor(onnx.Float, rows, 1))
	if ids.DataType != onnx.Int64 {
		id = cast("typed", id, ids.DataType)
	}
	shape := g.AddInitializer(onnx.NewInt64s("ids_shape", ids.Dims))
	output(node("Reshape", idsOutput, []*onnx.Value{id, shape}), tensor(ids.DataType, ids.Dims...))
	for i, p := range s.ports[1:] {
		t := tensor(s.fed[1+i].DataType, s.fed[1+i].Dims...)
		one := cast(p.name+".one", g.AddInitializer(onnx.NewInt64s(p.name+".int_one", []int64{1})), t.DataType)
		v := g.AddInput(p.name, t)
		if len(t.Dims) == 0 {
			one = node("Squeeze", p.name+".scalar", []*onnx.Value{one})
		}
		output(node("Add", nextName(p), []*onnx.Value{v, one}), t)
	}
	return m
}
