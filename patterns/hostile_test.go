package patterns

import (
	"runtime"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/hostile"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestHostileGraphs counts allocations in searches of graphs that are hard to search, which do not depend on the
// machine or its load. Four times the nodes may take four times as much and half as much again.
func TestHostileGraphs(t *testing.T) {
	const small, factor = 1000, 4
	for _, name := range []string{"chain-Exp", "chain-TopK", "diamond-products", "mask-Add-chain",
		"misses-norm-axis", "misses-attention-Softmax-MatMul", "blocks-RMSNorm", "bodies-If", "short-chains-kinds"} {
		t.Run(name, func(t *testing.T) {
			shape, ok := hostile.Find(name)
			if !ok {
				t.Fatal("no such shape")
			}
			few, many := allocations(shape, small), allocations(shape, small*factor)
			t.Logf("%d and %d allocations", few, many)
			if limit := few * factor * 3 / 2; many > limit {
				t.Errorf("%d nodes take %d allocations, and %d take %d, more than %d", small, few, small*factor, many,
					limit)
			}
			if limit := uint64(1_500_000); few > limit {
				t.Errorf("%d nodes take %d allocations, more than %d", small, few, limit)
			}
		})
	}
}

// TestHostileGraphsSpendTheirBudget counts the steps of all searches, which do not depend on the machine. Searches
// without a budget would take many times as many.
func TestHostileGraphsSpendTheirBudget(t *testing.T) {
	const most = 80_000_000 // a little more than one reserve
	for _, name := range []string{"misses-gate-Exp", "chain-TopK"} {
		shape, ok := hostile.Find(name)
		if !ok {
			t.Fatal(name, "is no shape")
		}
		m := shape.Model(4000)
		facts := infer.Analyze(m)
		Builtin().Find(m.Graph, facts)
		if n := match.StepsTaken(facts); n > most {
			t.Errorf("%s takes %d steps, more than %d", name, n, most)
		} else {
			t.Logf("%s takes %d steps", name, n)
		}
	}
}

// allocations returns the number of allocations in a search of a graph with about the given number of nodes.
func allocations(shape hostile.Shape, nodes int) uint64 {
	m := shape.Model(nodes)
	facts, set := infer.Analyze(m), Builtin()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	set.Find(m.Graph, facts)
	for _, n := range m.Graph.Nodes {
		for _, g := range n.Subgraphs() {
			set.Find(g, facts)
		}
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
