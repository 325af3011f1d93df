package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/trace"
)

// oneCase is a case with one output.
func oneCase(name string, values ...float32) []golden.Case {
	return []golden.Case{{Outputs: []*onnx.Tensor{onnx.NewFloat32s(name, []int64{1, int64(len(values))}, values)}}}
}

func TestLimitsNeedLogits(t *testing.T) {
	limit := 0.5
	k := &Criteria{LimitFlags: LimitFlags{Limits: golden.LogitLimits{MaxKL: &limit}}}
	hidden := oneCase("hidden", 1, 2, 3)
	if err := k.Compare(&Comparison{}, hidden, hidden, nil); err == nil ||
		!strings.Contains(err.Error(), "name it with --logits") {
		t.Errorf("got %v", err)
	}
	for what, named := range map[string]*Criteria{
		"by its name":       {LimitFlags: k.LimitFlags, logits: []string{"hidden"}},
		"by its vocabulary": {LimitFlags: k.LimitFlags, Vocabulary: 3},
	} {
		r := &Comparison{}
		if err := named.Compare(r, hidden, hidden, nil); err != nil || !r.Passed ||
			r.Cases[0].Outputs[0].Logits == nil {
			t.Errorf("%s: %v, %+v", what, err, r)
		}
	}
}

// TestBrokenLimit compares logits with a NaN that the tolerances catch, and with a row that they accept.
func TestBrokenLimit(t *testing.T) {
	limit := 0.01
	k := &Criteria{atol: []string{"10"}, LimitFlags: LimitFlags{Limits: golden.LogitLimits{MaxKL: &limit}}}
	var err error
	if k.Tolerances, err = golden.ParseTolerances(k.atol, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		got     []float32
		outputs bool // the verdict of the tolerances
		kl      string
	}{
		{[]float32{3, 2, 1}, true, `"max_kl": 1.150`},
		{[]float32{1, 2, float32(math.NaN())}, false, `"max_kl": "+Inf"`},
	} {
		r := Comparison{}
		if err := k.Compare(&r, oneCase("logits", c.got...), oneCase("logits", 1, 2, 3), nil); err != nil {
			t.Fatal(err)
		}
		s := r.Cases[0].Outputs[0]
		if r.Passed || s.Passed != c.outputs || s.Logits.Passed ||
			!strings.Contains(r.Cases[0].Error, "logits: KL divergence") {
			t.Errorf("%v: %+v", c.got, r)
		}
		var out, human bytes.Buffer
		a := &cli.App{Out: &out, Err: &human, JSON: true}
		if code := cli.ExitCode(k.Report(a, []Comparison{r})); code != cli.ExitFailed {
			t.Errorf("exit code %d", code)
		}
		if !json.Valid(out.Bytes()) || !strings.Contains(out.String(), c.kl) {
			t.Errorf("%v: no %s in\n%s", c.got, c.kl, out.String())
		}
		if !strings.Contains(human.String(), "FAILED") {
			t.Errorf("said\n%s", human.String())
		}
	}
}

// TestNearTies names the tie in the row that differs first, then the others of its case, if no token went elsewhere.
func TestNearTies(t *testing.T) {
	k := &Criteria{}
	want, got := oneCase("y", 1, 2, 3, 4), oneCase("y", 1, 2, 3, 9)
	want[0].Outputs[0].Dims, got[0].Outputs[0].Dims = []int64{1, 2, 2}, []int64{1, 2, 2}
	near := func(number int, token int64) trace.Near {
		return trace.Near{Value: "ids", Block: "layer 3 experts", Case: number, Tokens: 2, Token: token, Expert: 5,
			Other: 7, Margin: 1e-4}
	}
	for _, flips := range []int{0, 1} {
		c := Comparison{}
		if err := k.Compare(&c, got, want, nil); err != nil || c.Passed {
			t.Fatal(err, c)
		}
		var out, said bytes.Buffer
		r := &LayersReport{Passed: true, flips: flips,
			Values: &trace.Comparison{Near: []trace.Near{near(0, 0), near(1, 1), near(0, 1)}}}
		r.Settle(&cli.App{Out: &out, Err: &said}, &c, false)
		list := `2 ties between two experts that other roundings may decide otherwise:
  case 0, layer 3 experts, "ids": token 1: experts 5 and 7, margin 0.0001 (y is worst at [0 1 1], in this row)
  case 0, layer 3 experts, "ids": token 0: experts 5 and 7, margin 0.0001
`
		if text := out.String() + said.String(); strings.Contains(text, list) != (flips == 0) {
			t.Errorf("%d flips: %s", flips, text)
		}
	}
}
