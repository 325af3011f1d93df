package rewrite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

func TestSome(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 3: "a, b, c", 4: "a, b, c and 1 more", 5: "a, b, c and 2 more"} {
		if got := english.Some([]string{"a", "b", "c", "d", "e"}[:n]); got != want {
			t.Errorf("of %d: %q, want %q", n, got, want)
		}
	}
}

func TestWeightsText(t *testing.T) {
	w := &WeightsReport{Expected: 9, Packed: 6, Missing: 3, Unexpected: 1}
	if got, want := w.Text(), "9 expected, 6 packed, 3 missing, 1 unexpected"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.Stored = 1
	if got := w.Text(); !strings.HasSuffix(got, "1 unexpected; 1 of them as they are stored") {
		t.Error(got)
	}
}

// TestParsePlan refuses files that are not plans of this version.
func TestParsePlan(t *testing.T) {
	const head = `{"schema": 1, "model": {}, "sites": [`
	for text, want := range map[string]string{
		head + `]}`: "",
		head + `{"id": "a", "apply": true}, {"id": "b"}]}`: "",
		`{"schema": 2}`:                         "its schema is 2; this version reads 1",
		`{"schema": 1, "sites": []}`:            "is missing",
		`{"schema": 1, "model": {}, "site": 1}`: `unknown field "site"`,
		`[]`:                                    "cannot unmarshal",
		head + `{"apply": true}]}`:              "site 0 has no id",
		head + `{"id": "a"}, {"id": "a"}]}`:     `the site "a" is listed twice`,
	} {
		_, err := parsePlan([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestTargetsText counts the fused sites of each kind without a kernel of ours.
func TestTargetsText(t *testing.T) {
	r := &Report{Sites: []SiteReport{{Status: Fused, Kernel: byStandard}, {Status: Fused, Kernel: byFunction},
		{Status: Fused, Kernel: byStandard}, {Status: Refused, Kernel: byOnnxruntime}, {Status: Fused, Kernel: "cpu"}}}
	var b strings.Builder
	r.writeTargets(&b)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], " 1 site; a function") ||
		!strings.Contains(lines[1], " 2 sites; ops of the standard") {
		t.Errorf("%q", lines)
	}
}

// TestNothingFound distinguishes models without blocks from models that are already patched.
func TestNothingFound(t *testing.T) {
	for want, input := range map[string]*FileReport{
		"nothing found: no block of the model matches one of 2 patterns\n":        {Nodes: 9},
		"already patched: 3 nodes of 9 are fused, and no other block was found\n": {Nodes: 9, Fused: 3},
	} {
		var b strings.Builder
		r := &Report{Input: input, Patterns: []PatternReport{{Name: "GLU"}, {Name: "RMSNorm"}}}
		if err := r.WriteText(&b); err != nil || b.String() != want {
			t.Errorf("%q, %v, want %q", b.String(), err, want)
		}
	}
}

// TestOpsText demands new ops first, then those that changed most, up to the limit of the short text.
func TestOpsText(t *testing.T) {
	b := onnxtest.New(21)
	x := b.Input("x", onnx.Float, 4)
	for _, op := range []string{"mojo:RMSNorm", "Relu", "Neg", "Neg"} {
		x = b.Op(op, x)
	}
	b.Output(x)
	r := &Report{Input: &FileReport{Nodes: 45, Bytes: 2_500_000}, Output: &FileReport{Nodes: 4, Bytes: 1_500_000},
		opsBefore: map[string]int{"Neg": 2, "Relu": 10}}
	for i := range 13 {
		r.opsBefore[fmt.Sprintf("Op%c", 'A'+i)] = 2
	}
	r.opsBefore["OpM"] = 9
	r.CountOps(b.Model)
	text := r.opsText(false)
	for _, want := range []string{
		"  mojo.RMSNorm               0     1    OpM                        9     0\n  Relu  ",
		"  the counts of 3 other ops changed too: -v lists them\n",
		"  all                       45     4    2.5 MB before, 1.5 MB after\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if all := r.opsText(true); strings.Contains(all, "other op") || strings.Contains(all, "Neg") ||
		!strings.Contains(all, "OpL") {
		t.Errorf("with -v:\n%s", all)
	}
	r.opsBefore = map[string]int{"mojo.RMSNorm": 1, "Relu": 1, "Neg": 2}
	if r.CountOps(b.Model); r.opsText(true) != "" {
		t.Errorf("nothing changed:\n%s", r.opsText(true))
	}
}

// TestNothingFusedText demands that the text names a patch that only moves transpositions.
func TestNothingFusedText(t *testing.T) {
	moved := SiteReport{Pattern: "KeyTranspose", Op: "Transpose", Status: Fused}
	for want, sites := range map[string][]SiteReport{
		"nothing fused: only transpositions are moved, at 2 sites\n": {moved, moved},
		"": {moved, {Pattern: "RMSNorm", Op: "mojo.RMSNorm", Status: Fused}},
	} {
		r := &Report{Sites: sites, Patterns: []PatternReport{{Name: "KeyTranspose", Found: 2, Fused: 2}}}
		var b strings.Builder
		if err := r.WriteCounts(&b, false); err != nil || !strings.Contains(b.String(), want) ||
			strings.Contains(b.String(), "nothing fused") != (want != "") {
			t.Errorf("%v: %v, %q", sites, err, b.String())
		}
	}
}
