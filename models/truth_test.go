package models

import (
	"maps"
	"testing"
)

func TestTruth(t *testing.T) {
	want := map[string]Blocks{"a": {RMSNorm: 5, GLU: 2, MoE: 3, Router: 3}, "b": {MoE: 2, Router: 1}}
	for _, text := range []string{
		`{"a": {"rmsnorm": 5, "glu": 2, "moe": 3, "opset": 17}, "b": {"moe": 2, "router": 1}}`,
		`{"models": {"a": {"opset": 17, "blocks": {"rmsnorm": 5, "glu": 2, "moe": 3}}, "b": {"blocks": {"moe": 2, ` +
			`"router": 1}}}}`,
	} {
		got, err := parseTruth([]byte(text))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %+v, error %v", text, got, err)
		}
	}
	if _, err := parseTruth([]byte(`{"a": {"moe": "two"}}`)); err == nil {
		t.Error("a count that is no number: no error")
	}
}

func TestCompare(t *testing.T) {
	truth := Blocks{RMSNorm: 5, GLU: 2, Router: 2, MoE: 2}
	for _, c := range []struct {
		fused Blocks
		left  int
		ok    bool
	}{
		{truth, 0, true},
		{Blocks{RMSNorm: 4, GLU: 2, Router: 2, MoE: 1}, 2, true},
		{Blocks{RMSNorm: 5, GLU: 6, Router: 2, MoE: 1}, 1, true}, // gated MLPs of the experts that were left
		{Blocks{RMSNorm: 5, GLU: 3, Router: 2, MoE: 2}, 0, false},
		{Blocks{RMSNorm: 6, GLU: 2, Router: 1, MoE: 2}, 1, false},
		{Blocks{RMSNorm: 5, GLU: 2, Router: 2, MoE: 3}, 0, false},
	} {
		if left, ok := truth.Compare(c.fused); left != c.left || ok != c.ok {
			t.Errorf("%+v: %d left, %v; expected %d, %v", c.fused, left, ok, c.left, c.ok)
		}
	}
}
