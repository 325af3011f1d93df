package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/export"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/generate"
	"github.com/mojo-patch/mojo-patch/ort"
)

// The prompts, and the number of generated tokens.
var exportPrompts = []string{"11,5,7", "31,8,9,10,44,3,77", "6"}

const exportTokens = 12

// hybrid is a decoder with keys and values, and recurrent states, that takes one token per run.
const hybrid = "../llm/generate/testdata/hybrid-fp32"

// TestGenAIGeneratesTheSame runs folders of export genai in onnxruntime-genai: decoders as exported, with in-place
// caches, and with two branches. Their tokens must be those of generate, in a padded batch too, and in genai's Engine,
// where sequences join and leave between steps.
func TestGenAIGeneratesTheSame(t *testing.T) {
	onnxruntime, kernels := testEnvironment(t)
	python := pythonWithONNX(t)
	if onnxruntime == "" || kernels == "" || exec.Command(python, "-c", "import onnxruntime_genai").Run() != nil {
		t.Skipf("onnxruntime, kernels or %s with onnxruntime_genai are missing", python)
	}
	dir := t.TempDir()
	arguments := []string{filepath.Join("testdata", "export", "genai.py"), fmt.Sprint(exportTokens),
		strings.Join(exportPrompts, "/")}
	var models []string
	for i, c := range []struct {
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
		{hybrid, "one", nil},
		{hybrid, "one", []string{}},
		{"llama-kv-dynamo-fp32", "engine", []string{"--cache", "paged=8"}},
		{"llama-kv-dynamo-fp32", "engine", []string{"--cache", "paged=16", "--last-logits", "--dtype", "float16"}},
	} {
		model := filepath.Join("..", "..", "models", c.model+".onnx")
		if c.apply != nil {
			patched := filepath.Join(dir, fmt.Sprint(i, ".onnx"))
			args := []string{"apply", model, "-o", patched, "--json", "--check-kernels", "off"}
			report(t, append(args, c.apply...)...)
			model = patched
		}
		folder := filepath.Join(dir, fmt.Sprint("folder", i))
		var exported export.GenAI
		args := []string{"export", "genai", model, "--tokenizer", filepath.Join("..", "..", "models", "smollm2"), "-o",
			folder, "--json"}
		if c.batch == "engine" {
			args = append(args, "--engine", "--blocks", "32")
		}
		printed(t, &exported, args...)
		if exported.Batch != c.batch && c.batch != "engine" {
			t.Errorf("%s %v: batch %s, want %s: %s", c.model, c.apply, exported.Batch, c.batch, exported.OneBecause)
		}
		models, arguments = append(models, model), append(arguments, folder+"="+c.batch)
	}
	lines := strings.Fields(output(t, nil, python, arguments...))
	for i, model := range models {
		n := len(exportPrompts)
		sameTokens(t, model, exportPrompts, lines[min(i*n, len(lines)):min((i+1)*n, len(lines))])
	}
}

// TestTritonServesTheSame checks the repository of export triton against Triton's schema, and serves it with
// testdata/export/triton.c as Triton's onnxruntime backend does: sequences with states, several in a batch. The tokens
// must be those of generate. The server itself does not run.
func TestTritonServesTheSame(t *testing.T) {
	onnxruntime, kernels := testEnvironment(t)
	python := pythonWithONNX(t)
	find := "import importlib.metadata as m; m.version('tritonclient')"
	if onnxruntime == "" || kernels == "" || exec.Command(python, "-c", find).Run() != nil {
		t.Skipf("onnxruntime, kernels or %s with tritonclient are missing", python)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler")
	}
	dir := t.TempDir()
	models := filepath.Join("..", "..", "models")
	repository, program := filepath.Join(dir, "repository"), filepath.Join(dir, "triton")
	reader := filepath.Join("testdata", "export", "triton.py")
	output(t, nil, cc, "-I", filepath.Join("..", "..", "fused", "kernels", "third_party", "onnxruntime"), "-o", program,
		filepath.Join("testdata", "export", "triton.c"), "-ldl")
	t.Setenv(ort.LibraryVariable, onnxruntime)
	for i, c := range []struct {
		model, last string
		prompts     []string
	}{
		{"llama-kv-dynamo-fp32", "--last-logits", exportPrompts},
		{hybrid, "--last-logits=false", []string{"11", "31", "6"}}, // requests of one token
	} {
		model, name := filepath.Join(dir, fmt.Sprint(i, ".onnx")), fmt.Sprint("decoder", i)
		report(t, "apply", filepath.Join(models, c.model+".onnx"), "-o", model, "--json", "--check-kernels", "off",
			"--cache", "static=40", "--past-length=rows", c.last)
		var exported export.Triton
		printed(t, &exported, "export", "triton", model, "-o", repository, "--name", name, "--max-batch-size", "2",
			"--json")
		if len(exported.States) != 5 || len(exported.Inputs) != 1 {
			t.Errorf("%d states and inputs %v: want 5, and the ids", len(exported.States), exported.Inputs)
		}
		config := output(t, nil, python, reader, filepath.Join(repository, name, "config.pbtxt"))
		args := []string{filepath.Join(repository, name, "1", "model.onnx"), fmt.Sprint(exportTokens)}
		sameTokens(t, model, c.prompts,
			strings.Fields(output(t, []byte(config), program, append(args, c.prompts...)...)))
	}

	// A model without states: past and present belong to the request.
	for _, name := range []string{"llama-kv-dynamo-fp32", "llama-ts-fp32"} {
		printed(t, &export.Triton{}, "export", "triton", filepath.Join(models, name+".onnx"), "-o", repository,
			"--json")
		config := output(t, nil, python, reader, filepath.Join(repository, name, "config.pbtxt"))
		if !strings.HasPrefix(config, "batch 8\ninput input_ids INT64 -1\ninput attention_mask INT64 -1\n") {
			t.Errorf("%s: %s", name, config)
		}
	}
}

// output runs a program that must succeed, and returns its output.
func output(t *testing.T, stdin []byte, program string, args ...string) string {
	t.Helper()
	c := exec.Command(program, args...)
	var errs bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(stdin), &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", program, err, out, errs.String())
	}
	return string(out)
}

// sameTokens compares the tokens of each prompt with those that generate makes.
func sameTokens(t *testing.T, model string, prompts, got []string) {
	t.Helper()
	for i, p := range prompts {
		var g generate.Result
		printed(t, &g, "generate", model, "--ids", p, "--max-tokens", fmt.Sprint(exportTokens), "--ignore-eos",
			"--json")
		want := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(g.Sequences[0].IDs)), ","), "[]")
		if i >= len(got) || got[i] != want {
			t.Errorf("%s, prompt %s: %v, generate %s", model, p, got, want)
		}
	}
}
