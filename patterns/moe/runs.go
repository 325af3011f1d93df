package moe

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// expertProbe finds the weights of every expert of a region by running it with its own choices.
//
// The first run samples the experts' function between their products. In the others, every weight matrix answers with
// the bits of a unique number, one for each channel, and the factors of the chosen experts are powers of a base. So the
// digits of the result are the answers of a token's experts.
type expertProbe struct {
	*probe.Runner
	reg         *Region
	numbers     []float64 // of the region
	activations []string  // that it may contain
	unit        *unit
	levels      map[float64]float64    // see level
	salt        int                    // of the samples that show the unit
	groups      map[int]*firstProducts // by the number of the second product
	calls       []*call
	seconds     []*probe.Product // the second products of a run that tokens reach
	byKey       map[string]int   // indexes into calls, plus 1
	base        float64
	scaled      bool  // the factors are applied to the tokens
	heard       bool  // scaled is known
	sure        bool  // the region is not a mixture of all experts
	answers     []int // for each expert: the number of its call, unasked or absent
	guesses     []sideBySide
}

// call is an expert as the graph computes it: the matrices that a token is multiplied with.
type call struct {
	down    *probe.Product
	place   int
	upFirst bool // in the first products, or in the parts of one
}

// firstProducts are the first products of a second one, by number, in the order of the run.
type firstProducts struct {
	numbers []int
	upFirst bool
	either  bool // the order is not known
}

const (
	// maxChosen bounds the experts of a token, and probeSum the bits of all its factors, which must be exact in
	// float64.
	maxChosen, probeSum = 24, 48
	// lookAgain bounds the samples that are tried until one distinguishes gate from up.
	lookAgain = 4
	// leastFactor is the factor of a token's first expert. It is not 1, so that results show its place.
	leastFactor = 2
	maxExperts  = 1 << 12
	// probeBits bounds the bits of an answer.
	probeBits = 16
	// probeRuns bounds the choices that are tried if the region does not run with all experts chosen.
	probeRuns = 64

	// maxProbed bounds the elements of the tokens that a region is run with.
	maxProbed = 1 << 22

	unasked = -1
	absent  = 0
)

// errInconsistent is the error for an expert whose answers differ between runs.
var errInconsistent = errors.New("its weights depend on the other chosen experts")

// callsOf probes a region. why is nil if it is experts with separate weights.
func callsOf(g *match.View, reg *Region) (p *expertProbe, why *reason.Reason) {
	r := reg.Routing
	if r.K > maxChosen || r.Experts > maxExperts {
		return &expertProbe{},
			reason.New(reason.Experts, nil, "a token goes to %d of %d experts, which are too many to tell apart",
				r.K, r.Experts)
	}
	p = &expertProbe{Runner: probe.NewRunner(g, budgetOf(g)), reg: reg, activations: activationsIn(reg),
		numbers: numbersIn(g, reg), base: math.Exp2(float64(min(probeSum/r.K, 10)))}
	p.forget()
	if n := p.tokens() * int(r.K+1) * int(reg.Hidden); n == 0 || n > maxProbed {
		return p, reason.New(reason.Unknown, nil, "%d tokens of %d channels are unknown, or too many for a trial run",
			p.tokens(), reg.Hidden)
	}
	if n := p.tokens() * int(r.K); n < int(r.Experts) { // more tokens need fewer runs
		if p.World = 1; p.tokens() == 0 || p.tokens()*int(r.K+1)*int(reg.Hidden) > maxProbed/4 {
			p.World = 0
		}
	}
	err := p.askFirst(window(0, int(r.Experts)))
	if err == nil && slices.Contains(p.answers, absent) { // perhaps absent only at this index in the token's list
		err = p.ask(append(window(1, int(r.Experts)-1), 0))
	}
	if err == nil || reason.As(err) != nil || errors.Is(err, errInconsistent) {
		return p, p.verdict(err)
	}
	// A graph may only run when as many experts are chosen as at its export.
	hit := min(int(r.Experts), p.tokens()*int(r.K)) - 1
	for tries := 0; hit >= int(r.K) && tries < probeRuns; hit, tries = hit-1, tries+1 {
		if p.ask(window(0, hit)) != nil {
			continue
		}
		for from := 1; from+hit <= int(r.Experts) && from < probeRuns; from++ {
			if err := p.ask(window(from, hit)); errors.Is(err, errInconsistent) {
				p.sure = true
				return p, reason.New(reason.Experts, nil,
					"the router has %d experts, the graph holds %d: it runs when %d are chosen, and always "+
						"uses the weights of the experts that were chosen at the export", r.Experts, len(p.calls), hit)
			} else if err != nil {
				return p, p.verdict(err)
			}
		}
		return p, p.verdict(nil)
	}
	if why := fixedCounts(p.View, reg); why != nil {
		return p, why
	}
	return p, p.verdict(err)
}

// forget resets the results of runs.
func (p *expertProbe) forget() {
	p.unit, p.calls, p.heard = nil, nil, false
	p.byKey, p.levels = map[string]int{}, map[float64]float64{}
	p.answers = slices.Repeat([]int{unasked}, int(p.reg.Routing.Experts))
}

