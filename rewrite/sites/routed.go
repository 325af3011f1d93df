package sites

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// BigMatrices is the number of elements in the experts' matrices above which only few inputs are tried, on few tokens.
// It is a variable for the tests.
var BigMatrices int64 = 1 << 23

const (
	// bigTokens is the preferred maximum of tokens for such a site.
	bigTokens = 3
	// manyExperts is the number of experts up to which every number of them is tried.
	manyExperts = 8
)

// routed checks one site of an op that sends tokens to experts. Its inputs combine hard numbers with hard routings: all
// tokens to the same experts, tokens to every expert, experts without tokens.
//
// A routing for which the matched nodes cannot be evaluated proves nothing: a traced export may fix the number of
// experts that the traced tokens went to. The other routings must agree, and reach every expert.
type routed struct {
	*proof
	r         *routing
	sizes     []size // by the number of tokens
	matrices  int64  // elements of all experts' matrices
	big       bool
	next      int64          // the first expert of the next trial
	hit       map[int64]bool // experts that got tokens
	alone     map[int64]bool // experts that got a single token
	idle      map[int64]bool // experts that got no token in some trial
	good      []trial        // the matched nodes are defined for these
	undefined []trial
	failure   error                     // of the matched nodes, for undefined trials
	defined   bool                      // whether the matched nodes were defined for the last trial
	tokens    int64                     // of the last logits
	random    map[int]*reference.Tensor // parameters, by input
	out       *prove.CheckReport
}

// trial is one set of inputs.
type trial struct {
	size
	kind    prove.Kind
	weights weightKind
	hits    int64   // number of experts with tokens
	start   int64   // the first of these experts
	peaks   int64   // number of large logits in a group
	ids     []int64 // chosen experts; nil: each in turn
}

func newRouted(k *Checker, c *Site, r *prove.CheckReport) *routed {
	return &routed{proof: &proof{Checker: k, c: c}, r: c.routing, hit: map[int64]bool{}, alone: map[int64]bool{},
		idle: map[int64]bool{}, random: map[int]*reference.Tensor{}, out: r}
}

// tryRouted tries a site on the routings and numbers for its op.
func (k *Checker) tryRouted(c *Site, r *prove.CheckReport) (err error) {
	x := newRouted(k, c, r)
	if x.sizes, err = k.sizes(c, x.r); err != nil {
		return err
	}
	for i, what := range x.r.roles {
		if what == fused.RoleMatrix {
			x.matrices += prove.Elements(x.sizes[0].shapes[i : i+1])
		}
	}
	c.coarse = coarsest(c, k.run.Facts)
	x.big = x.matrices >= BigMatrices
	claim := policies[x.r.call.Op.Name].routed(x)
	if x.big {
		claim.Also = nil // smallKernels runs the kernel
	}
	if err := claim.Try(r); err != nil {
		return err
	}
	r.Repairs = x.repairs()
	return nil
}

// coarsest returns the type with the fewest digits among the values of a site.
func coarsest(c *Site, facts *infer.Facts) onnx.DataType {
	var types []onnx.DataType
	for i, t := range c.Types {
		if c.Match.Inputs[i].Constant() == nil {
			types = append(types, t)
		}
	}
	for _, n := range c.slice.nodes {
		for _, v := range n.Outputs {
			types = append(types, facts.DataType(v))
		}
	}
	return coarsestOf(types)
}

// coarsestOf returns the float type with the fewest digits.
func coarsestOf(types []onnx.DataType) onnx.DataType {
	least := onnx.Double
	for _, t := range types {
		if f, ok := prove.FloatTypes[t]; ok && f.Bits < prove.FloatTypes[least].Bits {
			least = t
		}
	}
	return least
}

// expertsClaim claims that both sides of a MoE agree on all routings for which the matched nodes are defined.
func (x *routed) expertsClaim() *prove.Claim {
	claim := x.claim([]*Call{x.r.call}, x.experts)
	claim.Policy.Undefined = func(err error) bool {
		if errors.Is(err, reference.ErrUnsupported) {
			return false
		}
		x.failure, x.defined = err, false
		return true
	}
	return claim
}

