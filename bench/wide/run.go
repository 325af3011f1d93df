package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/bench/internal/process"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

type bench struct {
	tool, dir string
	// widened also loads the checkpoint in float32, and compares the results of both models.
	widened bool
}

func (b *bench) header() {
	fmt.Println("| model | layers | checkpoint | kept as it is | model | apply | weights load | " +
		"onnxruntime opens it | 8 tokens | one more |")
	fmt.Println("| --- | ---: | ---: | --- | ---: | --- | --- | --- | ---: | ---: |")
}

// run takes a model through all steps.
func (b *bench) run(w wide) (err error) {
	dir, err := os.MkdirTemp(b.dir, "wide")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	graph, checkpoint := filepath.Join(dir, "graph.onnx"), filepath.Join(dir, "model.safetensors")
	patched, model := filepath.Join(dir, "patched.onnx"), filepath.Join(dir, "model.onnx")
	m := w.build(w.layers)
	if err := errors.Join(onnx.Write(graph, m.Graph), checkpoints.Safetensors(checkpoint, m.Tensors)); err != nil {
		return err
	}
	var sites rewrite.Report
	applied, err := b.step(&sites, "apply", graph, "-o", patched, "--allow-missing-weights", "--require")
	if err != nil {
		return err
	}
	if n := count(&sites, fused.AttentionName); n != w.layers || count(&sites, fused.MoEName) == 0 || sites.Drawn == 0 {
		return fmt.Errorf("%d attentions and %d mixtures were fused, %d sites checked without their weights", n,
			count(&sites, fused.MoEName), sites.Drawn)
	}
	var kept weights.Report
	loaded, err := b.step(&kept, "weights", "load", patched, "--from", checkpoint, "-o", model, "--strict",
		"--keep-quantized")
	if err != nil {
		return err
	}
	var formats []string
	for _, q := range kept.Quantized {
		formats = append(formats, fmt.Sprintf("%s: %d matrices, %s, %.3g bits", q.Format, q.Matrices, gb(q.Bytes),
			q.Bits))
	}
	read := size(checkpoint)
	if !b.widened {
		if err := os.Remove(checkpoint); err != nil {
			return err
		}
	}
	got, used, err := b.decode(model)
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %d | %s | %s | %s | %s | %s | %s | %.2f s | %.2f s |\n", w.name, w.layers, gb(read),
		strings.Join(formats, "; "), gb(size(model)+size(model+".data")), took(applied), took(loaded),
		took(process.Usage{Seconds: got.Open, Private: used.Private, Resident: used.Resident}), got.Prompt, got.Token)
	if !b.widened {
		return nil
	}
	return b.compare(graph, checkpoint, filepath.Join(dir, "float.onnx"), got)
}

// step runs the tool, and parses its report.
func (b *bench) step(report any, args ...string) (process.Usage, error) {
	var stdout strings.Builder
	c := exec.Command(b.tool, append(args, "--json")...)
	c.Stdout = &stdout
	u, err := process.Run(c)
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal([]byte(stdout.String()), report)
}

// compare compares the model's results with the same weights in float32, in the original graph.
func (b *bench) compare(graph, checkpoint, model string, got *decoded) error {
	var r weights.Report
	if _, err := b.step(&r, "weights", "load", graph, "--from", checkpoint, "-o", model, "--strict"); err != nil {
		return err
	}
	want, _, err := b.decode(model)
	if err != nil {
		return err
	}
	return got.near(want)
}

func count(r *rewrite.Report, pattern string) int64 {
	for _, p := range r.Patterns {
		if p.Name == pattern {
			return int64(p.Fused)
		}
	}
	return 0
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func gb(n int64) string { return fmt.Sprintf("%.2f GB", float64(n)/1e9) }

func took(u process.Usage) string {
	return fmt.Sprintf("%.1f s, %s (%s resident)", u.Seconds, gb(u.Private), gb(u.Resident))
}