// fixedCounts returns a reason if the rows of all experts are split by sizes that do not depend on the choice.
func fixedCounts(g *match.View, reg *Region) *reason.Reason {
	for _, n := range reg.Nodes {
		if !n.Is("Split") || n.AttrInt("axis", 0) != 0 || int64(len(n.Outputs)) != reg.Routing.Experts {
			continue
		}
		sizes := n.AttrInts("split")
		if v := n.Input(1); v != nil {
			sizes, _ = g.Ints(v)
		}
		if sizes != nil && reg.Has(match.Producer(n.Input(0))) {
			return reason.New(reason.FixedCounts, nil,
				"%q splits the rows of the experts by the sizes %v, the numbers of rows at the export: "+
					"for other inputs the graph fails or returns other results", n.Outputs[0].Name, sizes)
		}
	}
	return nil
}

// verdict returns the reason why the region is not experts, by their answers; nil if every expert has its weights.
func (p *expertProbe) verdict(err error) *reason.Reason {
	switch {
	case err != nil:
		p.sure = errors.Is(err, errInconsistent)
		code := reason.Experts
		if r := reason.As(err); r != nil {
			code = r.Code
		}
		return reason.New(code, nil, "the experts cannot be told apart: %w", err)
	case len(p.calls) == 0:
		return reason.New(reason.Experts, nil, "the experts have no constant weights")
	}
	var missing []string
	held := 0
	for e, a := range p.answers {
		switch a {
		case absent:
			missing = append(missing, fmt.Sprint(e))
		case unasked:
		default:
			held++
		}
	}
	switch {
	case len(missing) > 0:
		p.sure = true
		verb := "is"
		if len(missing) > 1 {
			verb = "are"
		}
		return reason.New(reason.ExpertsAbsent, nil, "the router has %d experts, the graph holds %d: %s %s absent",
			len(p.answers), held,
			shortList(missing), verb).With("experts", len(p.answers)).With("held", held)
	case held < len(p.answers):
		return reason.New(reason.Experts, nil, "the router has %d experts, but only %d could be examined",
			len(p.answers), held)
	case p.unit == nil:
		return reason.New(reason.Experts, nil, "the nodes between the products of the experts could not be examined")
	}
	if n := p.decides(); n != nil {
		return reason.New(reason.Differs, n,
			"the experts branch on the result of %s for the results of their products", n.OpType)
	}
	return nil
}

// shortList joins a list of numbers that may be long.
func shortList(list []string) string {
	const most = 24
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// window lists n experts, beginning with from.
func window(from, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = from + i
	}
	return list
}

// tokens returns the number of tokens of the world that the region runs in.
func (p *expertProbe) tokens() int {
	s, ok := p.Shape(p.reg.Routing.IDs)
	if !ok {
		return 0
	}
	return match.Elements(s) / int(p.reg.Routing.K)
}

// ask runs the region for the listed experts, in one run if the tokens suffice.
func (p *expertProbe) ask(list []int) error {
	k, tokens := int(p.reg.Routing.K), p.tokens()
	if tokens == 0 {
		return reason.New(reason.Unknown, nil, "the number of tokens is not known")
	}
	for start := 0; start < len(list); start += k * tokens {
		chosen := make([]int, k*tokens)
		for i := range chosen {
			chosen[i] = list[(start+i)%len(list)]
		}
		if err := p.look(chosen); err != nil {
			return err
		}
		if err := p.listen(chosen); err != nil {
			return err
		}
	}
	return nil
}

// runWith runs the region with a choice. chosen lists the experts of the first token, then those of the next; factor
// returns the weight of a token's j-th expert.
func (p *expertProbe) runWith(chosen []int, factor func(j int) float64) (*reference.Tensor, error) {
	r := p.reg.Routing
	k, experts := int(r.K), int(r.Experts)
	env := probe.Values{}
	ids := make([]int64, len(chosen))
	weights := make([]float64, len(chosen))
	dense := make([]float64, len(chosen)/k*experts)
	for i, e := range chosen {
		ids[i], weights[i] = int64(e), factor(i%k)
		dense[i/k*experts+e] = weights[i]
	}
	var err error
	set := func(v *onnx.Value, t *reference.Tensor) {
		if v == nil || err != nil {
			return
		}
		var ok bool
		t.Shape, ok = p.Shape(v)
		t.DataType = p.View.Facts.DataType(v)
		if n := len(t.F) + len(t.I); !ok || n > 0 && n != match.Elements(t.Shape) {
			err = reason.New(reason.Unknown, nil, "the shape of %q is not known", v.Name)
			return
		}
		if len(t.I) == 0 && len(t.F) == 0 {
			t.F = slices.Repeat([]float64{1}, match.Elements(t.Shape))
		}
		env[v] = t
	}
	set(p.reg.X(), &reference.Tensor{})
	set(p.reg.Base(), &reference.Tensor{})
	set(r.IDs, &reference.Tensor{I: ids})
	set(r.Weights, &reference.Tensor{F: weights})
	set(r.Dense, &reference.Tensor{F: dense})
	if err != nil {
		return nil, err
	}
	y, err := p.Run(p.reg.Result, r.MadeOf(), env)
	if err != nil {
		return nil, err
	}
	if match.Elements(y.Shape) != match.Elements(env[p.reg.X()].Shape)/int(p.reg.Hidden)*int(p.reg.Hidden) ||
		slices.Contains(y.Shape, 0) {
		return nil, probe.NoExperts("the result has the shape %v", y.Shape)
	}
	if p.reg.Base() != nil { // the base is ones; unless it is added exactly once, the digits show it
		for i := range y.F {
			y.F[i]--
		}
	}
	return y, nil
}
