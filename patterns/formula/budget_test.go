package formula

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestBudget reads a mask that needs many steps with a small budget: the proof ends, and the search reports the place.
func TestBudget(t *testing.T) {
	g := newGraph()
	seen := g.Op("LessOrEqual", g.j, g.i)
	for n := range 40 {
		seen = g.Op("And", seen, g.Op("Greater", g.j, g.Op("Sub", g.i, 100+n)))
	}
	g.Output(seen)
	view := match.New(g.Graph, infer.Analyze(g.Model), match.NewIndex(match.NewLanguage(nil)))
	for _, c := range []struct {
		steps int
		fails bool
	}{{1 << 30, false}, {200, true}} {
		s := g.reader()
		s.Budget = view.Budget("proofs", match.Limits{Each: c.steps, Shares: 1})
		s.Budget.Limits.Each = c.steps
		s.Budget.Begin(seen.Producer)
		i, j := Of(s.Natural("i")), Of(s.Natural("j"))
		e := s.Element(seen, s.Sum(i), s.Sum(j))
		err := s.Cases(func(c *Case) error {
			_, err := c.Value(e)
			return err
		})
		if (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), spent) {
			t.Errorf("%d steps: %v", c.steps, err)
		}
		var at []*onnx.Node
		for _, gave := range view.GaveUp() {
			at = append(at, gave.Places...)
		}
		if (len(at) == 1 && at[0] == seen.Producer) != c.fails {
			t.Errorf("%d steps: given up at %d places", c.steps, len(at))
		}
	}
}
