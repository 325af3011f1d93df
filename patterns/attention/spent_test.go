package attention

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestSpentSearchEnds searches with few and with enough steps: giving up must cost less than reading.
func TestSpentSearchEnds(t *testing.T) {
	shape, ok := hostile.Find("blocks-attention-scales")
	if !ok {
		t.Fatal("no such shape")
	}
	m := shape.Model(60)
	allocations := func(l match.Limits) (n float64, found, gaveUp int) {
		n = testing.AllocsPerRun(1, func() {
			g := match.New(m.Graph, infer.Analyze(m), match.NewIndex(match.NewLanguage(nil)))
			g.Budget("Attention", l)
			sites, _ := Find(g, NoMasks)
			found, gaveUp = len(sites), len(g.GaveUp())
		})
		return n, found, gaveUp
	}
	all, found, gaveUp := allocations(limits)
	if found == 0 || gaveUp > 0 {
		t.Fatalf("%d blocks found, %d searches given up", found, gaveUp)
	}
	few, found, gaveUp := allocations(match.Limits{Each: 1 << 11, Shares: 1})
	if found > 0 || gaveUp == 0 {
		t.Fatalf("with few steps: %d blocks found, %d searches given up", found, gaveUp)
	}
	if few > all/2 {
		t.Errorf("%v allocations to give up, %v to find all", few, all)
	}
}

// TestArranged puts elements in other orders.
func TestArranged(t *testing.T) {
	n := sizes{'b': 2, 'n': 3, 's': 2, 'h': 1, 'l': 4}
	at := func(a Axes, place map[rune]int) (i int) {
		for _, letter := range a.letters() {
			i = i*n[letter] + place[letter]
		}
		return i
	}
	for _, c := range []struct{ from, to Axes }{
		{"b n s l", "b n s l"}, {"b n s l", "b s n l"}, {"l s nb", "bn s l"}, {"b n s l", "b n h s l"},
		{"b h n s l", "l b n s"}, {"n", "n h"},
	} {
		data := random(match.Elements(c.from.shape(n)), 1)
		got := arranged(data, c.from, c.to, n)
		want := make([]float64, len(data))
		for i := range data {
			place, rest := map[rune]int{}, i
			letters := []rune(c.from.letters())
			for _, letter := range slices.Backward(letters) {
				place[letter], rest = rest%n[letter], rest/n[letter]
			}
			want[at(c.to, place)] = data[i]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s to %s: %v, want %v", c.from, c.to, got, want)
		}
	}
}
