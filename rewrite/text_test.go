package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/english"
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

// TestParsePlan refuses files that are no plans of this version.
func TestParsePlan(t *testing.T) {
	const head = `{"schema": 1, "model": {}, "sites": [`
	for text, want := range map[string]string{
		head + `]}`: "",
		head + `{"id": "a", "apply": true}, {"id": "b"}]}`: "",
		`{"schema": 2}`:                         "its schema is 2, and this version reads 1",
		`{"schema": 1, "sites": []}`:            "for which model",
		`{"schema": 1, "model": {}, "site": 1}`: `unknown field "site"`,
		`[]`:                                    "cannot unmarshal",
		head + `{"apply": true}]}`:              "site 0 has no id",
		head + `{"id": "a"}, {"id": "a"}]}`:     `the site "a" stands twice`,
	} {
		_, err := parsePlan([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestTargetsText counts the fused sites of each kind that is no kernel of ours.
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

// TestNothingFound says so of a model without blocks, and of one that has fused ops already that it was patched.
func TestNothingFound(t *testing.T) {
	for want, input := range map[string]*FileReport{
		"nothing found: no block of the model reads like one of 2 patterns\n":   {Nodes: 9},
		"already patched: 3 nodes of 9 are fused, and nothing else was found\n": {Nodes: 9, Fused: 3},
	} {
		var b strings.Builder
		r := &Report{Input: input, Patterns: []PatternReport{{Name: "GLU"}, {Name: "RMSNorm"}}}
		if err := r.WriteText(&b); err != nil || b.String() != want {
			t.Errorf("%q, %v, want %q", b.String(), err, want)
		}
	}
}
