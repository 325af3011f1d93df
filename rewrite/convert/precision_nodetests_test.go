package convert

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestPrecisionOfNodeTests converts the models of the standard's node tests, each to one half type, and checks that the
// types around every op stay consistent when inferred from constants and inputs.
func TestPrecisionOfNodeTests(t *testing.T) {
	changed, refused := 0, 0
	for i, dir := range nodeTests(t) {
		m, err := onnx.Read(filepath.Join(dir, "model.onnx"))
		if err != nil {
			t.Fatal(err)
		}
		half := halves[i%len(halves)]
		r, err := Precision(m, half.to, half.providers...)
		switch {
		case err == nil:
		case strings.Contains(err.Error(), "only opset 13 and newer"),
			strings.Contains(err.Error(), "sequences or optional values"),
			strings.Contains(err.Error(), "is not known: declare it"),
			strings.Contains(err.Error(), "convert the model to opset 16"):
			refused++
			continue
		default:
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if r.Initializers+r.Casts > 0 {
			changed++
		}
		f := infer.Analyze(m)
		m.Graph.Walk(func(g *onnx.Graph) {
			for _, v := range append(g.Outputs[:len(g.Outputs):len(g.Outputs)], g.Inputs...) {
				declared, ok := v.Type()
				if found := f.DataType(v); ok && found != onnx.Undefined && declared.DataType != onnx.Undefined &&
					found != declared.DataType {
					t.Errorf("%s: %q is declared as %s, and is of %s", dir, v.Name, declared.DataType, found)
				}
			}
			for _, n := range g.Nodes {
				if elementwise[n.OpType] && onnx.IsStandardDomain(n.Domain) && !n.Is("Pow") && !n.Is("Clip") {
					for _, x := range n.Inputs {
						if x != nil && f.DataType(x) != onnx.Undefined && f.DataType(n.Outputs[0]) != f.DataType(x) {
							t.Errorf("%s: %s of %s gives %s", dir, n.OpType, f.DataType(x), f.DataType(n.Outputs[0]))
						}
					}
				}
			}
		})
		m.Close()
	}
	if changed < 500 {
		t.Errorf("%d models have changed", changed)
	}
	t.Logf("%d models have changed, %d are refused", changed, refused)
}
