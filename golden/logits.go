package golden

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// LogitStats measures how far the distributions over a vocabulary are from the expected ones, position by position. A
// position is one row of the last axis; its distribution is the softmax of the row, in float64.
type LogitStats struct {
	Classes   int64 `json:"classes"`
	Positions int64 `json:"positions"` // those compared
	// Undefined counts the positions left out: the expected row has no softmax (a NaN, +Inf, or only -Inf).
	Undefined int64 `json:"undefined"`
	// MeanKL and MaxKL are the Kullback-Leibler divergence KL(expected || got) in nats. It is infinite if the expected
	// distribution gives a class a probability and the other one excludes it, or if only the other row has no softmax.
	MeanKL Number `json:"mean_kl"`
	MaxKL  Number `json:"max_kl"`
	// WorstPosition is the index, without the last axis, of the position with MaxKL; nil if every divergence is 0.
	WorstPosition []int64 `json:"worst_position,omitempty"`
	// Top1 is the share of positions with the same most probable class. If classes tie for the first place, the
	// position counts as the chance of agreement when both sides break ties by one random order of the classes: common
	// winners by all winners.
	Top1 float64 `json:"top1"`
	// Passed means that no limit is exceeded; see LogitLimits.
	Passed bool `json:"passed"`
}

// CompareLogits compares tensors that hold logits along their last axis. Both must be of float types and of one shape;
// otherwise the error is a *MismatchError. Memory does not grow with the tensors, except for the winners of a position.
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

// elementReader returns a reader for the elements of a tensor, and their bytes.
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

// log returns the log probability of a class.
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
		case math.IsInf(lp, -1): // an impossible class adds nothing
		case math.IsInf(lq, -1):
			return math.Inf(1)
		default:
			sum += math.Exp(lp) * (lp - lq)
		}
	}
	return max(0, sum) // rounding may make it slightly negative
}

// agreement returns the chance that both have the same winner.
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

// LogitLimits are limits for every output of logits. The zero value sets no limit.
type LogitLimits struct {
	MaxKL   *float64 // the greatest divergence of any position
	MinTop1 *float64 // the least share of positions that agree
}

// Set reports whether there is a limit.
func (l LogitLimits) Set() bool { return l.MaxKL != nil || l.MinTop1 != nil }

// Check returns an error, and marks the statistics as failed, if they exceed a limit, or if there is a limit and no
// position could be compared.
func (l LogitLimits) Check(s *LogitStats) error {
	err := l.broken(s)
	s.Passed = err == nil
	return err
}

func (l LogitLimits) broken(s *LogitStats) error {
	switch {
	case l.Set() && s.Positions == 0:
		return fmt.Errorf("no position can be compared: the softmax of %d is undefined on the expected "+
			"side", s.Undefined)
	case l.MaxKL != nil && float64(s.MaxKL) > *l.MaxKL:
		return fmt.Errorf("KL divergence %.3g at position %v exceeds the limit %g", s.MaxKL, s.WorstPosition, *l.MaxKL)
	case l.MinTop1 != nil && s.Top1 < *l.MinTop1:
		return fmt.Errorf("the most probable class agrees at %.4g%% of %d positions, less than %g%%", 100*s.Top1,
			s.Positions, 100**l.MinTop1)
	}
	return nil
}

// Vocabulary returns the number of tokens in a language model's vocabulary; see roles.Vocabulary.
func Vocabulary(m *onnx.Model) int64 { return roles.Vocabulary(m) }

// IsLogits reports whether an output holds logits: floats whose last axis is the vocabulary or, for models that take
// embeddings instead of tokens, that are named so. vocabulary is 0 if unknown.
func IsLogits(t *onnx.Tensor, vocabulary int64) bool {
	if !t.DataType.IsFloat() || len(t.Dims) == 0 {
		return false
	}
	last := t.Dims[len(t.Dims)-1]
	return vocabulary > 1 && last == vocabulary || roles.NameHas(t.Name, "logits")
}
