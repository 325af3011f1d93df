package inspect

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// TestWhyInWords demands that several patterns written in Go can explain a miss at one node, even in a match.
func TestWhyInWords(t *testing.T) {
	m := onnx.New(10, 20)
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
	n := m.Graph.AddNode("TopK", []*onnx.Value{x}, []*onnx.Value{m.Graph.NewValue("y")})
	f := &rewrite.Found{Graph: m.Graph, Matches: []*patterns.Match{{Nodes: []*onnx.Node{n}}}, Misses: []*patterns.Miss{
		{Pattern: "MoE", Anchor: n, Reason: reason.New("", n, "no experts")},
		{Pattern: "TopKRouter", Anchor: n, Reason: reason.New("", n, "no weights")}}}
	var out strings.Builder
	for _, r := range unfused(f, nil, &infer.Facts{}) {
		r.write(&out)
	}
	want := "TopK \"y\": nearest pattern MoE\n  at TopK \"y\": no experts\nTopK \"y\": nearest pattern TopKRouter\n  " +
		"at TopK \"y\": no weights\n"
	if out.String() != want {
		t.Errorf("written\n%s\nwant\n%s", &out, want)
	}
}
