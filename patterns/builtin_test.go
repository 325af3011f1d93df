package patterns

import "testing"

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
		if !anchored[n] && n != "KeyTranspose" { // of three nodes that stand in many places: a miss would say nothing
			t.Errorf("no pattern %s has an anchor op", n)
		}
	}
	for _, n := range []string{"RMSNorm", "AddRMSNorm", "SwiGLU", "GeGLU", "RotaryEmbedding"} {
		if !names[n] {
			t.Errorf("no built-in pattern %s", n)
		}
	}
}
