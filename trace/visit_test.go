package trace

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// wrong runs pieces in the evaluator and adds 1 to the results of GLU, like a wrong kernel.
type wrong struct {
	Runner
	glu map[string]bool
}

func openWrong(m *onnx.Model) (Runner, error) {
	w := wrong{glu: map[string]bool{}}
	for _, n := range m.Graph.Nodes {
		if n.OpType == "GLU" {
			w.glu[n.Outputs[0].Name] = true
		}
	}
	var err error
	w.Runner, err = evaluator(m)
	return w, err
}

func (w wrong) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	out, err := w.Runner.Run(inputs)
	for i, t := range out {
		if w.glu[t.Name] {
			x, _ := golden.Float64s(t)
			f := make([]float32, len(x))
			for k := range x {
				f[k] = float32(x[k]) + 1
			}
			out[i] = onnx.NewFloat32s(t.Name, t.Dims, f)
		}
	}
	return out, err
}

// TestVisit finds a wrong kernel by the definitions, whether or not the inputs carry its error on.
func TestVisit(t *testing.T) {
	m := patched(t, "qwen3-dynamo-fp32")
	inputs, err := golden.RandomInputs(m, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	sites := Sites(m, nil)
	if len(sites) < 10 {
		t.Fatalf("%d fused ops", len(sites))
	}
	last := map[bool]*onnx.Tensor{}
	for _, replace := range []bool{false, true} {
		err := Visit(m, openWrong, inputs, sites, func(v *Visited) error {
			want, err := v.Reference()
			if err != nil {
				return err
			}
			for i, w := range want {
				if w == nil {
					continue
				}
				s, err := golden.Compare(v.Outputs[i], w, golden.DefaultTolerance(w.DataType))
				if err != nil {
					return err
				}
				if s.Passed != (v.Node.OpType != "GLU") {
					t.Errorf("%s of %s passed: %v", v.Node.OpType, v.Block, s.Passed)
				}
			}
			if last[replace] = want[0]; replace {
				v.Replace(want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var right *onnx.Tensor
	err = Visit(m, evaluator, inputs, sites, func(v *Visited) error { right = v.Outputs[0]; return nil })
	if err != nil {
		t.Fatal(err)
	}
	for replace, got := range last {
		if s, err := golden.Compare(got, right, golden.Tolerance{}); err != nil || s.Passed != replace {
			t.Errorf("with the definition's outputs fed on %v: equal %v (%v)", replace, s.Passed, err)
		}
	}
}

// TestCosts checks the bytes and operations of norms and gates against counts by hand.
func TestCosts(t *testing.T) {
	m := patched(t, "qwen3-dynamo-fp32")
	inputs, err := golden.RandomInputs(m, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	costs := NewCosts()
	err = Visit(m, evaluator, inputs, Sites(m, nil), func(v *Visited) error {
		c, err := costs.Of(v)
		n := v.Outputs[0].Len()
		rows := n / v.Outputs[0].Dims[len(v.Outputs[0].Dims)-1]
		switch v.Node.OpType {
		case "GLU": // a sigmoid, which counts as one, and two products, of two inputs
			if c.Read != 2*4*n || c.Written != 4*n || c.FLOPs < 3*n || c.FLOPs > 4*n {
				t.Errorf("GLU of %d elements: %+v", n, c)
			}
		case "RMSNorm": // squares, their sum, two products; epsilon and the root for each row
			if weights := n / rows; c.Read != 4*n+4*weights || c.FLOPs < 4*n || c.FLOPs > 4*n+3*rows {
				t.Errorf("RMSNorm of %d elements in %d rows: %+v", n, rows, c)
			}
		case "Attention":
			if c.FLOPs < 4*n {
				t.Errorf("Attention: %+v", c)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilter chooses sites by layer and op.
func TestFilter(t *testing.T) {
	m := patched(t, "qwen3-dynamo-fp32")
	for text, want := range map[string]int{"*:*": len(Sites(m, nil)), "1:Attention": 1, "*:Attention": 2,
		"0:GLU; 1:GLU": 2, "7:*": 0} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		if sites := Sites(m, f); len(sites) != want {
			t.Errorf("%s takes %d sites, want %d", text, len(sites), want)
		}
	}
	for _, text := range []string{"", "GLU", "x:GLU", "-1:GLU", "1:Glue", "1:GLU;"} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), `"`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
