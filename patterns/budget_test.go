package patterns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestPatternsThatTakeLong searches a tree of additions for many patterns that it nearly matches, in many ways each.
// The search must end in time, and report that it gave up.
func TestPatternsThatTakeLong(t *testing.T) {
	m := onnx.New(10, 20)
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 4}}})
	level := []*onnx.Value{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}
	for range 60 { // each level adds pairs of the level before
		next := make([]*onnx.Value, len(level))
		for i := range level {
			v := m.Graph.NewValue("")
			m.Graph.AddNode("Add", []*onnx.Value{level[i], level[(i+1)%len(level)]}, []*onnx.Value{v})
			next[i] = v
		}
		level = next
	}
	for _, v := range level {
		m.Graph.AddOutput(v)
	}
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "pattern P%d(x) -> y {\n y = Add(%sNeg(x))\n} => mojo.A(x)\n", i, strings.Repeat("_, ", 11))
	}
	s, err := Builtin().With("long.pat", text.String())
	if err != nil {
		t.Fatal(err)
	}
	start := cputime.Used()
	matches, misses := s.Find(m.Graph, infer.Analyze(m))
	if took := cputime.Used() - start; took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(matches) > 0 {
		t.Errorf("%d matches", len(matches))
	}
	said := false
	for _, miss := range misses {
		said = said || strings.Contains(miss.Reason.Error(), "the search for patterns stopped here")
	}
	if !said {
		t.Errorf("%d misses, and none says that the search stopped", len(misses))
	}
}
