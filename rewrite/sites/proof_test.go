package sites

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

func emptyProof() *proof {
	return &proof{Checker: &Checker{}, c: &Site{slice: &slice{}, Match: &patterns.Match{Domain: "mojo", Op: "GLU"}}}
}

// TestProofs checks the text of differences. Overflows are noted only for half types.
func TestProofs(t *testing.T) {
	p := emptyProof()
	for typ, noted := range map[onnx.DataType]bool{onnx.Float: false, onnx.Float16: true, onnx.BFloat16: true} {
		p.c.narrowest = typ
		if c := p.claim(nil, nil); c.Policy.NoteOverflow != noted || c.Policy.NotFinite != prove.Noted {
			t.Errorf("%s: the policy is %+v", typ, c.Policy)
		}
	}
	trial := prove.Trial{Name: "small inputs"}
	for exact, want := range map[bool]string{true: "on small inputs (in float64, without roundings): far",
		false: "on small inputs: far"} {
		err := p.claim(nil, nil).Differs(trial, exact, errors.New("far"))
		if r := reason.As(err); !strings.HasSuffix(err.Error(), want) || r.Code != reason.Differs ||
			r.Figures["inputs"] != trial.Name || r.Figures["rounded"] != !exact {
			t.Errorf("%v with %v", err, r.Figures)
		}
	}
}

// TestTrials: trials end if the prover wants no more, and other errors are passed on.
func TestTrials(t *testing.T) {
	p, tried, broken := emptyProof(), 0, errors.New("broken")
	all := func() error {
		for range 3 {
			if err := p.try(prove.Trial{}, world{n: tried}); err != nil {
				return err
			}
			tried++
		}
		return broken
	}
	for range p.trials(all) {
		if p.w.n != tried {
			t.Errorf("trial %d is in world %d", tried, p.w.n)
		}
		if tried == 1 {
			break
		}
	}
	if tried != 1 {
		t.Errorf("%d trials after the end", tried)
	}
	tried = 0
	var last error
	for _, err := range p.trials(all) {
		last = err
	}
	if tried != 3 || last != broken {
		t.Errorf("%v after %d trials", last, tried)
	}
}

// TestBounds: the bound grows for a long number in a half-type constant, and for a site that computes in a half type.
func TestBounds(t *testing.T) {
	for x, bound := range map[float64]float64{0.5: prove.StructuralTolerance, 3: prove.StructuralTolerance,
		0.04473876953125: math.Ldexp(8, -11)} {
		s := &slice{numbers: []*reference.Tensor{reference.NewFloats(onnx.Float16, nil, []float64{x})}}
		if got := s.structuralBound(); got != bound {
			t.Errorf("%g: %g instead of %g", x, got, bound)
		}
	}
	g := onnx.New(10, 18).Graph
	for n, bound := range map[int64]float64{1: math.Ldexp(8, -11), 2: prove.StructuralTolerance} {
		x, err := onnx.NewTensor("x", onnx.Float16, []int64{n}, []byte{0xba, 0x29, 0xba, 0x29}[:2*n])
		if err != nil {
			t.Fatal(err)
		}
		s := &slice{consts: []*onnx.Value{g.AddInitializer(x)}}
		if got := s.structuralBound(); got != bound {
			t.Errorf("a constant of %d numbers: %g instead of %g", n, got, bound)
		}
	}
	c := &Site{coarse: onnx.Float16}
	if c.rounds(onnx.Float) != onnx.Float16 || (&Site{}).rounds(onnx.Float) != onnx.Float {
		t.Error("a site rounds to another type than its coarsest")
	}
	if got := c.allowed(0, onnx.Float, 1); got != 8*prove.Spacing(onnx.Float16, 1) {
		t.Errorf("%g is allowed", got)
	}
	c.terms = 1280
	if got := c.allowed(0, onnx.Float, 1); got != 80*prove.Spacing(onnx.Float16, 1) {
		t.Errorf("%g is allowed for a long sum", got)
	}
	if (&Site{coarse: onnx.Double}).rounds(onnx.Float) != onnx.Float {
		t.Error("a finer type is rounded to")
	}
}

// TestInputs: random numbers replace weights without rounding, and missing weights.
func TestInputs(t *testing.T) {
	g := onnx.New(10, 18).Graph
	weight := g.AddInitializer(onnx.NewFloat32s("w", []int64{2}, []float32{100, 200}))
	index := g.AddInitializer(onnx.NewInt64s("i", []int64{100, 200}))
	c := &Site{Match: &patterns.Match{Inputs: []*onnx.Value{weight, index}},
		Types: []onnx.DataType{onnx.Float, onnx.Int64}}
	for exact, stored := range map[bool]bool{true: false, false: true} {
		in, err := (&Checker{}).inputs(c, prove.Zeros, [][]int64{{2}, {2}}, exact)
		if err != nil {
			t.Fatal(err)
		}
		if (in[0].F[1] == 200) != stored || in[0].F[1] == 0 || in[1].I[1] != 200 {
			t.Errorf("exact %v: %v and %v", exact, in[0].F, in[1].I)
		}
	}
}

// TestIntended demands that numbers which the op has instead of a constant become the constant by rounding.
func TestIntended(t *testing.T) {
	table, err := reference.NewFloats(onnx.Float16, []int{2}, []float64{0.3, 0.7}).ToONNX("table")
	if err != nil {
		t.Fatal(err)
	}
	v := onnxtest.New(18).Constant(table)
	for _, c := range []struct {
		numbers []float64
		right   bool
	}{{[]float64{0.3, 0.7}, true}, {[]float64{0.3001, 0.7}, true}, {[]float64{0.3002, 0.7}, false},
		{[]float64{0.3, 0.701}, false}} {
		in := map[*onnx.Value]*reference.Tensor{v: reference.NewFloats(onnx.Float16, []int{2}, c.numbers)}
		if err := (&Site{Match: &patterns.Match{Intended: in}}).intended(); (err == nil) != c.right {
			t.Errorf("%v: %v", c.numbers, err)
		}
	}
}
