package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// oneCase is a case with one output.
func oneCase(name string, values ...float32) []golden.Case {
	return []golden.Case{{Outputs: []*onnx.Tensor{onnx.NewFloat32s(name, []int64{1, int64(len(values))}, values)}}}
}

func TestLimitsNeedLogits(t *testing.T) {
	limit := 0.5
	k := &criteria{limitFlags: limitFlags{limits: golden.LogitLimits{MaxKL: &limit}}}
	hidden := oneCase("hidden", 1, 2, 3)
	if err := k.compare(&comparison{}, hidden, hidden, nil); err == nil ||
		!strings.Contains(err.Error(), "name it with --logits") {
		t.Errorf("got %v", err)
	}
	for what, named := range map[string]*criteria{
		"by its name":       {limitFlags: k.limitFlags, logits: []string{"hidden"}},
		"by its vocabulary": {limitFlags: k.limitFlags, vocabulary: 3},
	} {
		r := &comparison{}
		if err := named.compare(r, hidden, hidden, nil); err != nil || !r.Passed ||
			r.Cases[0].Outputs[0].Logits == nil {
			t.Errorf("%s: %v, %+v", what, err, r)
		}
	}
}

// TestBrokenLimit compares logits with a NaN that the tolerances catch, and with a row that they accept.
func TestBrokenLimit(t *testing.T) {
	limit := 0.01
	k := &criteria{atol: []string{"10"}, limitFlags: limitFlags{limits: golden.LogitLimits{MaxKL: &limit}}}
	var err error
	if k.tolerances, err = golden.ParseTolerances(k.atol, nil); err != nil {
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
		r := comparison{}
		if err := k.compare(&r, oneCase("logits", c.got...), oneCase("logits", 1, 2, 3), nil); err != nil {
			t.Fatal(err)
		}
		s := r.Cases[0].Outputs[0]
		if r.Passed || s.Passed != c.outputs || s.Logits.Passed ||
			!strings.Contains(r.Cases[0].Error, "logits: KL divergence") {
			t.Errorf("%v: %+v", c.got, r)
		}
		var out, human bytes.Buffer
		a := &app{out: &out, err: &human, json: true}
		if code := exitCode(k.report(a, []comparison{r})); code != exitFailed {
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
