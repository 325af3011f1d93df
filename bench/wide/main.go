// Command wide loads models at the widths of released ones whose weights stay quantized: gpt-oss-20b with experts in
// MXFP4, DeepSeek-V3 in FP8. It writes a graph without weights and a checkpoint of random weights under their names at
// Hugging Face, makes mojo-patch patch the graph and fill it, and runs a few tokens in onnxruntime with the kernels,
// each step in a separate process. Two layers of Llama-3-8B and Qwen3-30B-A3B then go through weights load, apply,
// quantize, diff and generate: as exported, patched, and with weights of 4 bits, in turns.
//
//	go run ./bench/wide [-tool build/mojo-patch] [-dir FOLDER] [-model gpt-oss-20b] [-layers 8] [-write]
//
// With -write it only writes graph.onnx and model.safetensors of one decoder with a cache.
// It prints Markdown: sizes, seconds and the memory of each step; for the stacks, tokens per second and the divergence
// from float32. FOLDER takes twice the size of the checkpoint, for the stacks 20 GB.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
)

// wide is a model to run.
type wide struct {
	name   string
	layers int64 // of the released model, or as requested
	build  func(layers int64) *checkpoints.Model
}

// models returns models that by default have as many layers as run in 12 GiB of memory, with tables in float32.
func models() []wide {
	return []wide{
		{"gpt-oss-20b", 12, func(layers int64) *checkpoints.Model {
			c := checkpoints.GptOss20B
			c.Layers = layers
			return c.Build()
		}},
		{"DeepSeek-V3", 2, func(layers int64) *checkpoints.Model {
			c := checkpoints.DeepSeekV3
			c.Layers, c.Dense = layers, min(c.Dense, layers-1)
			return c.Build()
		}},
	}
}

func main() {
	tool := flag.String("tool", "build/mojo-patch", "the `program`")
	dir := flag.String("dir", "", "`folder` for the models (default: a temporary one)")
	only := flag.String("model", "", "the `name` of one model")
	layers := flag.Int64("layers", 0, "number of layers (default: as many as fit into 12 GiB of memory)")
	write := flag.Bool("write", false, "only write a decoder with a cache and its checkpoint into the folder")
	decoded := flag.String("decode", "", "open this `model` in onnxruntime, and print how it runs")
	flag.Parse()
	err := func() error {
		if *decoded != "" {
			return decode(*decoded)
		}
		if *write {
			return writeStack(*dir, *only, cmp.Or(*layers, stackLayers))
		}
		b := &bench{tool: *tool, dir: *dir}
		chosen := slices.DeleteFunc(models(), func(m wide) bool { return *only != "" && *only != m.name })
		if len(chosen) > 0 {
			b.header()
		}
		for _, m := range chosen {
			if *layers > 0 {
				m.layers = *layers
			}
			if err := b.run(m); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		list := slices.DeleteFunc(stacks(cmp.Or(*layers, stackLayers)), func(s stack) bool {
			return *only != "" && *only != s.name
		})
		if len(chosen)+len(list) == 0 {
			return fmt.Errorf("unknown model %q", *only)
		}
		if len(list) > 0 {
			b.stackHeader()
		}
		for _, s := range list {
			if err := b.runStack(s); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wide:", err)
		os.Exit(1)
	}
}
