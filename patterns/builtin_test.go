package patterns

import "testing"

// A printed pattern parses as the same pattern.
func TestPrintedPatterns(t *testing.T) {
	for _, p := range Builtin().Patterns {
		if Builtin().forms[p] != nil {
			continue
		}
		again := NewSet()
		if err := again.Add("printed", p.String()); err != nil {
			t.Errorf("%v in\n%s", err, p)
		} else if got := again.Patterns[0].String(); got != p.String() {
			t.Errorf("got %s, want %s", got, p)
		}
	}
}

func TestBuiltinParses(t *testing.T) {
	names := map[string]bool{}
	anchored := map[string]bool{}
	for _, p := range Builtin().Patterns {
		names[p.Name] = true
		if Builtin().forms[p] != nil {
			anchored[p.Name] = true
			continue
		}
		anchored[p.Name] = anchored[p.Name] || len(p.Anchors) > 0
	}
	for n := range names {
		if !anchored[n] && n != "KeyTranspose" { // three nodes that occur in many places: a miss would be useless
			t.Errorf("no pattern %s has an anchor op", n)
		}
	}
	for _, n := range []string{"RMSNorm", "AddRMSNorm", "SwiGLU", "GeGLU", "RotaryEmbedding"} {
		if !names[n] {
			t.Errorf("no built-in pattern %s", n)
		}
	}
}
