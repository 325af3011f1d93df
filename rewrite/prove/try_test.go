package prove

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// numbers returns a computation that returns these float32 numbers and err.
func numbers(err error, x ...float64) Computation {
	return func(reference.Options, []*reference.Tensor) ([]*reference.Tensor, error) {
		return tensors(x...), err
	}
}

func tensors(x ...float64) []*reference.Tensor {
	return []*reference.Tensor{reference.NewFloats(onnx.Float, []int{len(x)}, x)}
}

// inTurn tries these trials.
func inTurn(trials ...Trial) func(func(Trial, error) bool) {
	return func(yield func(Trial, error) bool) {
		for _, t := range trials {
			if !yield(t, nil) {
				return
			}
		}
	}
}

// TestPolicies tries one claim under each policy. Both sides agree on the second trial.
func TestPolicies(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	broken := errors.New("broken")
	rounded := Trial{Name: "first inputs", Kind: "first", Pass: Rounded}
	for name, c := range map[string]struct {
		before, after Computation
		policy        Policy
		pass          Pass
		holds         bool
		cases         int
		overflow      bool // whether it is noted for the first trial
	}{
		"numbers for NaN": {numbers(nil, nan), numbers(nil, 1), Policy{}, Rounded, false, 1, false},
		"noted numbers":   {numbers(nil, nan), numbers(nil, 1), Policy{NotFinite: Noted}, Rounded, true, 2, true},
		"noted numbers, exactly": {numbers(nil, inf), numbers(nil, 1), Policy{NotFinite: Noted}, Exactly, true, 2,
			true},
		"open numbers":      {numbers(nil, nan), numbers(nil, 1), Policy{NotFinite: LeftOpen}, Rounded, true, 2, false},
		"NaN for numbers":   {numbers(nil, 1), numbers(nil, nan), Policy{NotFinite: LeftOpen}, Rounded, false, 1, false},
		"overflow":          {numbers(ErrOverflow, 1), numbers(nil, 2), Policy{}, Rounded, true, 1, false},
		"overflow, exactly": {numbers(ErrOverflow, 1), numbers(nil, 2), Policy{}, Exactly, false, 1, false},
		"noted overflow": {numbers(ErrOverflow, 1), numbers(nil, 2), Policy{NoteOverflow: true}, Rounded,
			true, 1, true},
		"overflow to the same": {numbers(ErrOverflow, 1), numbers(nil, 1), Policy{NoteOverflow: true}, Rounded,
			true, 1, false},
		"overflow to the bound": {numbers(ErrOverflow, 1), numbers(nil, 1+0x1p-19), Policy{NoteOverflow: true}, Rounded,
			true, 1, false},
		"overflow to infinity": {numbers(ErrOverflow, inf), numbers(nil, 1), Policy{NoteOverflow: true}, Rounded,
			true, 1, true},
		"overflow, and After ends": {numbers(ErrOverflow, 1), numbers(broken), Policy{NoteOverflow: true}, Rounded,
			true, 1, false},
		"a difference": {numbers(nil, 1), numbers(nil, 2), Policy{}, Rounded, false, 1, false},
		"an excused one": {numbers(nil, 1), numbers(nil, 2), Policy{Excused: []string{"first"}}, Rounded,
			true, 1, true},
		"excused, exactly": {numbers(nil, 1), numbers(nil, 2), Policy{Excused: []string{"first"}}, Exactly,
			false, 1, false},
		"excused elsewhere": {numbers(nil, 1), numbers(nil, 2), Policy{Excused: []string{"other"}}, Rounded,
			false, 1, false},
		"undefined": {numbers(broken), numbers(nil, 2), Policy{}, Rounded, false, 0, false},
		"undefined as it may be": {numbers(broken), numbers(nil, 2), Policy{Undefined: func(err error) bool {
			return errors.Is(err, broken)
		}}, Rounded, true, 1, false},
		"undefined otherwise": {numbers(broken), numbers(nil, 2), Policy{Undefined: func(error) bool {
			return false
		}}, Rounded, false, 0, false},
		"settled": {numbers(nil, 1), numbers(nil, 2), Policy{Settle: func(t Trial, exact bool, want,
			got []*reference.Tensor) error {
			if t.Kind == "first" && !exact {
				got[0] = want[0]
			}
			return nil
		}}, Rounded, true, 2, false},
		"not settled": {numbers(nil, 1), numbers(nil, 2), Policy{Settle: func(Trial, bool, []*reference.Tensor,
			[]*reference.Tensor) error {
			return broken
		}}, Rounded, false, 0, false},
	} {
		first := rounded
		first.Pass = c.pass
		second := Trial{Name: "second", Kind: "second", Pass: Rounded, Inputs: tensors(1)}
		var r CheckReport
		claim := &Claim{What: "it", Trials: inTurn(first, second), Exact: Structural, Typed: SumOf(1), Policy: c.policy,
			Before: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
				if len(in) == 0 {
					return c.before(o, in)
				}
				return tensors(3), nil
			}}
		tried := 0
		claim.After = func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			if tried++; tried == 1 && name != "undefined as it may be" {
				return c.after(o, in)
			}
			return tensors(3), nil
		}
		err := claim.Try(&r)
		if (err == nil) != c.holds || r.Cases != c.cases {
			t.Errorf("%s: %v after %d cases, not %d", name, err, r.Cases, c.cases)
		}
		if noted := slices.Equal(r.Overflow, []string{"first"}); noted != c.overflow || !noted && r.Overflow != nil {
			t.Errorf("%s: %q is noted", name, r.Overflow)
		}
		if name == "an excused one" && (r.MaxAbs != 0 || r.Tolerance == 0) {
			t.Errorf("%s: the figures are %+v", name, r)
		}
	}
}

