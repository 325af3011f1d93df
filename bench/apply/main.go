// Command apply measures the CPU time of `mojo-patch apply` on graphs of growing size, without and with checks, and of
// the peers' tools on the same files if they are installed.
//
//	go run ./bench/apply [-tool build/mojo-patch] [-python PYTHON] [-sizes 200,20000,100000] [MODEL.onnx …]
//
// The generated graphs are stacks of Llama layers as torch.onnx writes them (dynamo form), with small weights. Models
// given on the command line are measured as well; their external data may be absent.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func main() {
	tool := flag.String("tool", "build/mojo-patch", "the `file` of mojo-patch")
	python := flag.String("python", "", "a Python `interpreter` with the peers (onnxscript, transformers)")
	sizes := flag.String("sizes", "200,20000,100000", "`numbers` of nodes to generate graphs of")
	flag.Parse()
	if err := run(*tool, *python, *sizes, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "apply:", err)
		os.Exit(1)
	}
}

func run(tool, python, sizes string, models []string) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var files []string
	for _, s := range strings.Split(sizes, ",") {
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("-sizes: %w", err)
		}
		path := filepath.Join(dir, fmt.Sprintf("llama-%d.onnx", n))
		if err := onnx.Write(path, stack(n)); err != nil {
			return err
		}
		files = append(files, path)
	}
	files = append(files, models...)
	fmt.Println("| model | nodes | apply --verify off | apply | fused by apply | onnxscript optimize_for_ort | " +
		"transformers fuse_for_onnxruntime |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, f := range files {
		m, err := onnx.Read(f, onnx.AllowMissingData())
		if err != nil {
			return err
		}
		nodes := len(m.Graph.Nodes)
		m.Close()
		out := filepath.Join(dir, "out.onnx")
		apply := []string{tool, "apply", f, "-o", out, "--allow-missing-weights", "-q"}
		cells := []string{filepath.Base(f), strconv.Itoa(nodes),
			cpu(out, append(apply[:len(apply):len(apply)], "--verify", "off")...), cpu(out, apply...), fused(apply),
			peer(python, nodes, optimizeForORT, f, out), peer(python, nodes, fuseForONNXRuntime, f, out)}
		fmt.Println("| " + strings.Join(cells, " | ") + " |")
	}
	return nil
}

// The peers' one-line use from their documentation. Each prints the CPU seconds of load, fuse and save, and the fused
// ops. The import of its packages, which takes some seconds more, is not counted. (mojo-patch is timed as a whole
// process.)
const (
	peerScript = `import sys, time, os, onnx_ir as ir
%s
start = time.process_time()
m = ir.load(sys.argv[1])
%s
ir.save(m, sys.argv[2])
seconds = time.process_time() - start
from collections import Counter
fused = Counter(n.op_type for n in m.graph if n.domain == 'com.microsoft' or n.op_type.endswith('LayerNormalization'))
print("%%.1f s: %%s" %% (seconds, ", ".join(f"{k} {v}" for k, v in sorted(fused.items())) or "nothing fused"))`
	peerLimit = 5000 // nodes: beyond, the peers take many minutes
)

var (
	optimizeForORT = fmt.Sprintf(peerScript, "from onnxscript.rewriter.ort_fusions import optimize_for_ort",
		"m, _ = optimize_for_ort(m)")
	fuseForONNXRuntime = fmt.Sprintf(peerScript,
		"from transformers.exporters.onnxruntime_fusions import fuse_for_onnxruntime", "fuse_for_onnxruntime(m, 'cpu')")
)

func peer(python string, nodes int, script, in, out string) string {
	if python == "" || nodes > peerLimit {
		return "not run"
	}
	var stderr strings.Builder
	c := exec.Command(python, "-c", script, in, out)
	c.Stderr = &stderr
	printed, err := c.Output()
	switch {
	case strings.Contains(stderr.String(), "ModuleNotFoundError"):
		return "not installed"
	case err != nil:
		return "failed: " + lastLine(stderr.String()+err.Error())
	}
	return lastLine(string(printed))
}

// fused returns the ops that apply fused, from its JSON report.
func fused(apply []string) string {
	printed, err := exec.Command(apply[0], append(apply[1:len(apply):len(apply)], "--json")...).Output()
	var report struct {
		Patterns []struct {
			Name  string
			Fused int
		}
	}
	if err == nil {
		err = json.Unmarshal(printed, &report)
	}
	if err != nil {
		return "failed: " + err.Error()
	}
	var counts []string
	for _, p := range report.Patterns {
		if p.Fused > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", p.Name, p.Fused))
		}
	}
	return strings.Join(counts, ", ")
}

// cpu runs a command three times and returns the median of its user and system time in seconds.
func cpu(out string, command ...string) string {
	var times []float64
	for range 3 {
		os.Remove(out)
		c := exec.Command(command[0], command[1:]...)
		message, err := c.CombinedOutput()
		if err != nil {
			return "failed: " + lastLine(string(message)+err.Error())
		}
		times = append(times, c.ProcessState.UserTime().Seconds()+c.ProcessState.SystemTime().Seconds())
	}
	a, b, d := times[0], times[1], times[2]
	return fmt.Sprintf("%.3f s", max(min(a, b), min(max(a, b), d)))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.ReplaceAll(lines[len(lines)-1], "|", "/")
}
