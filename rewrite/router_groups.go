package rewrite

import (
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
)

// peaks are logits of which one group of experts has a few great ones and small ones beside them, and all others are
// between. By the best expert, by the two best ones, by the mean or by the least the groups come in different orders,
// which numbers without such an order seldom show.
var peaks = kind{name: "peaked"}

// greatPeak, smallPeak and noPeak are such logits. Two great ones are more than two of no peak by themselves, and less
// in the mean of four: as they are, their sigmoids and their exponentials.
const greatPeak, smallPeak, noPeak = 2, -4, 1.5

// groups checks a router of groups on peaks in each group, of one and of two experts.
func (x *routed) groups(exact bool) error {
	groups := x.r.call.site.Attr("groups").Int
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

// peaked puts the peaks of a trial into the logits: for each token in the next group.
func (x *routed) peaked(t *trial, inputs []*reference.Tensor) {
	groups := x.r.call.site.Attr("groups").Int
	each := x.r.experts / groups
	for i, what := range x.r.roles {
		if what == patterns.Correction { // which would move the peaks
			inputs[i] = reference.NewFloats(inputs[i].DataType, inputs[i].Shape, make([]float64, len(inputs[i].F)))
		}
		if what != patterns.Logits {
			continue
		}
		inputs[i] = clone(inputs[i])
		for at := range inputs[i].F {
			token, e := int64(at)/x.r.experts, int64(at)%x.r.experts
			v := noPeak
			if e/each == (t.start+token)%groups {
				if v = smallPeak; e%each >= each-t.peaks {
					v = greatPeak
				}
			}
			v += 0.05 * float64(e) / float64(x.r.experts) // no two are equal
			inputs[i].F[at] = roundTo(inputs[i].DataType, v)
		}
	}
}
