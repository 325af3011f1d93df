package golden

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// LogitStats says how far the distributions over a vocabulary are from the expected ones, position by position. A
// position is one row of the last axis; its distribution is the softmax of the row, in float64.
type LogitStats struct {
	Classes   int64 `json:"classes"`
	Positions int64 `json:"positions"` // those that were compared
	// Undefined counts the positions left out: the expected row itself has no softmax (a NaN, +Inf, or nothing but
	// -Inf).
	Undefined int64 `json:"undefined"`
	// MeanKL and MaxKL are the Kullback-Leibler divergence KL(expected || got) in nats. It is infinite where the
	// expected distribution gives a class a part that the other one excludes, and where only the other row has no
	// softmax.
	MeanKL Number `json:"mean_kl"`
	MaxKL  Number `json:"max_kl"`
	// WorstPosition is the index, without the last axis, of the position with MaxKL; nil when every divergence is 0.
	WorstPosition []int64 `json:"worst_position,omitempty"`
	// Top1 is the part of the positions at which the most probable class is the same. Where classes tie for the first
	// place it is the chance of agreement when both sides break ties by one random order of the classes: common winners
	// by all winners.
	Top1 float64 `json:"top1"`
	// Passed says that no limit is broken; see LogitLimits.
	Passed bool `json:"passed"`
}

// CompareLogits compares tensors that hold logits along their last axis. Both must be of float types and of one shape,
// else the error is a *MismatchError. Nothing is allocated that grows with the tensors, but for the winners of a
// position.
func CompareLogits(got, want *onnx.Tensor) (LogitStats, error) {
	s := LogitStats{Top1: 1, Passed: true}
	name := want.Name
	if !got.DataType.IsFloat() || !want.DataType.IsFloat() || !slices.Equal(got.Dims, want.Dims) {
		return s, &MismatchError{name, got.DataType, want.DataType, got.Dims, want.Dims}
	}
	if len(want.Dims) == 0 {
		return s, fmt.Errorf("tensor %q is a scalar: logits have an axis of classes", name)
	}
	g, _, err := elementReader(got)
	if err != nil {
		return s, err
	}
	w, _, err := elementReader(want)
	if err != nil {
		return s, err
	}
	s.Classes = want.Dims[len(want.Dims)-1]
	if want.Len() == 0 {
		return s, nil
	}
	rows := want.Len() / s.Classes
	sum, agreement := 0.0, 0.0
	for row := range rows {
		at := func(read reader) reader { return func(i int64) float64 { return read(row*s.Classes + i) } }
		q, p := newSoftmax(at(g), s.Classes), newSoftmax(at(w), s.Classes)
		if !p.defined {
			s.Undefined++
			continue
		}
		s.Positions++
		kl := p.divergence(q)
		sum += kl
		if kl > float64(s.MaxKL) {
			s.MaxKL, s.WorstPosition = Number(kl), unravel(row, want.Dims[:len(want.Dims)-1])
		}
		agreement += p.agreement(q)
	}
	if s.Positions > 0 {
		s.MeanKL = Number(sum / float64(s.Positions))
		s.Top1 = agreement / float64(s.Positions)
	}
	return s, nil
}

// elementReader returns what reads the elements of a tensor, and their bytes.
func elementReader(t *onnx.Tensor) (reader, []byte, error) {
	b, err := t.Bytes()
	if err != nil {
		return nil, nil, err
	}
	read, err := newReader(t.DataType, b)
	if err != nil {
		return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return read, b, nil
}

// softmax is the distribution of one row of logits.
type softmax struct {
	row     reader
	classes int64
	max     float64
	logSum  float64 // log of the sum of exp(logit - max)
	winners []int64 // classes with the greatest logit, in order
	defined bool
}

func newSoftmax(row reader, classes int64) *softmax {
	s := &softmax{row: row, classes: classes, max: math.Inf(-1)}
	for i := range classes {
		x := row(i)
		if math.IsNaN(x) || math.IsInf(x, 1) {
			return s
		}
		if x > s.max {
			s.max, s.winners = x, s.winners[:0]
		}
		if x == s.max {
			s.winners = append(s.winners, i)
		}
	}
	if math.IsInf(s.max, -1) {
		return s
	}
	sum := 0.0
	for i := range classes {
		sum += math.Exp(row(i) - s.max)
	}
	s.logSum, s.defined = math.Log(sum), true
	return s
}

// log returns the logarithm of the probability of a class.
func (s *softmax) log(i int64) float64 { return s.row(i) - s.max - s.logSum }

// divergence returns KL(p || q), never below 0.
func (p *softmax) divergence(q *softmax) float64 {
	if !q.defined {
		return math.Inf(1)
	}
	sum := 0.0
	for i := range p.classes {
		lp, lq := p.log(i), q.log(i)
		switch {
		case math.IsInf(lp, -1): // a class that cannot come adds nothing
		case math.IsInf(lq, -1):
			return math.Inf(1)
		default:
			sum += math.Exp(lp) * (lp - lq)
		}
	}
	return max(0, sum) // rounding may leave it a little below
}

// agreement returns the chance that both name one winner.
func (p *softmax) agreement(q *softmax) float64 {
	if !q.defined {
		return 0
	}
	common := 0
	for i, j := 0, 0; i < len(p.winners) && j < len(q.winners); {
		switch a, b := p.winners[i], q.winners[j]; {
		case a < b:
			i++
		case a > b:
			j++
		default:
			common++
			i++
			j++
		}
	}
	return float64(common) / float64(len(p.winners)+len(q.winners)-common)
}

// LogitLimits are what the distributions of every output of logits have to keep to. The zero value demands nothing.
type LogitLimits struct {
	MaxKL   *float64 // the greatest divergence that a position may have
	MinTop1 *float64 // the least part of the positions that must agree
}

// Set reports whether there is a limit.
func (l LogitLimits) Set() bool { return l.MaxKL != nil || l.MinTop1 != nil }

// Check errs, and says so in the statistics, when they are beyond a limit, or when there is a limit and no position
// could be compared.
func (l LogitLimits) Check(s *LogitStats) error {
	err := l.broken(s)
	s.Passed = err == nil
	return err
}

func (l LogitLimits) broken(s *LogitStats) error {
	switch {
	case l.Set() && s.Positions == 0:
		return fmt.Errorf("no position can be compared: %d have no softmax on the expected side", s.Undefined)
	case l.MaxKL != nil && float64(s.MaxKL) > *l.MaxKL:
		return fmt.Errorf("KL divergence %.3g at position %v, allowed is %g", s.MaxKL, s.WorstPosition, *l.MaxKL)
	case l.MinTop1 != nil && s.Top1 < *l.MinTop1:
		return fmt.Errorf("the most probable class agrees at %.4g%% of %d positions, demanded are %g%%", 100*s.Top1,
			s.Positions, 100**l.MinTop1)
	}
	return nil
}

// Vocabulary returns the number of tokens that a language model knows; see roles.Vocabulary.
func Vocabulary(m *onnx.Model) int64 { return roles.Vocabulary(m) }

// IsLogits reports whether an output holds logits: floats whose last axis is the vocabulary, or that are named so, for
// models that take embeddings in place of tokens. vocabulary may be 0, for one that is not known.
func IsLogits(t *onnx.Tensor, vocabulary int64) bool {
	if !t.DataType.IsFloat() || len(t.Dims) == 0 {
		return false
	}
	last := t.Dims[len(t.Dims)-1]
	return vocabulary > 1 && last == vocabulary || roles.NameHas(t.Name, "logits")
}
