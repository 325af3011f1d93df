// Command weights checks how apply treats the weights of experts: it generates models whose experts are unrolled, with
// separate initializers, runs apply on them in another process, and reports its private memory, whether every weight
// keeps its bytes, and how long onnxruntime takes to open the models.
//
//	go run ./bench/weights [-tool build/mojo-patch] [-dir FOLDER] [-type float32]
//
// The first model has 6 GB of weights; FOLDER needs 13 GB. It prints Markdown, and exits with 1 if a check fails.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// memoryLimit is the memory that apply may take besides the weights of one expert.
const memoryLimit = 200 << 20

func main() {
	tool := flag.String("tool", "build/mojo-patch", "the `program`")
	dir := flag.String("dir", "", "`folder` for the models (default: a temporary one)")
	dtype := flag.String("type", "float32", "of the large model's weights: float32, float16 or bfloat16")
	only := flag.String("only", "", "memory or load: one of the parts")
	layers := flag.Int("layers", 48, "of the model of many nodes")
	experts := flag.Int("experts", 64, "of each of its layers")
	patience := flag.Duration("patience", 10*time.Minute, "how long onnxruntime may take to open a model")
	keep := flag.Bool("keep", false, "leave the models in the folder")
	opened := flag.String("load", "", "open this `model` in onnxruntime and print the seconds")
	flag.Parse()
	var err error
	if *opened != "" {
		err = load(*opened)
	} else {
		err = run(*tool, *dir, *dtype, *only, sizes{layers: *layers, experts: *experts, chosen: 8, hidden: 64,
			inner: 32, dtype: onnx.Float}, *keep, *patience)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "weights:", err)
		os.Exit(1)
	}
}

func run(tool, dir, dtype, only string, many sizes, keep bool, patience time.Duration) error {
	types := map[string]onnx.DataType{"float32": onnx.Float, "float16": onnx.Float16, "bfloat16": onnx.BFloat16}
	t, ok := types[dtype]
	if !ok {
		return fmt.Errorf("-type %q: there are float32, float16, bfloat16", dtype)
	}
	dir, err := os.MkdirTemp(dir, "weights")
	if err != nil {
		return err
	}
	if !keep {
		defer os.RemoveAll(dir)
	}
	if only != "load" {
		large := sizes{layers: 5, experts: 64, chosen: 8, hidden: 2048, inner: 768, dtype: t}
		large.layers *= int(32 / t.Bits()) // the same number of bytes
		if err := memory(tool, dir, large, keep); err != nil {
			return err
		}
	}
	if only != "memory" {
		return sessions(tool, dir, many, patience)
	}
	return nil
}

// write makes a model with its weights in a separate file.
func write(path string, s sizes) error {
	m, err := build(s)
	if err == nil {
		err = onnx.Write(path, m, onnx.ExternalDataOver(1<<10))
	}
	return err
}

// memory packs weights far larger than apply's memory limit, into the same folder and into another one.
func memory(tool, dir string, s sizes, keep bool) error {
	in := filepath.Join(dir, "experts.onnx")
	if err := write(in, s); err != nil {
		return err
	}
	fmt.Printf("%d layers of %d experts, hidden %d, inner %d, %s: %.2f GB of experts' weights in %d initializers, "+
		"%.1f MB each expert\n\n",
		s.layers, s.experts, s.hidden, s.inner, s.dtype, float64(s.weightBytes())/1e9, 3*s.layers*s.experts,
		float64(s.expertBytes())/1e6)
	fmt.Println("| apply writes to | seconds | peak private memory | expert weights | other weights, the same bytes " +
		"| packed, the same bytes |")
	fmt.Println("| --- | ---: | ---: | --- | ---: | ---: |")
	limit := int64(memoryLimit) + s.expertBytes()
	var failure error
	for _, place := range []string{"the same folder", "another folder"} {
		folder := dir
		if place != "the same folder" {
			folder = filepath.Join(dir, "elsewhere")
			if err := os.Mkdir(folder, 0o777); err != nil {
				return err
			}
		}
		out := filepath.Join(folder, "packed.onnx")
		a, err := apply(tool, in, out)
		if err != nil {
			return err
		}
		if a.report.Weights == nil {
			return errors.New("apply fused no mixture")
		}
		c, err := compare(in, out, s)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %.1f | %.0f MB | %s | %d (%.1f MB) | %d (%.2f GB) |\n", place, a.seconds,
			float64(a.private)/1e6, a.report.Weights.Text(),
			c.untouched, float64(c.untouchedBytes)/1e6, c.packed, float64(c.packedBytes)/1e9)
		if a.private > limit {
			failure = fmt.Errorf("apply took %d MB of private memory, more than %d", a.private/1e6, limit/1e6)
		}
		for _, name := range []string{out, out + ".data"} {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	fmt.Println()
	if keep {
		return failure
	}
	return errors.Join(failure, os.Remove(in), os.Remove(in+".data"))
}

// sessions opens models of very many nodes before and after apply: one with an eighth of the layers, and the whole.
func sessions(tool, dir string, s sizes, patience time.Duration) error {
	fmt.Printf("experts of hidden %d, inner %d, %s\n\n", s.hidden, s.inner, s.dtype)
	fmt.Println("| layers of experts | nodes | after apply | apply: seconds | private memory | onnxruntime opens it " +
		"in | after apply in |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	layers := s.layers
	for _, s.layers = range []int{max(1, layers/8), layers} {
		in, out := filepath.Join(dir, fmt.Sprintf("unrolled-%d.onnx", s.layers)),
			filepath.Join(dir, fmt.Sprintf("fused-%d.onnx", s.layers))
		if err := write(in, s); err != nil {
			return err
		}
		a, err := apply(tool, in, out)
		if err != nil {
			return err
		}
		if _, err := compare(in, out, s); err != nil {
			return err
		}
		after, err := loadTime(out, patience)
		if err != nil {
			return err
		}
		before, err := loadTime(in, patience)
		if err != nil {
			return err
		}
		fmt.Printf("| %d of %d | %d | %d | %.1f | %.0f MB | %s | %s |\n", s.layers, s.experts, a.report.Input.Nodes,
			a.report.Output.Nodes, a.seconds, float64(a.private)/1e6, before, after)
	}
	return nil
}
