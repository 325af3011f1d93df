// Package streams makes models compute in float16 without overflow.
//
// A value may hold a power of two times its number if everything that depends on it can compensate: a norm divides by
// the root of its mean square, which grows equally; the constant factor of a product can take the inverse. So each
// value has an exponent of 2, and each op a law (an equation between exponents of inputs and outputs). Any solution of
// all equations is the same function, computed with other magnitudes. Constants, and the epsilons of norms, absorb the
// rest. Powers of two change no digit, so nothing is rounded unless it leaves the range of its type.
//
// A value that overflows on recorded or random inputs gets a negative exponent. If its exponent is fixed, because it
// leaves the model or meets an op without a law, the nodes around it compute in float32.
package streams

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Headroom is the default factor by which values may exceed the measured ones.
const Headroom = 4

// mostElements bounds the constants of a model that is evaluated on random inputs.
const mostElements = 1 << 26

// Options configure Prepare.
type Options struct {
	// Inputs returns the inputs on which magnitudes are measured, for the model before conversion; nil means random
	// inputs.
	Inputs func(*onnx.Model) ([][]*onnx.Tensor, error)
	// Headroom is the factor by which values may exceed the measured ones; 0 means the constant Headroom.
	Headroom float64
	// Strict makes it an error if anything stays in float32.
	Strict bool
	// Providers are the providers of convert.Precision.
	Providers []string
}

// A StaysError lists, with Options.Strict, the values that would have to stay in float32.
type StaysError struct{ Stays []Stay }

func (e *StaysError) Error() string {
	x := e.Stays[0]
	return fmt.Sprintf("%q at node %q (%s) has magnitudes up to %.4g and cannot be scaled: %s (%s; without --strict "+
		"they stay in float32)", x.Value, x.Node, x.Op, float64(x.Greatest), x.Reason,
		english.Counted(len(e.Stays), "such value"))
}

// Safe is a model prepared for the conversion to float16.
type Safe struct {
	Report *SafeReport
	// From is the original type of the model.
	From onnx.DataType
	// Wide are the nodes that must compute in float32.
	Wide map[*onnx.Node]bool

	inputs    [][]*onnx.Tensor
	outputs   [][]*reference.Tensor // of the model in float32
	finite    map[place]bool        // values of the float32 model without infinities
	original  *onnx.Model
	plain     *onnx.Model // in float16, without scales
	providers []string
}

// Prepare converts the model to float32, scales values that would overflow in float16, and lists the nodes that must
// not be converted. It proves that the scaled model computes the same without rounding.
func Prepare(run *pass.Run, o Options) (*Safe, error) {
	m := run.Model
	var recorded [][]*onnx.Tensor
	if o.Inputs != nil {
		var err error
		if recorded, err = o.Inputs(m); err != nil {
			return nil, err
		}
	}
	widened, err := convert.Precision(m, onnx.Float)
	if err != nil {
		return nil, err
	}
	if o.Headroom == 0 {
		o.Headroom = Headroom
	}
	s := &Safe{From: widened.From, inputs: recorded, providers: o.Providers,
		Report: &SafeReport{Recorded: len(recorded) > 0, Headroom: o.Headroom, Scaled: []Scaled{}, Stays: []Stay{}}}
	if !s.Report.Recorded {
		if s.inputs, err = randomInputs(m); err != nil {
			return nil, err
		}
	}
	if s.original, err = m.Clone(); err != nil {
		return nil, err
	}
	if s.plain, err = m.Clone(); err != nil {
		return nil, err
	}
	if _, err := convert.Precision(s.plain, onnx.Float16, o.Providers...); err != nil {
		return nil, err
	}
	c := &chooser{builder: newBuilder(m), headroom: o.Headroom, half: halfValues(m, s.plain)}
	c.ranges = newRanges(m, c.isFloat)
	if err := s.measure(m, c.ranges); err != nil {
		return nil, fmt.Errorf("the ranges of the model cannot be measured: %w", err)
	}
	s.Report.Inputs = len(s.inputs)
	s.finite = c.ranges.finite(numbers(m))
	if err := c.choose(); err != nil {
		return nil, err
	}
	bridges := []*bridge(nil)
	if c, bridges, err = c.bridged(m); err != nil {
		return nil, err
	}
	if err := s.cross(c, bridges); err != nil {
		return nil, err
	}
	if err := s.scale(run, c); err != nil {
		return nil, err
	}
	s.Wide, s.Report.Stays = c.wide()
	if err := ownConstants(s.Wide); err != nil {
		return nil, err
	}
	if o.Strict && len(s.Report.Stays) > 0 {
		return nil, &StaysError{s.Report.Stays}
	}
	return s, nil
}

// measure runs the model in float32 on the inputs. It drops random inputs on which the model fails: some exports run
// only at one size, or with one routing.
func (s *Safe) measure(m *onnx.Model, r *ranges) error {
	var kept [][]*onnx.Tensor
	var failed error
	for i, c := range s.inputs {
		out, err := r.measure(m, c)
		switch {
		case err == nil:
			kept, s.outputs = append(kept, c), append(s.outputs, out)
		case s.Report.Recorded:
			return fmt.Errorf("recorded inputs %d: %w", i, err)
		default:
			failed = fmt.Errorf("random inputs %d: %w; pass recorded inputs that the model runs on", i, err)
		}
	}
	if s.inputs = kept; len(kept) == 0 {
		return failed
	}
	return nil
}

