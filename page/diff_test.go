package page_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/trace"
)

// evaluated runs pieces in the built-in evaluator.
type evaluated struct{ *reference.Evaluator }

func (e evaluated) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) { return e.RunTensors(inputs) }
func (e evaluated) Close() error                                      { return nil }

func evaluator(m *onnx.Model) (trace.Runner, error) {
	e, err := reference.New(m, reference.Options{})
	return evaluated{e}, err
}

// compared makes the page about a bundled model and its patched form, modified by change.
func compared(t *testing.T, model string, seed uint64, dims map[string]int64, change func(*onnx.Model)) string {
	t.Helper()
	var models [2]*onnx.Model
	for i := range models {
		m, err := onnx.Read(filepath.Join("..", "models", model+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if i == 1 {
			if _, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true}); err != nil {
				t.Fatal(err)
			}
			change(m)
		}
		models[i] = m
	}
	inputs, err := golden.RandomInputs(models[0], seed, dims)
	if err != nil {
		t.Fatal(err)
	}
	c := trace.NewComparer(models[0], models[1], trace.Options{OpenA: evaluator, OpenB: evaluator})
	inside, err := c.Run(inputs, inputs, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &page.Diff{Tool: "test", Model: "patched.onnx", Against: models[0].Path, Passed: golden.Passed(inside.Outputs),
		Verdict: "FAILED", Inside: inside, MaxMemory: trace.DefaultMemory}
	for _, s := range inside.Outputs {
		p.Outputs = append(p.Outputs, page.Output{Stats: s})
	}
	p.Moved = []page.Moved{{Output: "logits", Other: "0.0964 (0.0212)", Itself: "0.0612 (0.02)", Within: true}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestDiffShown opens pages about a model with a wrong norm, and about a mixture that sends a token to another expert.
func TestDiffShown(t *testing.T) {
	wrong := compared(t, "qwen3-dynamo-fp32", 1, nil, func(m *onnx.Model) {
		norms := 0
		for _, n := range m.Graph.Nodes {
			if n.OpType == "AddRMSNorm" {
				if norms++; norms == 3 {
					n.SetAttr(onnx.FloatAttr("epsilon", 0.05))
				}
			}
		}
	})
	flipped := compared(t, "qwen3moe-batched_mm-dynamo-bf16", 2, map[string]int64{"sequence": 40}, func(*onnx.Model) {})
	for _, c := range []struct {
		name, html    string
		width, height int
		dark          bool
		texts         []string
		marks         int
	}{
		{"telephone", wrong, 390, 2000, false, []string{"patched.onnx against qwen3-dynamo-fp32.onnx", "FAILED",
			"The models diverge in layer 1 norm, at mul_201", "Mul against mojo.AddRMSNorm", "layer 1 mlp",
			"the errors of its inputs are at most", "Sensitivity of the first model", "0.0612 (0.02)"}, 9},
		{"desk", wrong, 1280, 1400, true, []string{"8 of 42", "0 of 1", "linear_13"}, 9},
		{"experts", flipped, 390, 2400, true, []string{"1 of 80 tokens", "[3 4]", "[3 6]", "a tie"}, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if s := opened(t, c.html, c.width, c.height, c.dark, c.texts); s.Marks < c.marks {
				t.Errorf("%d marks", s.Marks)
			}
		})
	}
}
