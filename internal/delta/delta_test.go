package delta

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// fault fails for every set that contains one of the groups.
func fault(groups ...[]int) func([]int) (Outcome, error) {
	return func(set []int) (Outcome, error) {
		for _, g := range groups {
			if !slices.ContainsFunc(g, func(i int) bool { return !slices.Contains(set, i) }) {
				return Fails, nil
			}
		}
		return Passes, nil
	}
}

func TestCulprits(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		want [][]int
		most int // tests
	}{
		"none":                {64, nil, 2},
		"one of one":          {1, [][]int{{0}}, 4},
		"one":                 {64, [][]int{{37}}, 2 + 2*6 + 2},
		"first":               {100, [][]int{{0}}, 20},
		"last":                {100, [][]int{{99}}, 20},
		"two apart":           {64, [][]int{{5}, {41}}, 40},
		"three":               {90, [][]int{{3}, {4}, {80}}, 60},
		"a pair":              {64, [][]int{{5, 41}}, 120},
		"neighbors":           {64, [][]int{{30, 31}}, 120},
		"a pair and one":      {64, [][]int{{5, 41}, {60}}, 160},
		"three together":      {40, [][]int{{1, 20, 39}}, 250},
		"everything together": {8, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, 40},
	} {
		tests := 0
		s := &Search{N: c.n, Test: func(set []int) (Outcome, error) {
			tests++
			if !slices.IsSorted(set) {
				t.Errorf("%s: %v is not in order", name, set)
			}
			return fault(c.want...)(set)
		}}
		got, rest, left, err := s.Culprits()
		if err != nil || left != Passes {
			t.Fatalf("%s: %v, %v", name, left, err)
		}
		slices.SortFunc(got, slices.Compare[[]int])
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		if n := len(rest) + len(slices.Concat(got...)); n != c.n {
			t.Errorf("%s: %d culprits and others of %d", name, n, c.n)
		}
		if tests > c.most {
			t.Errorf("%s: %d tests, want %d at most", name, tests, c.most)
		}
	}
}

// TestUnknown skips sets with inconclusive crashes: other sets reveal the culprit.
func TestUnknown(t *testing.T) {
	inner := fault([]int{9})
	s := &Search{N: 32, Test: func(set []int) (Outcome, error) {
		if slices.Contains(set, 20) && !slices.Contains(set, 9) {
			return Unknown, nil
		}
		return inner(set)
	}}
	got, rest, left, err := s.Culprits()
	if err != nil || !reflect.DeepEqual(got, [][]int{{9}}) {
		t.Errorf("got %v, %v", got, err)
	}
	if left != Unknown || len(rest) != 31 {
		t.Errorf("left %v (%v), want unknown", rest, left)
	}
	s = &Search{N: 4, Test: func(set []int) (Outcome, error) {
		if len(set) == 0 {
			return Passes, nil
		}
		return Unknown, nil
	}}
	if _, _, _, err := s.Culprits(); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

func TestAlwaysFails(t *testing.T) {
	s := &Search{N: 4, Test: func([]int) (Outcome, error) { return Fails, nil }}
	if _, _, _, err := s.Culprits(); !errors.Is(err, ErrEmpty) {
		t.Errorf("got %v", err)
	}
}

// TestFlaky demands that a test that fails once is detected when the culprit is tried again.
func TestFlaky(t *testing.T) {
	tests := 0
	s := &Search{N: 16, Test: func(set []int) (Outcome, error) {
		if tests++; tests > 1 && tests < 6 {
			return Fails, nil
		}
		return Passes, nil
	}}
	if _, _, _, err := s.Culprits(); !errors.Is(err, ErrFlaky) {
		t.Errorf("got %v", err)
	}
}

// TestResume demands that an interrupted search continues at any point.
func TestResume(t *testing.T) {
	whole := &Search{N: 40, Test: fault([]int{7, 30}, []int{12})}
	want, _, _, err := whole.Culprits()
	if err != nil {
		t.Fatal(err)
	}
	ended := errors.New("ended")
	for stop := range len(whole.Known) {
		saved := map[string]Outcome{}
		tests := 0
		first := &Search{N: 40, Known: map[string]Outcome{}, Test: func(set []int) (Outcome, error) {
			if tests++; tests > stop {
				return "", ended
			}
			return fault([]int{7, 30}, []int{12})(set)
		}}
		first.Keep = func() error { saved = maps.Clone(first.Known); return nil }
		if _, _, _, err := first.Culprits(); !errors.Is(err, ended) {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		again := 0
		second := &Search{N: 40, Known: saved, Test: func(set []int) (Outcome, error) {
			again++
			return fault([]int{7, 30}, []int{12})(set)
		}}
		got, _, _, err := second.Culprits()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("stopped at %d: got %v, %v, want %v", stop, got, err, want)
		}
		if stop+again != len(whole.Known) {
			t.Errorf("stopped at %d: %d more tests, %d in one go", stop, again, len(whole.Known))
		}
	}
}

// TestMinimal demands that each culprit fails, and passes without any one of its elements.
func TestMinimal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + r.IntN(40)
		var groups [][]int
		for range r.IntN(4) {
			groups = append(groups, r.Perm(n)[:1+r.IntN(min(n, 3))])
		}
		test := fault(groups...)
		got, rest, _, err := (&Search{N: n, Test: test}).Culprits()
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := test(rest); o != Passes {
			t.Errorf("%v: what is left of %v fails", groups, got)
		}
		for _, set := range got {
			if o, _ := test(set); o != Fails {
				t.Errorf("%v: %v does not fail", groups, set)
			}
			for i := range set {
				if o, _ := test(slices.Delete(slices.Clone(set), i, i+1)); o == Fails {
					t.Errorf("%v: %v fails without %d as well", groups, set, set[i])
				}
			}
		}
	}
}

func TestKey(t *testing.T) {
	for want, set := range map[string][]int{"none": nil, "3": {3}, "0-3,7": {0, 1, 2, 3, 7}, "1,3,5-6": {1, 3, 5, 6}} {
		if got := Key(set); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
