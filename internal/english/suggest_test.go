package english

import "testing"

func TestSuggestion(t *testing.T) {
	known := []string{"AddRMSNorm", "RMSNorm", "Attention", "MoE", "fit:RMSNorm", "--output", "--only"}
	for _, c := range []struct{ word, want string }{
		{"attention", "Attention"},
		{"Atention", "Attention"},
		{"Attenion", "Attention"},
		{"rmsnorm", "RMSNorm"},
		{"addrmsnrom", "AddRMSNorm"},
		{"moe", "MoE"},
		{"--outptu", "--output"},
		{"--out", "--output"},
		{"Softmax", ""},
		{"--verbose", ""},
		{"", ""},
	} {
		want := ""
		if c.want != "" {
			want = " (did you mean \"" + c.want + "\"?)"
		}
		if got := Suggestion(c.word, known); got != want {
			t.Errorf("%q: %q, not %q", c.word, got, want)
		}
	}
}
