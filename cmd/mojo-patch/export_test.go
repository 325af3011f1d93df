package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenAIGeneratesTheSame runs folders of export genai in onnxruntime-genai: decoders as exported, with caches in
// place, and of two branches. Their tokens must be those of generate, of a batch with padding too.
func TestGenAIGeneratesTheSame(t *testing.T) {
	onnxruntime, kernels := testEnvironment(t)
	python := pythonWithONNX(t)
	if onnxruntime == "" || kernels == "" || exec.Command(python, "-c", "import onnxruntime_genai").Run() != nil {
		t.Skipf("onnxruntime, kernels or %s with onnxruntime_genai are missing", python)
	}
	prompts := []string{"11,5,7", "31,8,9,10,44,3,77", "6"}
	const tokens = 12
	for _, c := range []struct {
		model string
		batch string
		apply []string // flags; nil: as exported
	}{
		{"llama-kv-dynamo-fp32", "one", nil},
		{"llama-kv-dynamo-fp32", "one", []string{}},
		{"llama-kv-dynamo-fp32", "one", []string{"--cache", "static=40"}},
		{"llama-kv-dynamo-fp32", "one", []string{"--cache", "static", "--past-length"}},
		{"llama-kv-dynamo-fp32", "any", []string{"--cache", "static", "--past-length=rows"}},
		{"llama-merged-ts-fp32", "any", []string{"--cache", "static=40", "--past-length=rows", "--last-logits"}},
	} {
		t.Run(fmt.Sprint(c.model, c.apply), func(t *testing.T) {
			dir := t.TempDir()
			model := filepath.Join("..", "..", "models", c.model+".onnx")
			if c.apply != nil {
				patched := filepath.Join(dir, "patched.onnx")
				report(t, append([]string{"apply", model, "-o", patched, "--json", "--check-kernels", "off"}, c.apply...)...)
				model = patched
			}
			folder := filepath.Join(dir, "folder")
			var exported exportedGenAI
			printed(t, &exported, "export", "genai", model, "--tokenizer", filepath.Join("..", "..", "models", "smollm2"),
				"-o", folder, "--json")
			if exported.Batch != c.batch {
				t.Errorf("batch %s, want %s: %s", exported.Batch, c.batch, exported.OneBecause)
			}
			args := []string{filepath.Join("testdata", "export", "genai.py"), folder, fmt.Sprint(tokens), c.batch}
			command := exec.Command(python, append(args, prompts...)...)
			out, err := command.Output()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, err.(*exec.ExitError).Stderr)
			}
			got := strings.Fields(string(out))
			for i, p := range prompts {
				var g generateResult
				printed(t, &g, "generate", model, "--ids", p, "--max-tokens", fmt.Sprint(tokens), "--ignore-eos", "--json")
				want := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(g.Sequences[0].IDs)), ","), "[]")
				if i >= len(got) || got[i] != want {
					t.Errorf("prompt %s: genai %v, generate %s", p, got, want)
				}
			}
		})
	}
}
