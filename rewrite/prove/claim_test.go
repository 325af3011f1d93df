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

// floats returns a computation that returns these float32 numbers and counts its calls.
func floats(asked *int, numbers ...float64) Computation {
	return func(reference.Options, []*reference.Tensor) ([]*reference.Tensor, error) {
		*asked++
		return []*reference.Tensor{reference.NewFloats(onnx.Float, []int{len(numbers)}, numbers)}, nil
	}
}

func one(yield func(Trial, error) bool) { yield(Trial{Name: "some"}, nil) }

// TestClaims compares numbers within bounds.
func TestClaims(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		want, got    []float64
		exact, typed Bound
		holds        bool
	}{
		"equal":                 {[]float64{1, 2}, []float64{1, 2}, BitForBit, BitForBit, true},
		"a bit apart":           {[]float64{1, 2}, []float64{1, 2 + 0x1p-22}, nil, BitForBit, false},
		"a bit apart, exactly":  {[]float64{1, 2}, []float64{1, 2 + 0x1p-50}, BitForBit, nil, false},
		"roundings":             {[]float64{1, 2}, []float64{1, 2 + 0x1p-20}, nil, SumOf(1), true},
		"more than roundings":   {[]float64{1, 2}, []float64{1, 2 + 0x1p-16}, nil, SumOf(1), false},
		"roundings of sums":     {[]float64{1, 2}, []float64{1, 2 + 0x1p-16}, nil, SumOf(4096), true},
		"another function":      {[]float64{1, 2}, []float64{1, 2.00001}, Structural, nil, false},
		"NaN in its place":      {[]float64{1, nan}, []float64{1, nan}, BitForBit, BitForBit, true},
		"a number for NaN":      {[]float64{1, nan}, []float64{1, 2}, BitForBit, BitForBit, false},
		"NaN for a number":      {[]float64{1, 2}, []float64{1, nan}, BitForBit, BitForBit, false},
		"a number for infinity": {[]float64{1, inf}, []float64{1, 2}, BitForBit, BitForBit, false},
		"the other infinity":    {[]float64{1, inf}, []float64{1, -inf}, BitForBit, BitForBit, false},
		"another shape":         {[]float64{1, 2}, []float64{1}, Structural, Structural, false},
	} {
		var asked int
		err := new(Prover).Prove(&Claim{What: "it", Trials: one, Before: floats(&asked, c.want...),
			After: floats(&asked, c.got...), Exact: c.exact, Typed: c.typed})
		if (err == nil) != c.holds {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (errors.As(err, new(*EvalError)) || !strings.Contains(err.Error(), "it (some): ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProver: claims of one key are proven once, unless Every is set, and not at all with Off.
func TestProver(t *testing.T) {
	var asked int
	claim := func(key string, got float64) *Claim {
		return &Claim{What: "claim " + key, Key: key, Trials: one, Before: floats(&asked, 1),
			After: floats(&asked, got), Typed: BitForBit}
	}
	for name, c := range map[string]struct {
		prover Prover
		keys   []string
		asked  int
	}{
		"each kind":  {Prover{}, []string{"a", "a", "b", "a"}, 4},
		"no kind":    {Prover{}, []string{"", ""}, 4},
		"every one":  {Prover{Every: true}, []string{"a", "a"}, 4},
		"assumption": {Prover{Off: true}, []string{"a", "b"}, 0},
	} {
		for _, got := range []float64{1, 2} {
			p := c.prover
			asked = 0
			for _, key := range c.keys {
				if err := p.Prove(claim(key, got)); (err == nil) != (got == 1 || p.Off) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if asked != c.asked {
				t.Errorf("%s: evaluated %d times, want %d", name, asked, c.asked)
			}
			if p.Off && !slices.Equal(p.Assumed, []string{"claim a", "claim b"}) || !p.Off && p.Assumed != nil {
				t.Errorf("%s: assumed %q", name, p.Assumed)
			}
		}
	}
}

// TestClaimsThatCannotBeTried checks the errors, and that only a claim on missing data is assumed.
func TestClaimsThatCannotBeTried(t *testing.T) {
	var asked int
	fails := func(err error) Computation {
		return func(reference.Options, []*reference.Tensor) ([]*reference.Tensor, error) { return nil, err }
	}
	same := floats(&asked, 1)
	broken := errors.New("broken")
	for name, c := range map[string]*Claim{
		"before":    {Trials: one, Before: fails(broken), After: same, Typed: BitForBit},
		"after":     {Trials: one, Before: same, After: fails(broken), Typed: BitForBit},
		"no trials": {Trials: func(func(Trial, error) bool) {}, Before: same, After: same, Typed: BitForBit},
		"no bounds": {Trials: one, Before: same, After: same},
		"missing":   {Trials: one, Before: fails(onnx.ErrMissingData), After: same, Typed: BitForBit},
	} {
		if err := new(Prover).Prove(c); !errors.As(err, new(*EvalError)) {
			t.Errorf("%s: %v", name, err)
		}
		p := Prover{Unverified: true}
		if err := p.Prove(c); (err == nil) != (name == "missing") || len(p.Assumed) > 0 != (err == nil) {
			t.Errorf("%s: %v, assumed %q", name, err, p.Assumed)
		}
	}
}

// TestRegion evaluates the nodes between values as they are at that moment.
func TestRegion(t *testing.T) {
	m := onnx.New(10, 18)
	g := m.Graph
	x, y, z := g.AddInput("x", onnx.Type{DataType: onnx.Float}), g.NewValue("y"), g.NewValue("z")
	g.AddNode("Exp", []*onnx.Value{x}, []*onnx.Value{y})
	n := g.AddNode("Neg", []*onnx.Value{y}, []*onnx.Value{z})
	in := reference.NewFloats(onnx.Float, []int{1}, []float64{2})
	run := func(from *onnx.Value) []float64 {
		got, err := Region(m, []*onnx.Value{from}, []*onnx.Value{z})(reference.Options{Exact: true},
			[]*reference.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		return got[0].F
	}
	if got := run(x); got[0] != -math.Exp(2) {
		t.Errorf("from x: %v", got)
	}
	if got := run(y); got[0] != -2 {
		t.Errorf("from y: %v", got)
	}
	n.OpType = "Sqrt"
	if got := run(y); got[0] != math.Sqrt2 {
		t.Errorf("after the change: %v", got)
	}
	other := Region(m, []*onnx.Value{z}, []*onnx.Value{y})
	if _, err := other(reference.Options{}, []*reference.Tensor{in}); err == nil {
		t.Error("y needs no x")
	}
}

// TestModel computes the outputs that a model has at first, and fails if the model does.
func TestModel(t *testing.T) {
	m := onnx.New(10, 18)
	g := m.Graph
	x, y := g.AddInput("x", onnx.Type{DataType: onnx.Float}), g.NewValue("y")
	n := g.AddNode("Neg", []*onnx.Value{x}, []*onnx.Value{y})
	y.SetType(onnx.Type{DataType: onnx.Float})
	g.AddOutput(y)
	run := Model(m)
	got, err := run(reference.Options{Exact: true}, tensors(2))
	if err != nil || len(got) != 1 || got[0].F[0] != -2 {
		t.Errorf("%v, %v", got, err)
	}
	n.OpType = "NoSuchOp"
	if _, err := run(reference.Options{Exact: true}, tensors(2)); err == nil {
		t.Error("an op that is not there is evaluated")
	}
}