// cross reports the bridges, and removes unneeded ones.
func (s *Safe) cross(c *chooser, bridges []*bridge) error {
	var change edit.Change
	for _, b := range bridges {
		e := c.exponent(c.in(b.product, 1))
		if e == 0 {
			b.remove(&change)
			continue
		}
		s.Report.Bridges = append(s.Report.Bridges, Bridge{Value: b.from.Name, Node: b.product.Label(), Exponent: e})
	}
	return change.Finish()
}

// scale writes the exponents into the model, and proves that it still computes the same.
func (s *Safe) scale(run *pass.Run, c *chooser) error {
	r := s.Report
	for _, i := range c.items {
		if !i.half || i.value.Producer != i.node {
			continue
		}
		if i.measured > float64(r.Greatest) {
			r.Greatest, r.GreatestOf = golden.Number(i.measured), i.value.Name
		}
		if i.greatest > greatestHalf {
			r.Overflowing++
		}
	}
	w := &scaler{graph: run.Model.Graph, half: c.half}
	w.edit.Undoable = true
	if err := w.write(c.builder, c.exponent); err != nil {
		return err
	}
	if w.count == 0 {
		return nil
	}
	prover := run.NewProver()
	what := "the scaled model"
	claim := &prove.Claim{What: what, Exact: prove.Structural, Before: prove.Model(s.original),
		After: prove.Model(run.Model), Trials: s.trials}
	if err := prover.Prove(claim); err != nil {
		return fmt.Errorf("nothing was changed, because the scales are not proven: %w", err)
	}
	r.Check = prover.Checked()
	r.Constants, r.Epsilons, r.Lost = w.count, w.epsilons, w.lost
	r.Scaled = c.groups()
	return nil
}

// trials yields the inputs on which magnitudes were measured.
func (s *Safe) trials(yield func(prove.Trial, error) bool) {
	for i, c := range s.inputs {
		t := prove.Trial{Name: fmt.Sprintf("inputs %d", i)}
		given, err := asDeclared(s.original, c)
		for _, v := range s.original.Graph.Inputs {
			t.Inputs = append(t.Inputs, given[v.Name])
		}
		if !yield(t, err) {
			return
		}
	}
}

// groups lists the scaled values, grouped by the exponent that they depend on.
func (c *chooser) groups() []Scaled {
	list := []Scaled{}
	for _, x := range sortedKeys(c.chosen) {
		g := Scaled{}
		for _, i := range c.on[x] {
			e := c.exponent(i.x)
			if i.value.Producer != i.node || e == 0 || g.Values > 0 && e != g.Exponent {
				continue
			}
			if g.Values++; g.Values == 1 {
				g.Value, g.Exponent = i.value.Name, e
			}
			if i.half && i.measured > float64(g.Greatest) {
				g.Greatest, g.GreatestOf = golden.Number(i.measured), i.value.Name
			}
		}
		if g.Values > 0 {
			list = append(list, g)
		}
	}
	return list
}

func toHalf(u onnx.Use) bool {
	return u.Node.Is("Cast") && u.Node.AttrInt("to", 0) == int64(onnx.Float16)
}

// halfValues finds, by name, the values of a model that are float16 in the converted one, or are cast to it.
func halfValues(m, converted *onnx.Model) map[*onnx.Value]bool {
	facts, half := infer.Analyze(converted), map[*onnx.Value]bool{}
	graphs, list := numbers(m), converted.Graphs()
	look := func(v *onnx.Value) {
		if v == nil {
			return
		}
		w := list[graphs[v.Graph]].Value(v.Name)
		half[v] = w != nil && (facts.DataType(w) == onnx.Float16 || slices.ContainsFunc(w.Uses(), toHalf) ||
			w.Const != nil && w.Const.DataType == onnx.Float16)
	}
	for g := range graphs {
		for _, v := range g.Initializers() {
			look(v)
		}
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				look(v)
			}
		}
	}
	return half
}

// randomInputs returns the inputs for measurements if there are no recorded ones.
func randomInputs(m *onnx.Model) (list [][]*onnx.Tensor, err error) {
	if size(m) > mostElements {
		return nil, fmt.Errorf("the model has more than %d weights: pass recorded inputs to measure its ranges",
			mostElements)
	}
	for i, dims := range []map[string]int64{nil, {"batch": 1, "sequence": 16}, {"batch": 1, "sequence": 1}} {
		inputs, err := golden.RandomInputs(m, uint64(i+1), dims)
		if err != nil && i > 0 {
			continue // it has no such dimension
		}
		if err != nil {
			return nil, err
		}
		list = append(list, inputs)
		if other := opposite(inputs); other != nil {
			list = append(list, other)
		}
	}
	return list, nil
}

// opposite returns inputs with the opposite booleans, which may choose other branches, or nil if there are no booleans.
func opposite(inputs []*onnx.Tensor) (other []*onnx.Tensor) {
	for i, t := range inputs {
		if raw, err := t.Bytes(); err == nil && t.DataType == onnx.Bool && t.Len() == 1 {
			if other == nil {
				other = slices.Clone(inputs)
			}
			other[i], _ = onnx.NewTensor(t.Name, onnx.Bool, t.Dims, []byte{1 - raw[0]})
		}
	}
	return other
}

func size(m *onnx.Model) (n int64) {
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			n += v.Const.Len()
		}
	}
	return n
}
