package sampling

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// model returns a model with outputs of these shapes, logits unless they are 4 wide, and the run of a pass on it.
func model(opset int64, shapes ...[]any) *pass.Run {
	b := onnxtest.New(opset)
	for i, dims := range shapes {
		name := string(rune('a' + i))
		y := b.Op("Identity", b.Input("x_"+name, onnx.Float16, dims...))
		if y.Name = name; dims[len(dims)-1] != 4 {
			y.Name = "logits_" + name
		}
		t, _ := b.Graph.Value("x_" + name).Type()
		y.SetType(t)
		b.Graph.AddOutput(y)
	}
	return &pass.Run{Editor: edit.Editor{Model: b.Model}}
}

// TestApply: the model runs with its old inputs, and chooses the likeliest token of the last position.
func TestApply(t *testing.T) {
	for _, dims := range [][]any{{"b", "s", 5}, {"b", 1, 5}, {2, 3, 5}, {"rows", 5}} {
		run := model(13, []any{"b", 4}, dims)
		r, err := Apply(run)
		if err != nil {
			t.Fatalf("%v: %v", dims, err)
		}
		if *r != (Report{"logits_b", "sample_ids"}) || len(run.Model.Graph.Outputs) != 3 {
			t.Errorf("%v: %+v", dims, r)
		}
		e, err := reference.New(run.Model, reference.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shape := map[int][]int{3: {2, 3, 5}, 2: {2, 5}}[len(dims)]
		if dims[1] == 1 {
			shape[1] = 1
		}
		x := reference.NewFloats(onnx.Float16, shape, make([]float64, (&reference.Tensor{Shape: shape}).Len()))
		row := len(x.F) / 2
		x.F[row-5+3], x.F[2*row-5+1] = 1, 1
		out, err := e.Run(map[string]*reference.Tensor{"x_b": x,
			"x_a": reference.NewFloats(onnx.Float16, []int{1, 4}, make([]float64, 4))})
		if err != nil {
			t.Fatal(err)
		}
		if got := out["sample_ids"].I; !slices.Equal(got, []int64{3, 1}) {
			t.Errorf("%v: tokens %v", dims, got)
		}
	}
}

// TestRefused: a model without clear logits, a kernel that chooses other tokens, and nodes that read another position
// leave the model as it was.
func TestRefused(t *testing.T) {
	for want, run := range map[string]*pass.Run{
		"no output has logits":                    model(13, []any{"b", "s", "v"}, []any{"b", 2, 3, 9}),
		`outputs "logits_a" and "logits_b" could`: model(13, []any{"b", 9}, []any{"b", "s", 9}),
		"opset 13 or newer":                       model(12, []any{"b", "s", 9}),
		"tokens cannot be chosen from ":           model(13, []any{"b", "s", 9}),
	} {
		run.HasKernel = func(string) bool { return true }
		run.Kernel = rewritetest.Kernel(func(_, out []*reference.Tensor) { out[0].I[0]++ })
		before, _ := onnx.Marshal(run.Model)
		_, err := Apply(run)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
		if after, _ := onnx.Marshal(run.Model); !slices.Equal(before, after) {
			t.Errorf("%s: the model has changed", want)
		}
	}
	run := model(13, []any{"b", 3, 9})
	logits, dims, err := find(run.Model)
	if err != nil {
		t.Fatal(err)
	}
	s := &sampler{run: run, g: run.Model.Graph, logits: logits, dims: dims, dataType: onnx.Float16}
	if err := s.build(); err != nil {
		t.Fatal(err)
	}
	if err := s.prove(); err != nil {
		t.Fatal(err)
	}
	for _, n := range run.Model.Graph.Nodes {
		if n.Is("Slice") && n.Input(0) == logits {
			s.edit.SetInput(n, 1, s.numbers(-2))
			s.edit.SetInput(n, 2, s.numbers(-1))
		}
	}
	if err := s.prove(); err == nil || !strings.Contains(err.Error(), "the tokens chosen from") {
		t.Errorf("the last but one position: %v", err)
	}
}
