// Package delta finds minimal subsets that make a test fail: delta debugging (Zeller and Hildebrandt, Simplifying and
// Isolating Failure-Inducing Input, 2002).
package delta

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Outcome is the result of a test of a set.
type Outcome string

// The outcomes. Unknown means that the test is inconclusive, for example because a program did not start.
const (
	Passes  Outcome = "passes"
	Fails   Outcome = "fails"
	Unknown Outcome = "unknown"
)

// The errors of Culprits.
var (
	// ErrEmpty means that the test fails without any element, so no element is to blame.
	ErrEmpty = errors.New("the test does not pass without any of them")
	// ErrUnknown means that the test of all elements together is inconclusive.
	ErrUnknown = errors.New("the test cannot tell of all of them together")
	// ErrFlaky means that a set that failed passes when tried again.
	ErrFlaky = errors.New("the test is not the same twice")
)

// Search looks for the elements among 0 to N-1 that make a test fail.
type Search struct {
	N int
	// Test tries a set, whose elements are in order. An error ends the search.
	Test func(set []int) (Outcome, error)
	// Known holds the outcomes so far, by Key: its sets are not tried again.
	Known map[string]Outcome
	// Keep is called when Known has grown, unless it is nil.
	Keep func() error
}

// Culprits returns disjoint sets that fail, but pass without any one of their elements as far as the test can tell,
// and the remaining elements. Their outcome, left, is Passes or Unknown. If all elements together pass, there are
// no culprits.
func (s *Search) Culprits() (culprits [][]int, rest []int, left Outcome, err error) {
	empty, err := s.try(nil, "")
	if err != nil {
		return nil, nil, "", err
	}
	if empty != Passes {
		return nil, nil, "", ErrEmpty
	}
	for i := range s.N {
		rest = append(rest, i)
	}
	for {
		if left, err = s.try(rest, ""); err != nil || left != Fails {
			if err == nil && left == Unknown && len(culprits) == 0 {
				err = ErrUnknown
			}
			return culprits, rest, left, err
		}
		set, err := s.minimal(rest)
		if err != nil {
			return nil, nil, "", err
		}
		again, err := s.try(set, " again")
		if err != nil {
			return nil, nil, "", err
		}
		if again != Fails {
			return nil, nil, "", fmt.Errorf("%w: %s failed, and %s when it was tried again", ErrFlaky, Key(set), again)
		}
		culprits = append(culprits, set)
		rest = slices.DeleteFunc(slices.Clone(rest), func(i int) bool { return slices.Contains(set, i) })
	}
}

// minimal shrinks a failing set: to a failing part, else to a failing complement of a part, else it uses smaller parts.
func (s *Search) minimal(set []int) ([]int, error) {
	for parts := 2; len(set) > 1; {
		smaller, whole, err := s.smaller(set, parts)
		switch {
		case err != nil:
			return nil, err
		case smaller != nil && whole:
			set, parts = smaller, 2
		case smaller != nil:
			set, parts = smaller, max(parts-1, 2)
		case parts >= len(set):
			return set, nil
		default:
			parts = min(2*parts, len(set))
		}
	}
	return set, nil
}

// smaller returns a failing part of a set (then part is true), a failing complement of a part, or nil.
func (s *Search) smaller(set []int, parts int) (smaller []int, part bool, err error) {
	chunk := func(i int) (from, to int) { return i * len(set) / parts, (i + 1) * len(set) / parts }
	for _, part := range []bool{true, false} {
		for i := range parts {
			from, to := chunk(i)
			tried := set[from:to]
			if !part {
				tried = slices.Concat(set[:from], set[to:])
			}
			outcome, err := s.try(tried, "")
			if err != nil {
				return nil, false, err
			}
			if outcome == Fails {
				return tried, part, nil
			}
		}
		if parts == 2 { // the complement of a half is the other half
			break
		}
	}
	return nil, false, nil
}

// try tests a set unless its outcome is known.
func (s *Search) try(set []int, note string) (Outcome, error) {
	key := Key(set) + note
	if known, ok := s.Known[key]; ok {
		return known, nil
	}
	outcome, err := s.Test(set)
	if err != nil {
		return "", err
	}
	if s.Known == nil {
		s.Known = map[string]Outcome{}
	}
	s.Known[key] = outcome
	if s.Keep != nil {
		err = s.Keep()
	}
	return outcome, err
}

// Key formats a set in order as ranges, such as "0-3,7"; "none" is the empty set.
func Key(set []int) string {
	if len(set) == 0 {
		return "none"
	}
	var b strings.Builder
	for i := 0; i < len(set); i++ {
		first := set[i]
		for i+1 < len(set) && set[i+1] == set[i]+1 {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if set[i] > first {
			b.WriteString("-" + strconv.Itoa(set[i]))
		}
	}
	return b.String()
}
