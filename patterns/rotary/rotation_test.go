package rotary

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestTracedOnce looks for rotations by both angles at one value, whose channels must be followed once.
func TestTracedOnce(t *testing.T) {
	shape, ok := hostile.Find("misses-rotary")
	if !ok {
		t.Fatal("no such shape")
	}
	m := shape.Model(20)
	g := match.New(m.Graph, infer.Analyze(m), match.NewIndex(match.NewLanguage(nil)))
	y := m.Graph.Outputs[0]
	looks := func(opposite bool) float64 {
		return testing.AllocsPerRun(1, func() { // AllocsPerRun runs it twice
			if !opposite {
				*match.Memo[lastTraced](g) = lastTraced{}
			}
			if r, _, _, _ := rotationOf(g, y, opposite); r != nil {
				t.Error("it is a rotation")
			}
		})
	}
	if first, second := looks(false), looks(true); second > first/2 {
		t.Errorf("%v allocations, then %v", first, second)
	}
}
