package sites

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ties are logits whose k-th and next largest are equal in each row.
var ties = prove.Kind{Name: "tied"}

// unsettled reports whether scores of such logits may be equal, or become equal by rounding. The order of experts is
// then open.
func unsettled(kind string) bool {
	return !slices.Contains([]string{"normal", "wide", "repeated"}, kind)
}

// routerClaim claims that both sides of a router agree on all kinds of logits.
func (x *routed) routerClaim() *prove.Claim {
	claim := x.claim([]*Call{x.r.call}, x.router)
	claim.Policy.NotFinite = prove.LeftOpen
	claim.Policy.Settle = func(t prove.Trial, exact bool, want, got []*reference.Tensor) error {
		open, err := x.open(t.Inputs, exact)
		if err != nil {
			return err
		}
		x.settle = func(want, got []*reference.Tensor) {
			if !prove.SameChoices(want, got) {
				x.out.TiedOn(t.Kind)
			}
			settle(want, got, open, unsettled(t.Kind))
		}
		x.settle(want, got)
		return nil
	}
	return claim
}

// router tries all kinds of logits.
func (x *routed) router() error {
	tried := append(slices.Clone(prove.Kinds), wide, ties)
	for _, exact := range []bool{true, false} {
		for _, s := range x.sizes {
			for i, kd := range tried {
				if i > 0 && s.tokens != x.sizes[len(x.sizes)/2].tokens {
					continue // one size suffices
				}
				if err := x.scores(&trial{size: s, kind: kd, hits: x.r.chosen}, exact); err != nil {
					return err
				}
			}
		}
		if err := x.groups(exact); err != nil {
			return err
		}
	}
	return nil
}

// scores tries one set of logits.
func (x *routed) scores(t *trial, exact bool) error {
	inputs, err := x.logits(t, exact)
	if err != nil {
		return &prove.EvalError{Err: err}
	}
	x.tokens = t.tokens
	return x.proof.try(x.trial(t, inputs, exact), t.world)
}

// logits returns the inputs of one trial.
func (x *routed) logits(t *trial, exact bool) ([]*reference.Tensor, error) {
	made := t.kind
	if made.Fill == nil {
		t.kind = prove.Normal
	}
	inputs, _, err := x.trialInputs(t, exact)
	t.kind = made
	switch {
	case err != nil || made.Fill != nil:
		return inputs, err
	case made.Name == peaks.Name:
		x.peaked(t, inputs)
		return inputs, nil
	}
	n, k := int(x.r.experts), int(x.r.chosen)
	for i, what := range x.r.roles {
		for at := 0; what == fused.RoleLogits && k < n && at < len(inputs[i].F); at += n {
			row := inputs[i].F[at : at+n]
			order := make([]int, n)
			for j := range order {
				order[j] = j
			}
			slices.SortFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
			row[order[k]] = row[order[k-1]]
		}
	}
	return inputs, nil
}

const nudges = 4

// open returns for which tokens the op itself chooses other experts when rounding changes the logits slightly.
func (x *routed) open(inputs []*reference.Tensor, exact bool) ([]bool, error) {
	ids := x.r.call.Node.Outputs[1]
	open := make([]bool, x.tokens)
	for try := range nudges {
		if exact {
			break // nothing is rounded
		}
		changed := slices.Clone(inputs)
		for i, what := range x.r.roles {
			if what == fused.RoleLogits {
				changed[i] = nudged(inputs[i], int(x.r.experts), uint64(try))
			}
		}
		_, others, err := x.replacement(x.c, changed, exact)
		if err != nil {
			return nil, err
		}
		was, is := x.values[ids].I, others[ids].I
		for i := range was {
			if was[i] != is[i] {
				open[i/int(x.r.chosen)] = true
			}
		}
	}
	return open, nil
}

// nudged changes each row by a few units in the last place of its largest element.
func nudged(t *reference.Tensor, row int, seed uint64) *reference.Tensor {
	v := slices.Clone(t.F)
	for at := 0; at < len(v); at += row {
		_, scale := prove.Distance(v[at:at+row], v[at:at+row])
		for i := at; i < at+row; i++ {
			up := (uint64(i)*0x9e3779b97f4a7c15>>60+seed)%3 == 0
			step := 4 * prove.Spacing(t.DataType, scale)
			if !up {
				step = -step
			}
			v[i] = prove.RoundTo(t.DataType, v[i]+step)
		}
	}
	return reference.NewFloats(t.DataType, t.Shape, v)
}

// settle makes open results equal: the rows of open tokens and, if equal scores are possible, the order of the experts
// and of the weights in a row.
func settle(want, got []*reference.Tensor, open []bool, equal bool) {
	for i := range want {
		if want[i] == nil || got[i] == nil || want[i].Len() != got[i].Len() || want[i].IsFloat() != got[i].IsFloat() {
			continue // the comparison reports it
		}
		n := want[i].Len() / len(open)
		w, g := prove.Clone(want[i]), prove.Clone(got[i])
		for t, o := range open {
			from, to := t*n, (t+1)*n
			switch {
			case o && w.IsFloat():
				copy(g.F[from:to], w.F[from:to])
			case o || equal && !w.IsFloat():
				copy(g.I[from:to], w.I[from:to])
			case equal:
				slices.Sort(w.F[from:to])
				slices.Sort(g.F[from:to])
			}
		}
		want[i], got[i] = w, g
	}
}

// peaks are logits with a few large and many small ones in one group of experts, and medium ones in all others. The
// groups rank differently by best expert, by the two best, by mean and by minimum. Other numbers seldom distinguish
// these.
var peaks = prove.Kind{Name: "peaked"}

// greatPeak, smallPeak and noPeak are these logits. Two large ones exceed two medium ones, but have a smaller mean in a
// group of four. This also holds for their sigmoids and exponentials.
const greatPeak, smallPeak, noPeak = 2, -4, 1.5

// groups checks a router with groups on peaks in each group, of one and of two experts.
func (x *routed) groups(exact bool) error {
	groups := x.r.call.Site.Attr(fused.AttrGroups).Int
	s := x.sizes[len(x.sizes)/2]
	for n := int64(1); groups > 1 && n <= 2; n++ {
		for first := int64(0); first < groups; first += s.tokens {
			t := &trial{size: s, kind: peaks, hits: x.r.chosen, peaks: n, start: first}
			if err := x.scores(t, exact); err != nil {
				return err
			}
		}
	}
	return nil
}

// peaked writes the peaks of a trial into the logits, for each token in the next group.
func (x *routed) peaked(t *trial, inputs []*reference.Tensor) {
	groups := x.r.call.Site.Attr(fused.AttrGroups).Int
	each := x.r.experts / groups
	for i, what := range x.r.roles {
		if what == fused.RoleCorrection { // would move the peaks
			inputs[i] = reference.NewFloats(inputs[i].DataType, inputs[i].Shape, make([]float64, len(inputs[i].F)))
		}
		if what != fused.RoleLogits {
			continue
		}
		for at := range inputs[i].F {
			token, e := int64(at)/x.r.experts, int64(at)%x.r.experts
			v := noPeak
			if e/each == (t.start+token)%groups {
				if v = smallPeak; e%each >= each-t.peaks {
					v = greatPeak
				}
			}
			v += 0.05 * float64(e) / float64(x.r.experts) // all differ
			inputs[i].F[at] = prove.RoundTo(inputs[i].DataType, v)
		}
	}
}
