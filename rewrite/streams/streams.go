// Package streams has models compute in float16 without overflow.
//
// A value may hold a power of two times its number if all that depends on it can make up for it: a norm divides by the
// root of its mean square, which grows alike; a product with a constant has the constant take the inverse. So each
// value has an exponent of 2, each op a law (an equation between exponents of inputs and outputs), and any solution of
// all equations is the same function, computed with other magnitudes. Constants, and the epsilons of norms, take up
// what is left. Powers of two change no digit, so nothing is rounded unless it leaves the range of its type.
//
// What overflows on recorded or random inputs gets an exponent below 0. If its exponent is fixed, because it leaves the
// model or meets an op without a law, the nodes around it compute in float32.
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

// Headroom is the factor by which values may be greater than those that were measured, unless Options say another.
const Headroom = 4

// mostElements bounds the constants of a model that is evaluated on random inputs.
const mostElements = 1 << 26

// Options say how a model is made safe.
type Options struct {
	// Inputs returns what magnitudes are measured on for a model, before it is converted; nil for random inputs.
	Inputs func(*onnx.Model) ([][]*onnx.Tensor, error)
	// Headroom is the factor by which values may be greater than measured; 0 for the constant Headroom.
	Headroom float64
	// Strict makes it an error if something stays in float32.
	Strict bool
	// Providers are those of convert.Precision.
	Providers []string
}

// StaysError says, with Options.Strict, what would have to stay in float32.
type StaysError struct{ Stays []Stay }

func (e *StaysError) Error() string {
	x := e.Stays[0]
	return fmt.Sprintf("%q at node %q (%s) has magnitudes up to %.4g and cannot be scaled: %s (%s; without --strict "+
		"they stay in float32)", x.Value, x.Node, x.Op, float64(x.Greatest), x.Reason,
		english.Counted(len(e.Stays), "such value"))
}

// Safe is a model that was prepared for the conversion to float16.
type Safe struct {
	Report *SafeReport
	// From is the type that the model had.
	From onnx.DataType
	// Wide are the nodes that have to compute in float32.
	Wide map[*onnx.Node]bool

	inputs    [][]*onnx.Tensor
	outputs   [][]*reference.Tensor // of the model in float32
	finite    map[string]bool       // values of the model in float32 without infinities
	original  *onnx.Model
	plain     *onnx.Model // in float16, without scales
	providers []string
}

// Prepare takes the model to float32, scales what would overflow in float16, and names the nodes that must not be
// converted. Scales are proven: without roundings the model computes what it did.
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
	s.finite = c.ranges.finite()
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

// measure runs the model in float32 on the inputs. Random ones that it does not run on are left out: some exports run
// at one size, or with one routing.
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
			failed = fmt.Errorf("random inputs %d: %w; give recorded ones that it runs on", i, err)
		}
	}
	if s.inputs = kept; len(kept) == 0 {
		return failed
	}
	return nil
}

// cross reports the bridges, and takes out those that are not needed.
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
	w := &scaler{graph: run.Model.Graph}
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
		return fmt.Errorf("the scales are not proven, and nothing is changed: %w", err)
	}
	r.Check = prover.Checked()
	r.Constants, r.Epsilons, r.Lost = w.count, w.epsilons, w.lost
	r.Scaled = c.groups()
	return nil
}

// trials are the inputs that magnitudes were measured on.
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

// groups lists the values that were scaled, those that depend on one exponent together.
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

// halfValues finds, by their names, the values of a model that are of float16 in the converted one, or are cast to it.
func halfValues(m, converted *onnx.Model) map[*onnx.Value]bool {
	facts, half := infer.Analyze(converted), map[*onnx.Value]bool{}
	look := func(v *onnx.Value) {
		if v == nil {
			return
		}
		w := converted.Graph.Value(v.Name)
		half[v] = w != nil && (facts.DataType(w) == onnx.Float16 || slices.ContainsFunc(w.Uses(), toHalf) ||
			w.Const != nil && w.Const.DataType == onnx.Float16)
	}
	for _, v := range m.Graph.Initializers() {
		look(v)
	}
	for _, n := range m.Graph.Nodes {
		for _, v := range n.Outputs {
			look(v)
		}
	}
	return half
}

// randomInputs returns what a model is measured on if nothing was recorded.
func randomInputs(m *onnx.Model) (list [][]*onnx.Tensor, err error) {
	if size(m) > mostElements {
		return nil, fmt.Errorf("the model has more than %d weights: give recorded inputs to measure its ranges on",
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
	}
	return list, nil
}

func size(m *onnx.Model) (n int64) {
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			n += v.Const.Len()
		}
	}
	return n
}
