package golden

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Stats measures how far a tensor is from the expected one. Errors are over the pairs of finite elements.
type Stats struct {
	Name     string `json:"name"`
	DataType string `json:"dtype"`
	// GotType is the other tensor's type if it is another float type.
	GotType  string  `json:"got_dtype,omitempty"`
	Shape    []int64 `json:"shape"`
	Elements int64   `json:"elements"`

	MaxAbs  Number `json:"max_abs"`
	MeanAbs Number `json:"mean_abs"`
	// MaxRel and MeanRel are |got-want|/|want|, over the elements whose expected value is not zero.
	MaxRel  Number `json:"max_rel"`
	MeanRel Number `json:"mean_rel"`
	// MaxULP is MaxAbs in units in the last place of MaxWant, the largest expected magnitude; 0 for integers.
	MaxULP  Number `json:"max_ulp"`
	MaxWant Number `json:"max_want"`
	// Cosine is the cosine similarity, 1 if both tensors are zero or empty; RelativeL2 is ||got-want|| / ||want||.
	Cosine     Number `json:"cosine"`
	RelativeL2 Number `json:"relative_l2"`

	// Worst is the element with the largest error, or the first with a NaN or infinity on one side only; nil if all are
	// equal.
	Worst *Element `json:"worst,omitempty"`
	// Got and Want count NaNs and infinities on either side.
	Got  NonFinite `json:"got"`
	Want NonFinite `json:"want"`

	// Logits compares the distributions over the vocabulary; nil for other outputs.
	Logits *LogitStats `json:"logits,omitempty"`

	// Within counts the elements within the tolerance, and Share is their share of all.
	Within    int64     `json:"within"`
	Share     float64   `json:"share"`
	Tolerance Tolerance `json:"tolerance"`
	Passed    bool      `json:"passed"`
}

// Element is a pair of elements and their index.
type Element struct {
	Index []int64 `json:"index"`
	Got   Number  `json:"got"`
	Want  Number  `json:"want"`
}

// NonFinite counts the values of a tensor that are not finite.
type NonFinite struct {
	NaN int64 `json:"nan"`
	Inf int64 `json:"inf"`
}

func (n *NonFinite) add(x float64) {
	if math.IsNaN(x) {
		n.NaN++
	} else if math.IsInf(x, 0) {
		n.Inf++
	}
}

// Number is a float64 whose JSON form is a string for NaN and infinities.
type Number float64

// MarshalJSON writes a number, or "NaN", "+Inf", "-Inf".
func (n Number) MarshalJSON() ([]byte, error) {
	if notFinite(float64(n)) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(float64(n), 'g', -1, 64)), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalJSON reads the output of MarshalJSON.
func (n *Number) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	*n = Number(f)
	return err
}

// Summary returns the statistics in one line.
func (s Stats) Summary() string {
	var b strings.Builder
	verdict := "passed"
	if !s.Passed {
		verdict = "FAILED"
	}
	fmt.Fprintf(&b, "%s %s %s%v: max abs %.3g, mean abs %.3g, max rel %.3g", verdict, s.Name, s.DataType, s.Shape,
		s.MaxAbs, s.MeanAbs, s.MaxRel)
	if s.MaxULP > 0 {
		fmt.Fprintf(&b, ", %.3g ulp of max", s.MaxULP)
	}
	fmt.Fprintf(&b, ", cosine %.9g, %d of %d within %s", s.Cosine, s.Within, s.Elements, s.Tolerance)
	if s.Worst != nil {
		fmt.Fprintf(&b, "; worst at %v: got %v, want %v", s.Worst.Index, s.Worst.Got, s.Worst.Want)
	}
	if s.Got != s.Want || s.Got != (NonFinite{}) {
		fmt.Fprintf(&b, "; got %d NaN and %d Inf, want %d and %d", s.Got.NaN, s.Got.Inf, s.Want.NaN, s.Want.Inf)
	}
	return b.String()
}

// Allowed returns the tolerated error of an element near zero, relative to the greatest magnitude.
func (s Stats) Allowed() float64 {
	t, err := onnx.ParseDataType(s.DataType)
	if err != nil || s.MaxWant == 0 {
		return s.Tolerance.Abs
	}
	return (s.Tolerance.Abs + s.Tolerance.ULP*ulp(t, float64(s.MaxWant))) / float64(s.MaxWant)
}

// CompareAll compares the outputs of a run with the expected ones, matched by name, in the order of want. It compares
// all pairs that it can; the error joins the others: missing outputs, and outputs of another type or shape.
func CompareAll(got, want []*onnx.Tensor, t Tolerances) ([]Stats, error) {
	var all []Stats
	var errs []error
	for _, w := range want {
		g := byName(got, w.Name)
		if g == nil {
			errs = append(errs, fmt.Errorf("output %q is missing; the outputs are %s", w.Name,
				quoted(got, func(t *onnx.Tensor) string { return t.Name })))
			continue
		}
		s, err := Compare(g, w, t.For(w.Name, coarser(g.DataType, w.DataType)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// Passed reports whether every comparison passed.
func Passed(all []Stats) bool {
	return !slices.ContainsFunc(all, func(s Stats) bool { return !s.Passed })
}