// experts finds the routings for which the matched nodes are defined. It tries these with all kinds of numbers and
// every expert, without rounding and with it.
func (x *routed) experts() error {
	if err := x.routings(); err != nil {
		return err
	}
	if err := x.crowd(); err != nil {
		return err
	}
	variants := x.variants()
	for _, t := range variants {
		if _, err := x.try(t, true); err != nil {
			return err
		}
	}
	if err := x.cover(); err != nil {
		return err
	}
	if err := x.single(); err != nil {
		return err
	}
	good := x.good
	if x.big && len(good) > 2 {
		good = []trial{good[0], good[len(good)-1]}
	}
	for _, t := range append(slices.Clone(good), variants...) {
		if !holdsKind(t.kind, x.c.coarse) {
			continue
		}
		if _, err := x.try(t, false); err != nil {
			return err
		}
	}
	if x.big {
		return x.smallKernels()
	}
	return nil
}

// routings finds the numbers of experts for which the matched nodes are defined.
func (x *routed) routings() error {
	sizes := x.sizes
	if x.big {
		few := slices.DeleteFunc(slices.Clone(sizes), func(s size) bool { return s.tokens > bigTokens })
		if sizes = sizes[:1]; len(few) > 1 {
			sizes = []size{few[0], few[len(few)-1]}
		}
	}
	tried := map[int64]bool{}
	for _, s := range sizes {
		least, most := x.r.chosen, min(x.r.experts, s.tokens*x.r.chosen)
		numbers := []int64{least, (least + most) / 2, most}
		switch {
		case x.big:
			numbers = []int64{most}
		case x.r.experts <= manyExperts:
			for h := least; h <= most; h++ {
				numbers = append(numbers, h)
			}
		}
		slices.Sort(numbers)
		for _, h := range slices.Compact(numbers) {
			tried[h] = true
			if err := x.explore(s, h); err != nil {
				return err
			}
		}
	}
	if len(x.undefined) > 0 { // perhaps tracing fixed a single number
		s := x.sizes[len(x.sizes)-1]
		for h := x.r.chosen; h <= min(x.r.experts, s.tokens*x.r.chosen); h++ {
			if tried[h] {
				continue
			}
			if err := x.explore(s, h); err != nil {
				return err
			}
		}
	}
	if len(x.good) == 0 {
		return &prove.EvalError{Err: reason.New(reason.NodesFail, nil,
			"the matched nodes fail for all of %d routings: %w", len(x.undefined), x.failure).
			With("routings", len(x.undefined))}
	}
	return nil
}

// explore tries normal numbers on hits experts.
func (x *routed) explore(s size, hits int64) error {
	t := trial{size: s, kind: prove.Normal, hits: hits, start: x.next}
	x.next += hits
	defined, err := x.attempt(t)
	if defined {
		x.good = append(x.good, t)
	}
	return err
}

// attempt tries a routing, and records it if the matched nodes are not defined for it.
func (x *routed) attempt(t trial) (defined bool, err error) {
	defined, err = x.try(t, true)
	if err == nil && !defined {
		x.undefined = append(x.undefined, t)
	}
	return defined, err
}

// variants returns trials with all kinds of numbers for one defined routing.
func (x *routed) variants() []trial {
	at, tried := x.good[len(x.good)/2], expertKinds
	weights := []weightKind{oneWeight, smallWeights, greatWeights, noWeights}
	if x.r.logits {
		weights = weights[:1] // a router returns no others
	}
	if x.big {
		at, tried, weights = x.good[0], []prove.Kind{wide}, weights[:min(2, len(weights))]
	}
	var list []trial
	add := func(k prove.Kind, w weightKind) {
		t := at
		t.kind, t.weights, t.start = k, w, x.next
		x.next += t.hits
		list = append(list, t)
	}
	for _, k := range tried {
		add(k, someWeights)
	}
	for _, w := range weights {
		add(prove.Normal, w)
	}
	return list
}

