package router

import (
	"math/rand/v2"
	"slices"
)

// rows are the logits that a routing is run on.
type rows struct {
	experts  int
	logits   []float64
	ordinary int // number of first rows; the others are extreme: their scores round to 0 or 1
	spread   int // number of last rows, whose logits differ and whose scores are equal
	bias     []float64
}

func (s *rows) count() int { return len(s.logits) / s.experts }

// levels are the logits of extreme rows: down to scores below any epsilon, and up to scores that all are 1.
var levels = []float64{-23, -35, -50, -70, -100, -300, -12, 12, 40, 300}

// small is the index of the level at which sigmoids are exponentials, and differences from 1 still distinguish them.
const small = 0

// gaps are the distances of the logit of the least biased expert above the others.
var gaps = []float64{20, 40, 60, 100}

// newRows makes rows for a routing, some of them for groups. bias is the magnitude of the correction that replaces a
// constant; 0 for none. Some rows have logits near the numbers around.
func newRows(routing *Routing, groups int, bias float64, around []float64) *rows {
	experts := int(routing.Experts)
	s := &rows{experts: experts}
	r := rand.New(rand.NewPCG(uint64(experts), 3))
	add := func(magnitude, level float64) {
		for range experts {
			s.logits = append(s.logits, level+magnitude*r.NormFloat64())
		}
	}
	for _, magnitude := range []float64{0.3, 1, 2, 4} {
		for _, level := range []float64{0, -2, 1} {
			add(magnitude, level)
			add(magnitude, level)
		}
	}
	for g := range min(groups, maxPeaked) {
		for peaks := 1; peaks <= 2; peaks++ {
			s.peaked(g, experts/groups, peaks)
		}
	}
	if bias < 0.1 { // each expert is chosen in some row
		size := experts / max(groups, 1)
		for first, n := 0, 0; first < experts; first += n {
			n = min(int(routing.K), size-first%size)
			add(0.3, -3)
			row := s.logits[len(s.logits)-experts:]
			for e := first; e < first+n; e++ {
				row[e] += 6
			}
		}
	}
	s.ordinary = s.count()
	for _, level := range levels {
		add(0.3, level)
	}
	add(20, 0)
	add(100, 0)
	for i, x := range around { // for one expert, and for all
		add(0.3, 0)
		s.logits[len(s.logits)-1-i%experts] = x
		add(0.3, x)
	}
	if bias != 0 {
		for range experts {
			s.bias = append(s.bias, bias*(r.NormFloat64()-2)) // some are chosen below zero
		}
		least := slices.Index(s.bias, slices.Min(s.bias))
		for _, gap := range gaps {
			add(0.3, 0)
			s.logits[len(s.logits)-experts+least] = gap
		}
	}
	// All scores except perhaps the greatest are 0. Of equal scores the first is chosen, of these logits the last.
	for _, first := range []float64{0, -800} {
		for i := range experts {
			s.logits = append(s.logits, -800-100*float64(experts-1-i))
		}
		s.logits[len(s.logits)-1] = first
		s.spread++
	}
	return s
}

// maxPeaked bounds the groups that have rows.
const maxPeaked = 16

// peaked adds a row in which one group has a few great logits and otherwise small ones, and all other logits are
// between. So groups rank differently by the best expert, the two best ones and other measures.
func (s *rows) peaked(group, size, peaks int) {
	for e := range s.experts {
		z := 1.5
		if e/size == group {
			if z = -4; e%size >= size-peaks {
				z = 2
			}
		}
		s.logits = append(s.logits, z+0.05*float64(e)/float64(s.experts)) // no two are equal
	}
}
