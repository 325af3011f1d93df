package sites

import (
	"errors"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Checker compares the nodes of matches with the definitions of their ops, both by reference evaluation.
//
// Two passes: in the structural one nothing is rounded, so that only a different function differs; in the typed one
// everything is rounded to the graph's types, so that a loss of precision shows.
type Checker struct {
	run *pass.Run
	// Target and Runtime are those of the nodes that replace matches, nil for fused ops.
	Target  *target.Target
	Runtime Runtime
	// Drawn has random numbers stand for weights that are not there.
	Drawn bool
	// RoutedOnly leaves out all sites except experts.
	RoutedOnly bool

	outcomes  map[string]*outcome // of distinct sites
	originals map[bool]*reference.Evaluator
	// sized are the facts for certain numbers of tokens, by the greatest of these.
	sized map[int64]*infer.Facts
}

// world is one assignment of numbers to the symbolic dimensions.
type world struct {
	facts *infer.Facts
	n     int
}

// MaxSites bounds the distinct sites of a model. Real models have a few tens. Opening a kernel alone takes some
// milliseconds, and a hostile graph has a site for every few nodes.
const MaxSites = 400

type outcome struct {
	report prove.CheckReport
	err    error // the reason to refuse
}

// NewChecker returns a checker of the sites of a run, for fused ops.
func NewChecker(r *pass.Run) *Checker {
	return &Checker{run: r, outcomes: map[string]*outcome{}, originals: map[bool]*reference.Evaluator{},
		sized: map[int64]*infer.Facts{}}
}

// Check returns the figures of a site, and an error if it must be refused.
func (k *Checker) Check(c *Site) (*prove.CheckReport, error) {
	if k.run.Off || k.RoutedOnly && c.Match.Op != fused.MoEName {
		return nil, nil
	}
	worlds := []int{0}
	if c.slice.varying { // what depends on the dimensions must hold for other dimensions too
		worlds = append(worlds, 1)
	}
	if k.run.Every {
		o := k.outcome(c, worlds)
		return &o.report, o.err
	}
	key := c.Match.Pattern + "\n" + onnx.GraphKey(c.Match.Replacement) + c.slice.key(k.run.Facts, worlds)
	o, done := k.outcomes[key]
	switch {
	case done:
	case len(k.outcomes) == MaxSites:
		return nil, reason.New(reason.Limit, nil, "cannot be checked: the model has more than %d sites that differ in "+
			"more than their weights, and the check ends there; --verify all checks each", MaxSites)
	default:
		o = k.outcome(c, worlds)
		k.outcomes[key] = o
	}
	r := o.report
	r.Shared = done
	return &r, o.err
}

func (k *Checker) outcome(c *Site, worlds []int) *outcome {
	c.narrowest = coarsest(c, k.run.Facts)
	o := k.evaluate(c, worlds)
	if o.err == nil && o.report.Kernel != nil && !o.report.KernelTold {
		o.err = reason.New(reason.Unchecked, nil, "cannot be checked: other roundings alone change what mojo.%s "+
			"computes on all inputs that were tried", c.Match.Op)
	}
	return o
}

func (k *Checker) evaluate(c *Site, worlds []int) *outcome {
	if r := c.routing; r != nil {
		return k.runRouted(c, r)
	}
	o := &outcome{}
	if c.Match.Domain == fused.Domain && c.Match.Op == fused.AttentionName {
		o.err = k.runAttention(c, worlds, &o.report)
		return o
	}
	for _, n := range worlds {
		w := world{k.run.Facts, n}
		shapes, err := k.shapes(c, w)
		if err != nil {
			o.err = err
			return o
		}
		if slices.ContainsFunc(shapes, func(s []int64) bool { return prove.Elements([][]int64{s}) == 0 }) {
			o.err = reason.New(reason.Unchecked, nil, "cannot be checked: an input holds no elements")
			return o
		}
		n := prove.Elements(shapes)
		if n > shrinkElements && !c.slice.varying {
			smaller := *o
			err := k.compare(c, w, shrink(shapes), c.kinds(prove.Kinds), &smaller.report)
			if !errors.As(err, new(*prove.EvalError)) {
				*o = smaller
				o.err = err
				continue
			}
		}
		tried := prove.Kinds
		if n > manyElements {
			tried = prove.FewKinds
		}
		if n > maxElements {
			o.err = reason.New(reason.Unchecked, nil, "cannot be checked: its inputs hold %d elements",
				n).With("elements", n)
			return o
		}
		if o.err = k.compare(c, w, shapes, c.kinds(tried), &o.report); o.err != nil {
			return o
		}
	}
	return o
}

// compare evaluates both sides on every kind of inputs and gathers the figures.
func (k *Checker) compare(c *Site, w world, shapes [][]int64, tried []prove.Kind, r *prove.CheckReport) error {
	typedCases := 0
	for _, exact := range []bool{true, false} {
		for _, kd := range tried {
			inputs, err := k.inputs(c, kd, shapes, exact)
			if err != nil {
				return &prove.EvalError{Err: err}
			}
			counted, err := k.try(c, w, kd, inputs, exact, r)
			if err != nil {
				return err
			}
			if counted && !exact {
				typedCases++
			}
		}
	}
	return overflown(typedCases)
}

// overflown errs where no case was left to compare with roundings.
func overflown(typedCases int) error {
	if typedCases == 0 {
		return &prove.EvalError{Err: errors.New("the matched nodes overflow on all inputs that were tried")}
	}
	return nil
}

// try evaluates both sides on the same inputs and compares them; counted says that this was a case.
func (k *Checker) try(c *Site, w world, kd prove.Kind, inputs []*reference.Tensor, exact bool, r *prove.CheckReport) (
	counted bool, err error) {
	want, finite, err := k.original(c, w, inputs, exact)
	if err != nil {
		return false, &prove.EvalError{Err: err}
	}
	got, values, err := k.replacement(c, inputs, exact)
	switch {
	case !exact && !finite: // the original overflows on the way: what it gives then means nothing
		if err == nil {
			c.overflows(kd.Name, want, got, r)
		}
		return false, nil
	case err != nil:
		return false, &prove.EvalError{Err: err}
	}
	r.Cases++
	names := onnx.Names(c.Match.Outputs)
	figures := *r
	if err := compareOutputs(c, names, want, got, exact, r); err != nil {
		if !exact && kd.Name == prove.Tiny.Name && c.withoutEpsilon() { // without roundings both are the same function
			*r = figures
			r.Cases--
			r.OverflowsOn(kd.Name)
			return false, nil
		}
		return false, differs(kd.Name+" inputs", exact, err)
	}
	r.NumbersForNone(kd.Name, want, got)
	if exact {
		return true, nil
	}
	if err := k.inRuntime(c, w, kd.Name, inputs, want); err != nil {
		return false, err
	}
	for _, call := range c.Calls {
		if err := k.kernel(c, call, kd, values, r, prove.SettleRounded(call.Op, call.Site)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// inputs makes the inputs of one case, one tensor for each input of the match. Constant inputs keep their elements in
// the typed pass; the structural pass gives them random ones, because the rewrite has to hold for any weights.
func (k *Checker) inputs(c *Site, kd prove.Kind, shapes [][]int64, exact bool) ([]*reference.Tensor, error) {
	ts := make([]*reference.Tensor, len(c.Match.Inputs))
	for i, v := range c.Match.Inputs {
		var err error
		constant := v.Constant()
		switch {
		case constant == nil:
			ts[i], err = prove.MakeInput(kd.Of(shapes, i), i, c.Types[i], shapes[i])
		case (!exact || !c.Types[i].IsFloat()) && constant.Size() <= maxConstantBytes && !k.Draws(constant):
			ts[i], err = reference.FromONNX(constant)
		default:
			ts[i], err = prove.MakeInput(prove.Normal, i, c.Types[i], shapes[i])
		}
		if err != nil {
			return nil, err
		}
		c.repeatInput(i, ts[i])
	}
	return ts, nil
}

// Draws reports whether a constant has random elements in the check: it is a weight whose elements are not there.
func (k *Checker) Draws(t *onnx.Tensor) bool {
	return k.Drawn && t != nil && t.DataType.IsFloat() && t.Len() > 1 && !t.IsReadable()
}

// original evaluates the matched slice; finite says that nothing in it overflowed.
func (k *Checker) original(c *Site, w world, inputs []*reference.Tensor, exact bool) (out []*reference.Tensor,
	finite bool, err error) {
	e := k.originals[exact]
	if e == nil {
		e = reference.NewForOpset(k.run.Model.Opset(""), k.run.Model.Functions, reference.Options{Exact: exact})
		k.originals[exact] = e
	}
	env := make(map[*onnx.Value]*reference.Tensor, len(c.slice.nodes)+len(inputs))
	for i, v := range c.Match.Inputs {
		env[v] = inputs[i]
	}
	for v, in := range c.slice.equal {
		env[v] = env[in]
	}
	for _, v := range c.slice.known {
		t, ok := w.facts.Known(v, w.n)
		if !ok {
			return nil, false, unknownElsewhere(v)
		}
		env[v] = t
	}
	nodes := c.slice.nodes
	if c.short != nil {
		nodes = c.short.region.Nodes
		maps.Copy(env, c.short.shapes)
	}
	overflow, err := e.EvalFor(nodes, env, c.Match.Outputs)
	if err != nil {
		return nil, false, err
	}
	for _, v := range c.Match.Outputs {
		out = append(out, env[v])
	}
	return out, !overflow, nil
}

// replacement evaluates the nodes that would stand in place of the match. values holds what each of them computes.
func (k *Checker) replacement(c *Site, inputs []*reference.Tensor, exact bool) (out []*reference.Tensor,
	values map[*onnx.Value]*reference.Tensor, err error) {
	g := c.Match.Replacement
	e := reference.NewForOpset(k.run.Model.Opset(""), c.Functions, reference.Options{Exact: exact})
	values = make(map[*onnx.Value]*reference.Tensor, len(inputs)+len(g.Nodes))
	for i, v := range g.Inputs {
		values[v] = inputs[i]
	}
	keep := slices.Clone(g.Outputs)
	for _, call := range c.Calls {
		if call.Node.Graph != nil { // no target has written it
			keep = append(append(keep, call.Node.Inputs...), call.Node.Outputs...)
		}
	}
	if _, err := e.EvalFor(g.Nodes, values, keep); err != nil {
		return nil, nil, err
	}
	for _, v := range g.Outputs {
		out = append(out, values[v])
	}
	return out, values, nil
}

// kernel compares the kernel of a fused op with its definition's results on the same inputs, if the caller gave a way
// to run it. settle, unless it is nil, takes out what the op leaves open before the results are compared.
func (k *Checker) kernel(c *Site, call *Call, kd prove.Kind, values map[*onnx.Value]*reference.Tensor,
	r *prove.CheckReport, settle func(want, got []*reference.Tensor)) error {
	if k.run.Kernel == nil || k.Target != nil || registry.IsDefinition(call.Kernel) {
		return nil
	}
	var want []*reference.Tensor
	for _, v := range call.Node.Outputs {
		t := values[v]
		if v != nil && (t == nil || !prove.AllFinite(t.F)) {
			return nil
		}
		want = append(want, t)
	}
	in := make([]*reference.Tensor, len(call.Node.Inputs))
	for i, v := range call.Node.Inputs {
		if v != nil {
			in[i] = values[v]
		}
	}
	run := &prove.KernelRun{Op: call.Op, Site: call.Site, In: in, Want: want, Settle: settle}
	got, err := k.run.CompareKernel(run, r)
	switch {
	case err == nil || errors.As(err, new(*prove.EvalError)):
		return err
	case got == nil:
		return reason.New(reason.Kernel, nil, "kernel %s fails on %s inputs: %w", call.Kernel.ID, kd.Name, err).
			With("kernel", call.Kernel.ID)
	}
	return reason.New(reason.Kernel, nil, "kernel %s differs from the op's definition on %s inputs: %w", call.Kernel.ID,
		kd.Name, err).With("kernel", call.Kernel.ID).With("max_rel", *r.Kernel)
}

// differs says on which inputs the replacement computes something else; exact is without roundings.
func differs(inputs string, exact bool, err error) error {
	mode := ""
	if exact {
		mode = " (in float64, without roundings)"
	}
	return reason.New(reason.Differs, nil, "differs from the matched nodes on %s%s: %w", inputs, mode, err).
		With("inputs", inputs).With("rounded", !exact)
}

// unknownElsewhere says that a value is known for some sizes of the symbolic dimensions alone.
func unknownElsewhere(v *onnx.Value) error {
	return reason.New(reason.Unknown, v.Producer, "the value of %q is not known for other dimensions", v.Name)
}