// cover makes every expert get tokens, and every expert idle in some trial, as far as the matched nodes are defined for
// it. Only then does a branch for an expert without tokens show.
func (x *routed) cover() error {
	best := slices.MaxFunc(x.good, func(a, b trial) int { return int(a.hits - b.hits) })
	if err := x.startAtEach(x.hit, best, 0); err != nil {
		return err
	}
	var missing []int64
	for e := range x.r.experts {
		if !x.hit[e] {
			missing = append(missing, e)
		}
	}
	if len(missing) > 0 {
		return &prove.EvalError{Err: reason.New(reason.NodesFail, nil,
			"the matched nodes fail whenever tokens go to the experts %v: %w", missing, x.failure).
			With("experts", missing)}
	}
	few := slices.MinFunc(x.good, func(a, b trial) int { return int(a.hits - b.hits) })
	if few.hits == x.r.experts {
		return nil
	}
	return x.startAtEach(x.idle, few, 1)
}

// startAtEach tries a routing with each expert that is not done as its first, or behind places after the first.
func (x *routed) startAtEach(done map[int64]bool, t trial, behind int64) error {
	for e := range x.r.experts {
		if done[e] {
			continue
		}
		t.start = x.r.startAt(e) + behind
		if _, err := x.try(t, true); err != nil {
			return err
		}
	}
	return nil
}

// try tries a routing. defined reports whether the matched nodes could be evaluated.
func (x *routed) try(t trial, exact bool) (defined bool, err error) {
	inputs, ids, err := x.trialInputs(&t, exact)
	if err != nil {
		return false, &prove.EvalError{Err: err}
	}
	x.defined = true
	if err := x.proof.try(x.trial(&t, inputs, exact), t.world); err != nil {
		return false, err
	}
	if x.defined {
		x.reached(ids)
	}
	return x.defined, nil
}

// trial describes a trial to the prover.
func (x *routed) trial(t *trial, inputs []*reference.Tensor, exact bool) prove.Trial {
	pass := prove.Rounded
	if exact {
		pass = prove.Exactly
	}
	return prove.Trial{Name: t.name(x.r), Kind: t.kind.Name, Inputs: inputs, Pass: pass}
}

// reached records the experts that get tokens.
func (x *routed) reached(ids []int64) {
	tokens := map[int64]int{}
	for _, e := range ids {
		x.hit[e] = true
		tokens[e]++
	}
	for e := range x.r.experts {
		x.alone[e] = x.alone[e] || tokens[e] == 1
		x.idle[e] = x.idle[e] || tokens[e] == 0
	}
}

// name describes the trial.
func (t *trial) name(r *routing) string {
	s := fmt.Sprintf("%s inputs of %s", t.kind.Name, english.Counted(int(t.tokens), "token"))
	if r.call.Op.Name == fused.MoEName {
		s += fmt.Sprintf(" on %d of %d experts", t.hits, r.experts)
	}
	return s
}

// repairs describes the routings that the op supports and the matched nodes do not; "" if there are none.
func (x *routed) repairs() string {
	if len(x.undefined) == 0 {
		return ""
	}
	numbers := func(list []trial) []int64 {
		var n []int64
		for _, t := range list {
			n = append(n, t.hits)
		}
		slices.Sort(n)
		return slices.Compact(n)
	}
	works, fails := numbers(x.good), numbers(x.undefined)
	if slices.ContainsFunc(works, func(n int64) bool { return slices.Contains(fails, n) }) {
		return fmt.Sprintf("the nodes fail for %d of %d tried routings (%v); the op supports all",
			len(x.undefined), len(x.undefined)+len(x.good), short(x.failure))
	}
	return fmt.Sprintf("the nodes fail unless the tokens go to %s of the %d experts in all (%v); the op supports "+
		"every routing", enumerate(works), x.r.experts, short(x.failure))
}

// short truncates an error that lists a shape for each expert.
func short(err error) string {
	const most = 200
	if s := []rune(err.Error()); len(s) > most {
		return string(s[:most]) + "…"
	}
	return err.Error()
}

// enumerate formats numbers as "1, 2 or 4".
func enumerate(list []int64) string {
	s := ""
	for i, n := range list {
		switch {
		case i > 0 && i == len(list)-1:
			s += " or "
		case i > 0:
			s += ", "
		}
		s += fmt.Sprint(n)
	}
	return s
}
