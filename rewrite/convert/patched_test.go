package convert_test

import (
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// TestPatchedModels: the functions of fused ops are converted with their model, and that a converted model has as many
// sites.
func TestPatchedModels(t *testing.T) {
	for _, name := range []string{"llama-ts-fp32", "llama-merged-ts-fp32", "qwen3-dynamo-fp32",
		"mixtral-batched_mm-ts-fp16",
		"moe-hits-ts-fp32"} {
		path := filepath.Join("..", "..", "models", name+".onnx")
		patched := convert.Read(t, path)
		cases, err := golden.Load(filepath.Join("..", "..", "models", name+".npz"), patched)
		if err != nil {
			t.Fatal(err)
		}
		inputs := cases[0].Inputs
		shapes := map[string][]int64{}
		for _, in := range inputs {
			shapes[in.Name] = in.Dims
		}
		request := rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff}
		before, err := rewrite.Apply(patched, request)
		if err != nil {
			t.Fatal(err)
		}
		want, err := convert.Evaluated(patched, inputs)
		if err != nil {
			t.Fatal(err)
		}
		if err := convert.Opset(patched, 23); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range patched.Functions {
			if f.Opset("") != 23 {
				t.Errorf("%s: function %s is of opset %d", name, f.Name, f.Opset(""))
			}
		}
		if err := convert.Shapes(patched, shapes); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if left := convert.Dynamic(patched); len(left) > 0 {
			t.Errorf("%s: %v", name, left)
		}
		again, _ := convert.Rewritten(t, patched)
		got, err := convert.Evaluated(again, inputs)
		if err == nil {
			err = convert.Equal(got, want)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}

		m := convert.Read(t, path)
		if err := convert.Shapes(m, shapes); err != nil {
			t.Fatal(err)
		}
		if err := convert.Opset(m, 24); err != nil {
			t.Fatal(err)
		}
		after, err := rewrite.Apply(m, request)
		if err != nil {
			t.Fatal(err)
		}
		if len(after.Sites) != len(before.Sites) || len(before.Sites) == 0 {
			t.Errorf("%s: %d sites, before %d", name, len(after.Sites), len(before.Sites))
		}
	}
}
