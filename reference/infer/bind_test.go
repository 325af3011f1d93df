package infer

import "testing"

func TestBindDim(t *testing.T) {
	sizes := map[string]int64{"batch": 2, "past": 5, "seq": 7, "a-b": 3, "kept + whole": 9}
	for name, want := range map[string]int64{"batch": 2, "past + seq": 12, "2*(past + 1)": 12, "seq//2": 3, "a-b": 3,
		"16": 16, "kept + whole": 9, "seq - past": 2} {
		if got := BindDim(name, sizes); got.Value != want {
			t.Errorf("%q: %v, want %d", name, got, want)
		}
	}
	for name, want := range map[string]string{"past - seq": "past - seq", "other": "other", "past + other": "5 + other",
		"": "", "past +": "past +", "2*(other + seq)": "2 * ( other + 7 )", "other + more": "other + more"} {
		got := BindDim(name, sizes)
		if got.Value != -1 || got.Param != want {
			t.Errorf("%q: %v, want %q", name, got, want)
		}
		if again := BindDim(got.Param, map[string]int64{"other": 3, "more": 1}); want == "5 + other" &&
			again.Value != 8 {
			t.Errorf("%q, with the rest: %v", name, again)
		}
	}
}
