package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/cputime"
)

var damages = flag.Int("damages", 20,
	"truncations, and twice as many flipped bytes, that TestDamagedModels tries on each model")

// TestDamagedModels truncates models and flips bytes: every command must end soon, with a result or a useful error.
func TestDamagedModels(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{"llama-dynamo-fp32", "llama-ts-fp32"} {
		whole, err := os.ReadFile(filepath.Join("..", "..", "models", name+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		for range *damages {
			n := r.IntN(len(whole))
			tryDamaged(t, fmt.Sprintf("%s cut off at %d", name, n), whole[:n])
		}
		for range 2 * *damages {
			b := bytes.Clone(whole)
			// Most of a file is weights, which are valid with any flipped byte. Prefer the start, where the graph is.
			at := r.IntN(len(b))
			if r.IntN(4) > 0 {
				at = r.IntN(min(len(b), 60_000))
			}
			b[at] ^= byte(1 + r.IntN(255))
			tryDamaged(t, fmt.Sprintf("%s with byte %d changed to %#x", name, at, b[at]), b)
		}
	}
}

// tryDamaged runs the commands on one damaged model.
func tryDamaged(t *testing.T, what string, model []byte) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "model.onnx")
	if err := os.WriteFile(path, model, 0o666); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.onnx")
	for _, args := range [][]string{
		{"inspect", path},
		{"apply", path, "-o", out, "--assume-available", "--check-kernels", "off"},
		{"run", path, "--evaluator"},
	} {
		var stdout, stderr bytes.Buffer
		code, late := make(chan int, 1), make(chan bool)
		stop := cputime.AfterFunc(time.Minute, func() { close(late) })
		go func() {
			defer func() {
				if p := recover(); p != nil {
					fmt.Fprintf(&stderr, "panic: %v", p)
					code <- -1
				}
			}()
			code <- execute(args, &stdout, &stderr)
		}()
		select {
		case got := <-code:
			if got != cli.ExitDone && (got != cli.ExitUsage && got != cli.ExitFailed || stderr.Len() == 0) {
				t.Errorf("%s: %s exits with %d: %s", what, args[0], got, stderr.String())
			}
			if got != cli.ExitDone && args[0] == "apply" && len(glob(t, out+"*")) > 0 {
				t.Errorf("%s: apply exits with %d and leaves %v", what, got, glob(t, out+"*"))
			}
		case <-late:
			t.Fatalf("%s: %s does not come to an end", what, args[0])
		}
		stop()
	}
	if len(glob(t, out)) > 0 {
		var stdout, stderr bytes.Buffer
		if code := execute([]string{"inspect", out}, &stdout, &stderr); code != cli.ExitDone {
			t.Errorf("%s: apply writes what cannot be read: %s", what, stderr.String())
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
