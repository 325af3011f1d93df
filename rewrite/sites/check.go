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
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// A Checker compares the nodes of matches with the definitions of their ops, both by reference evaluation.
//
// It makes two passes. The structural one rounds nothing, so that only a different function differs. The typed one
// rounds everything to the graph's types, so that a loss of precision shows.
type Checker struct {
	run *pass.Run
	// Target and Runtime belong to the nodes that replace matches; nil for fused ops.
	Target  *target.Target
	Runtime Runtime
	// Drawn makes random numbers replace missing weights.
	Drawn bool
	// RoutedOnly leaves out all sites except experts.
	RoutedOnly bool
	// Outputs holds the outputs of all matches of the model.
	Outputs map[*onnx.Value]bool

	prover    *prove.Prover
	repaired  bool // a site supports numbers of tokens for which its nodes fail
	originals map[bool]*reference.Evaluator
	// sized caches facts by the largest number of tokens.
	sized map[int64]*infer.Facts
}

// world is one assignment of numbers to the symbolic dimensions.
type world struct {
	facts *infer.Facts
	n     int
}

// MaxSites bounds the distinct sites of a model. Real models have a few tens. Opening one kernel takes milliseconds,
// and a hostile graph has a site for every few nodes.
const MaxSites = 256

var errTooMany = reason.New(reason.Limit, nil, "cannot be checked: the model has more than %d sites that differ in "+
	"more than their weights, and the check ends there (use --verify all to check each site)", MaxSites)

// NewChecker returns a checker of the sites of a run, for fused ops.
func NewChecker(r *pass.Run) *Checker {
	return &Checker{run: r, originals: map[bool]*reference.Evaluator{}, sized: map[int64]*infer.Facts{},
		prover: &prove.Prover{Off: r.Off, Every: r.Every, Most: MaxSites, TooMany: errTooMany}}
}

// Check returns the figures of a site, and an error if it must be refused.
func (k *Checker) Check(c *Site) (*prove.CheckReport, error) {
	if k.RoutedOnly && c.Match.Op != fused.MoEName {
		return nil, nil
	}
	worlds := []int{0}
	if c.slice.varying { // values that depend on the dimensions must hold for others too
		worlds = append(worlds, 1)
	}
	r, err := k.prover.Check(c.OpName(), func() string {
		return c.Match.Pattern + "\n" + onnx.GraphKey(c.Match.Replacement) + c.slice.key(k.run.Facts, worlds)
	}, func(r *prove.CheckReport) error { return k.judge(c, worlds, r) })
	if err == nil && r != nil && policies[c.Match.Op].lengths {
		// Behind a repaired site the model's values are unknown for other lengths.
		if k.repaired = k.repaired || r.Repairs != ""; k.repaired {
			err = k.unrepaired(c)
		}
	}
	return r, err
}

// judge tries a site according to the policy of its op.
func (k *Checker) judge(c *Site, worlds []int, r *prove.CheckReport) (err error) {
	c.narrowest = coarsest(c, k.run.Facts)
	if err := c.intended(); err != nil {
		return err
	}
	switch {
	case c.routing != nil:
		err = k.tryRouted(c, r)
	case c.Match.Domain == fused.Domain && policies[c.Match.Op].try != nil:
		err = policies[c.Match.Op].try(k, c, worlds, r)
	default:
		err = k.tryNumbers(c, worlds, r)
	}
	if err == nil && r.Kernel != nil && !r.KernelTold {
		err = reason.New(reason.Unchecked, nil, "cannot be checked: rounding differences change the result of mojo.%s "+
			"on all tried inputs", c.Match.Op)
	}
	return err
}

// tryNumbers tries a site on all kinds of numbers.
func (k *Checker) tryNumbers(c *Site, worlds []int, r *prove.CheckReport) error {
	for _, n := range worlds {
		w := world{k.run.Facts, n}
		shapes, err := k.shapes(c, w)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(shapes, func(s []int64) bool { return prove.Elements([][]int64{s}) == 0 }) {
			return reason.New(reason.Unchecked, nil, "cannot be checked: an input has no elements")
		}
		n := prove.Elements(shapes)
		if n > shrinkElements && !c.slice.varying {
			smaller := *r
			err := k.numbers(c, w, shrink(shapes), prove.Kinds).Try(&smaller)
			if !errors.As(err, new(*prove.EvalError)) {
				*r = smaller
				return err // there are no other worlds
			}
		}
		tried := prove.Kinds
		if n > manyElements {
			tried = prove.FewKinds
		}
		if n > maxElements {
			return reason.New(reason.Unchecked, nil, "cannot be checked: its inputs have %d elements",
				n).With("elements", n)
		}
		if err := k.numbers(c, w, shapes, tried).Try(r); err != nil {
			return err
		}
	}
	return nil
}

// numbers claims that both sides of a site agree on these kinds of inputs.
func (k *Checker) numbers(c *Site, w world, shapes [][]int64, kinds []prove.Kind) *prove.Claim {
	p := &proof{Checker: k, c: c}
	claim := p.claim(c.Calls, func() error {
		for _, pass := range []prove.Pass{prove.Exactly, prove.Rounded} {
			for _, kd := range c.kinds(kinds) {
				inputs, err := k.inputs(c, kd, shapes, pass == prove.Exactly)
				if err != nil {
					return &prove.EvalError{Err: err}
				}
				t := prove.Trial{Name: kd.Name + " inputs", Kind: kd.Name, Inputs: inputs, Pass: pass}
				if err := p.try(t, w); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if c.withoutEpsilon() { // without rounding, both sides are the same function
		claim.Policy.Excused = []string{prove.Tiny.Name}
	}
	return claim
}

// inputs returns the inputs of one case, one tensor for each input of the match. The typed pass keeps the elements of
// constants. The structural pass uses random ones, because the rewrite has to hold for any weights.
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

// Draws reports whether the check draws random elements for a constant: a weight whose elements are missing.
func (k *Checker) Draws(t *onnx.Tensor) bool {
	return k.Drawn && t != nil && t.DataType.IsFloat() && t.Len() > 1 && !t.IsReadable()
}

// original evaluates the matched slice.
func (k *Checker) original(c *Site, w world, inputs []*reference.Tensor, exact bool) (out []*reference.Tensor,
	err error) {
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
	if exact {
		maps.Copy(env, c.Match.Intended)
	}
	for _, v := range c.slice.known {
		t, ok := w.facts.Known(v, w.n)
		if !ok || exact && c.isIntended(v) {
			if err := c.restate(e, w, v, env); err != nil {
				return nil, err
			}
			continue
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
		return nil, err
	}
	for _, v := range c.Match.Outputs {
		out = append(out, env[v])
	}
	if overflow {
		err = prove.ErrOverflow
	}
	return out, err
}

// replacement evaluates the nodes that would replace the match. values holds all computed values.
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

// unknownElsewhere reports that a value is known only for some sizes of the symbolic dimensions.
func unknownElsewhere(v *onnx.Value) error {
	return reason.New(reason.Unknown, v.Producer, "the value of %q is not known for other dimensions", v.Name)
}
