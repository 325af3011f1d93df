// Command polygraphy divides models over two ranks with Polygraphy (multi-device shard, tensor parallel) and with this
// toolkit, evaluates all ranks together, and prints a row of Markdown for each model.
//
//	go run ./bench/polygraphy POLYGRAPHY MODEL.onnx...
package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
)

const ranks = 2

var exact = reference.Options{Exact: true} // without rounding

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: polygraphy POLYGRAPHY MODEL.onnx...")
		os.Exit(2)
	}
	fmt.Println("| model | Polygraphy: collective operations | weights per rank | result " +
		"| mojo-patch: collective operations | weights per rank | result |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, file := range os.Args[2:] {
		theirs, err := polygraphy(os.Args[1], file)
		if err != nil {
			theirs = "0 |  | " + first(err)
		}
		ours, err := mojo(file)
		if err != nil {
			ours = "0 |  | " + first(err)
		}
		fmt.Printf("| %s | %s | %s |\n", strings.TrimSuffix(filepath.Base(file), ".onnx"), theirs, ours)
	}
}

// first returns the first line of an error.
func first(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ReplaceAll(line, "|", "/")
}

// polygraphy divides a model with Polygraphy and compares.
func polygraphy(program, file string) (string, error) {
	folder, err := os.MkdirTemp("", "polygraphy")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	out := filepath.Join(folder, "model.onnx")
	log, err := exec.Command(program, "multi-device", "shard", file, "--one-shot", "--parallelism", "TP",
		"--nb-rank", fmt.Sprint(ranks), "-o", out).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		return "", fmt.Errorf("fails: %s", lines[len(lines)-1])
	}
	var models []*onnx.Model
	for rank := range ranks {
		m, err := onnx.Read(filepath.Join(folder, fmt.Sprintf("model_tp%d_rank%d.onnx", ranks, rank)))
		if err != nil {
			return "", err
		}
		defer m.Close()
		models = append(models, m)
	}
	count := 0
	for _, n := range models[0].Graph.Nodes {
		if n.OpType == "DistCollective" {
			count++
		}
	}
	whole, err := onnx.Read(file)
	if err != nil {
		return "", err
	}
	defer whole.Close()
	inputs, want, err := evaluate(whole)
	if err != nil {
		return "", err
	}
	given := make([]map[string]*reference.Tensor, ranks)
	for rank := range given {
		given[rank] = inputs
	}
	result := ""
	if got, err := shard.Together(models, exact, given); err != nil {
		result = "error: " + first(err)
	} else {
		result = verdict(got[0], want)
	}
	return fmt.Sprintf("%d | %d %% | %s", count, size(models[0])*100/size(whole), result), nil
}

// mojo patches and divides a model with this toolkit and compares with the patched model.
func mojo(file string) (string, error) {
	whole, err := onnx.Read(file)
	if err != nil {
		return "", err
	}
	defer whole.Close()
	before := size(whole)
	if _, err := rewrite.Apply(whole, rewrite.Request{AssumeAvailable: true}); err != nil {
		return "", err
	}
	p, err := shard.New(whole, shard.Options{Ranks: ranks, Experts: shard.Split, Least: 1024, Form: shard.TensorRT})
	if err != nil {
		return "", err
	}
	inputs, want, err := evaluate(whole)
	if err != nil {
		return "", err
	}
	got, err := p.Evaluate(exact, inputs)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d | %d %% | %s", p.Cost.Collectives, p.Bytes*100/before, verdict(got, want)), nil
}

// evaluate evaluates a model on random inputs.
func evaluate(m *onnx.Model) (inputs, outputs map[string]*reference.Tensor, err error) {
	list, err := golden.RandomInputs(m, 5, nil)
	if err != nil {
		return nil, nil, err
	}
	inputs = map[string]*reference.Tensor{}
	for _, x := range list {
		if inputs[x.Name], err = reference.FromONNX(x); err != nil {
			return nil, nil, err
		}
	}
	e, err := reference.New(m, exact)
	if err != nil {
		return nil, nil, err
	}
	outputs, err = e.Run(inputs)
	return inputs, outputs, err
}

// verdict compares outputs that were computed without rounding.
func verdict(got, want map[string]*reference.Tensor) string {
	for name, y := range want {
		most := 0.0
		for _, x := range y.F {
			most = max(most, math.Abs(x))
		}
		if got[name] == nil || len(got[name].F) != len(y.F) {
			return fmt.Sprintf("output %s has another size", name)
		}
		for i, x := range y.F {
			if d := math.Abs(got[name].F[i] - x); !(d <= 1e-9*most) {
				return fmt.Sprintf("wrong: output %s differs by %.2g of %.2g", name, d, most)
			}
		}
	}
	return "right"
}

// size returns the bytes of a model's constants.
func size(m *onnx.Model) (n int64) {
	for _, v := range m.Graph.Initializers() {
		n += v.Const.Size()
	}
	return n
}