// TestPasses tries trials in their passes, the exact one first, if these have a bound.
func TestPasses(t *testing.T) {
	var asked []bool
	count := func(o reference.Options, _ []*reference.Tensor) ([]*reference.Tensor, error) {
		asked = append(asked, o.Exact)
		return tensors(1), nil
	}
	for name, c := range map[string]struct {
		pass         Pass
		exact, typed Bound
		want         []bool
	}{
		"both":              {Both, BitForBit, BitForBit, []bool{true, false}},
		"exactly":           {Exactly, BitForBit, nil, []bool{true}},
		"exactly of two":    {Exactly, BitForBit, BitForBit, []bool{true}},
		"rounded":           {Rounded, BitForBit, BitForBit, []bool{false}},
		"one bound":         {Both, nil, BitForBit, []bool{false}},
		"the other":         {Both, BitForBit, nil, []bool{true}},
		"none of its bound": {Rounded, BitForBit, nil, nil},
	} {
		asked = nil
		claim := &Claim{What: "it", Trials: inTurn(Trial{Pass: c.pass}), Before: count, After: numbers(nil, 1),
			Exact: c.exact, Typed: c.typed}
		also := 0
		claim.Also = func(_ Trial, want, got []*reference.Tensor, r *CheckReport) error {
			also++
			return nil
		}
		var r CheckReport
		err := claim.Try(&r)
		rounded := slices.Contains(c.want, false)
		if !slices.Equal(asked, c.want) || (also == 1) != rounded || r.Cases != len(c.want) {
			t.Errorf("%s: evaluated %v, and looked %d times", name, asked, also)
		}
		// A claim with a typed bound needs a rounded case.
		if told := len(c.want) > 0 && (c.typed == nil || rounded); (err == nil) != told || err != nil &&
			!errors.As(err, new(*EvalError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTryStops: Try stops at the first failing trial and reports it in the claim's words.
func TestTryStops(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		after   Computation
		also    error
		differs bool
		want    string
	}{
		"a difference": {numbers(nil, 2), nil, false,
			"it (one): output \"y\" differs by 1, its greatest magnitude being 1 and 0 allowed"},
		"in own words": {numbers(nil, 2), nil, true,
			"own words: output \"y\" by 1, its greatest magnitude being 1 and 0 allowed"},
		"the rest":      {numbers(nil, 1), broken, false, "it (one): broken"},
		"the rest, too": {numbers(nil, 1), broken, true, "broken"},
	} {
		trials := 0
		claim := &Claim{What: "it", Outputs: []string{"y"}, Before: numbers(nil, 1), After: c.after, Typed: BitForBit,
			Trials: func(yield func(Trial, error) bool) {
				for trials++; yield(Trial{Name: "one"}, nil); trials++ {
				}
			},
			Also: func(Trial, []*reference.Tensor, []*reference.Tensor, *CheckReport) error { return c.also }}
		if c.differs {
			claim.Differs = func(_ Trial, _ bool, err error) error { return errors.New("own words: " + err.Error()) }
		}
		if err := claim.Try(new(CheckReport)); err == nil || err.Error() != c.want || trials != 1 {
			t.Errorf("%s: %v after %d trials", name, err, trials)
		}
	}
	for _, err := range []error{broken, &EvalError{Err: broken}} {
		claim := &Claim{Before: numbers(nil, 1), After: numbers(nil, 1), Typed: BitForBit,
			Trials: func(yield func(Trial, error) bool) { yield(Trial{}, err) }}
		if got := claim.Try(new(CheckReport)); got != err {
			t.Errorf("%v instead of %v", got, err)
		}
	}
}

// TestChecks tries claims of one key once, each with its own figures.
func TestChecks(t *testing.T) {
	tooMany := errors.New("too many")
	for name, c := range map[string]struct {
		prover Prover
		keys   string
		tried  string
		errs   int
	}{
		"each kind": {Prover{}, "aabaB", "abB", 0},
		"every one": {Prover{Every: true, Most: 1, TooMany: tooMany}, "aab", "aab", 0},
		"none":      {Prover{Off: true}, "ab", "", 0},
		"a few":     {Prover{Most: 2, TooMany: tooMany}, "abacb", "ab", 1},
		"a failure": {Prover{}, "xxa", "xa", 2},
	} {
		tried, errs, p := "", 0, c.prover
		for _, key := range c.keys {
			before := len(tried)
			r, err := p.Check("claim", func() string { return string(key) }, func(r *CheckReport) error {
				tried += string(key)
				r.Cases = int(key)
				if key == 'x' {
					return errors.New("x")
				}
				return nil
			})
			if err != nil {
				errs++
			}
			switch {
			case p.Off || errors.Is(err, tooMany):
				if r != nil {
					t.Errorf("%s: figures of what was not tried", name)
				}
			case r.Cases != int(key) || r.Shared == (len(tried) > before):
				t.Errorf("%s: the figures of %c are %+v", name, key, r)
			}
		}
		if tried != c.tried || errs != c.errs || len(p.Assumed) != map[bool]int{true: len(c.keys)}[p.Off] {
			t.Errorf("%s: tried %s with %d errors, assumed %d", name, tried, errs, len(p.Assumed))
		}
	}
}

// TestComparisons: the error describes the first difference.
func TestComparisons(t *testing.T) {
	float := func(typ onnx.DataType, x ...float64) *reference.Tensor {
		return reference.NewFloats(typ, []int{len(x)}, x)
	}
	list := func(t ...*reference.Tensor) []*reference.Tensor { return t }
	one, ints := float(onnx.Float, 1), reference.NewInts(onnx.Int64, []int{1}, []int64{1})
	nan := float(onnx.Float, math.NaN())
	for name, c := range map[string]struct {
		how       Comparison
		want, got []*reference.Tensor
		message   string
	}{
		"equal":          {Comparison{}, list(one, ints), list(one, ints), ""},
		"another number": {Comparison{}, list(one, one), list(one), "1 outputs instead of 2"},
		"none":           {Comparison{}, list(one), list(nil), `output "0" has no value`},
		"none expected":  {Comparison{}, list(nil), list(one), `output "0" has no value`},
		"some":           {Comparison{Some: true}, list(nil, one), list(one, one), ""},
		"none of some":   {Comparison{Some: true}, list(one), list(nil), `output "0" has no value`},
		"shapes": {Comparison{By: "it"}, list(one), list(float(onnx.Float, 1, 2)),
			`output "0" has the shape [1], it returns [2]`},
		"types": {Comparison{By: "it"}, list(one), list(float(onnx.Double, 1)),
			`output "0" is float32, it returns float64`},
		"types, exactly":    {Comparison{Exact: true}, list(one), list(float(onnx.Double, 1)), ""},
		"integers for ones": {Comparison{Exact: true, Strict: true}, list(nan), list(ints), "differs"},
		"integers": {Comparison{}, list(ints), list(reference.NewInts(onnx.Int64, []int{1}, []int64{2})),
			"the elements of output"},
		"NaN":           {Comparison{}, list(nan), list(one), ""},
		"NaN, strictly": {Comparison{Strict: true}, list(nan), list(one), `output "0" has 1 instead of NaN`},
		"a name": {Comparison{Names: []string{"a", "b"}}, list(one, one), list(one, float(onnx.Float, 3)),
			`output "b" by 2, its greatest magnitude being 1 and 0.5 allowed`},
		"few words": {Comparison{Terse: true}, list(one), list(float(onnx.Float, 3)),
			`output "0" by 2, its greatest magnitude being 1`},
		"a sentence":   {Comparison{Says: true}, list(one), list(float(onnx.Float, 3)), `output "0" differs by 2, its`},
		"at the bound": {Comparison{}, list(one), list(float(onnx.Float, 1.5)), ""},
		"wider": {Comparison{Wider: func(d *Difference) error { d.Allowed = 2; return nil }}, list(one),
			list(float(onnx.Float, 3)), ""},
		"not wide enough": {Comparison{Wider: func(d *Difference) error { d.Allowed = 1.9; return nil }}, list(one),
			list(float(onnx.Float, 3)), "1.9 allowed"},
		"no wider one": {Comparison{Wider: func(*Difference) error { return errors.New("none") }}, list(one),
			list(float(onnx.Float, 3)), "none"},
		"no need of one": {Comparison{Wider: func(*Difference) error { return errors.New("none") }}, list(one),
			list(float(onnx.Float, 1.5)), ""},
	} {
		each := 0
		c.how.Bound = func(_ int, _ onnx.DataType, magnitude float64) float64 { return magnitude / 2 }
		c.how.Each = func(*Difference) { each++ }
		err := c.how.Compare(c.want, c.got)
		if name == "integers for ones" {
			continue // it must not panic
		}
		if (err == nil) != (c.message == "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "few words" && strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: %v", name, err)
		}
		floats := strings.Contains(c.message, "magnitude") || name == "wider" || name == "at the bound"
		if floats && each == 0 {
			t.Errorf("%s: nobody heard of it", name)
		}
	}
}

// TestFigures keeps the largest difference without rounding, and with rounding the one closest to its bound.
func TestFigures(t *testing.T) {
	var r CheckReport
	for _, d := range []*Difference{{Far: 1, Scale: 4}, {Far: 1, Scale: 2}, {Far: 1, Scale: 8}} {
		r.exact(d)
	}
	if r.Structural != 0.5 {
		t.Errorf("the greatest of 1/4, 1/2 and 1/8 is %g", r.Structural)
	}
	nearest := CheckReport{MaxAbs: 2, MaxRel: 0.2, Tolerance: 4, ToleranceRel: 0.4, Structural: 0.5}
	for _, d := range []*Difference{{Far: 3, Scale: 10, Allowed: 8}, {Far: 2, Scale: 10, Allowed: 4},
		{Far: 3, Scale: 10, Allowed: 7}, {Far: 4, Scale: 10, Allowed: 8}} {
		r.rounded(d)
	}
	if r.MaxAbs != nearest.MaxAbs || r.MaxRel != nearest.MaxRel || r.Tolerance != nearest.Tolerance ||
		r.ToleranceRel != nearest.ToleranceRel {
		t.Errorf("the nearest to its bound is %+v", r)
	}
	for _, got := range [][]*reference.Tensor{{nil}, tensors(1, 2)} {
		r.NumbersForNone("other elements", tensors(math.NaN()), got)
		r.NumbersForNone("no elements", []*reference.Tensor{nil}, got)
	}
	if r.Overflow != nil {
		t.Errorf("%q of what cannot be compared", r.Overflow)
	}
	r.NumbersForNone("a", tensors(1, math.Inf(1)), tensors(1, 1))
	r.NumbersForNone("b", tensors(1, math.Inf(1)), tensors(1, math.NaN()))
	r.NumbersForNone("a", tensors(1, math.Inf(1)), tensors(1, 1))
	if !slices.Equal(r.Overflow, []string{"a"}) {
		t.Errorf("%q returns numbers", r.Overflow)
	}
}

// TestLaterOutputs compares outputs after a skipped one, and bounds only the first output.
func TestLaterOutputs(t *testing.T) {
	how := Comparison{Some: true, Bound: BitForBit}
	if how.Compare(append([]*reference.Tensor{nil}, tensors(1)...), append(tensors(1), tensors(2)...)) == nil {
		t.Error("what follows is not compared")
	}
	bound := First(Structural)
	if bound(0, onnx.Float, 1) != StructuralTolerance || bound(1, onnx.Float, 1) != 0 {
		t.Error("the bound of the first output is another one")
	}
	claim := &Claim{Trials: inTurn(Trial{Pass: Exactly}, Trial{Pass: Rounded}), Before: numbers(nil, 1),
		After: numbers(nil, 2), Typed: BitForBit}
	if claim.Try(new(CheckReport)) == nil {
		t.Error("the trial behind one of the other pass is not tried")
	}
	claim = &Claim{Trials: inTurn(Trial{}), After: numbers(nil, 2), Exact: BitForBit, Typed: BitForBit,
		Policy: Policy{Undefined: func(error) bool { return true }},
		Before: func(o reference.Options, _ []*reference.Tensor) ([]*reference.Tensor, error) {
			if o.Exact {
				return nil, errors.New("undefined")
			}
			return tensors(1), nil
		}}
	if err := claim.Try(new(CheckReport)); err == nil || errors.As(err, new(*EvalError)) {
		t.Errorf("what is undefined without rounding is not tried with it: %v", err)
	}
}

// TestPending: Holds repeats the result of a claim, and assumed claims have no figures.
func TestPending(t *testing.T) {
	asked := 0
	p := new(Prover)
	w := p.Before(&Claim{Trials: one, Before: numbers(nil, 1), After: floats(&asked, 2), Typed: BitForBit})
	if first, again := w.Holds(), w.Holds(); first == nil || again == nil || asked != 1 || p.Report.Cases != 1 {
		t.Errorf("%v, then %v after %d evaluations", first, again, asked)
	}
	other := (&Prover{Off: true, Every: true, Unverified: true}).Other()
	if p.Checked() == nil || other.Checked() != nil || !other.Every || !other.Unverified {
		t.Errorf("figures %v of an assumption", other.Checked())
	}
}

// TestOnce tries a key once, repeats its error, and notes inputs once.
func TestOnce(t *testing.T) {
	broken, tried := errors.New("broken"), 0
	p := new(Prover)
	for range 2 {
		if err := p.Once("key", func() error { tried++; return broken }); err != broken || tried != 1 {
			t.Errorf("%v after %d trials", err, tried)
		}
	}
	var r CheckReport
	for _, inputs := range []string{"a", "b", "a"} {
		r.TiedOn(inputs)
	}
	if !slices.Equal(r.Ties, []string{"a", "b"}) {
		t.Errorf("noted %q", r.Ties)
	}
	err := &EvalError{Err: broken}
	if !errors.Is(err, broken) || err.Error() != "cannot be checked: broken" {
		t.Error(err)
	}
}
