//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestInterruptLeavesNothing interrupts apply while it copies a large file of weights.
func TestInterruptLeavesNothing(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		model := modelWithWeights(t, 3<<30)
		out := t.TempDir()
		c := exec.Command(program)
		// TestMain looks at the name
		c.Args = []string{"mojo-patch", "apply", model, "-o", filepath.Join(out, "patched.onnx"), "--assume-available",
			"--check-kernels", "off"}
		var stderr strings.Builder
		c.Stderr = &stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		for len(ended) == 0 && !strings.Contains(strings.Join(files(t, out), " "), ".data.") {
			time.Sleep(time.Millisecond)
		}
		if err := c.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		<-ended
		if c.ProcessState.Success() {
			t.Skip("this file system copies 3 GB in no time")
		}
		if got := c.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: exit code %d, want %d\n%s", signal, got, code, stderr.String())
		}
		if left := files(t, out); len(left) > 0 {
			t.Errorf("%v left %v", signal, left)
		}
	}
}

// TestInterruptGenerate interrupts an endless generation and demands the text generated so far.
func TestInterruptGenerate(t *testing.T) {
	onnxruntime, _ := testEnvironment(t)
	if onnxruntime == "" {
		t.Skip("onnxruntime is not here")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Args = []string{"mojo-patch", "generate", "../../models/llama-kv-dynamo-fp32.onnx", "--ids", "5,6", "-n", "0",
		"--threads", "1"}
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	reader := bufio.NewReader(out)
	for range 3 {
		if _, err := reader.ReadString(' '); err != nil {
			t.Fatal(err, stderr.String())
		}
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130\n%s", code, stderr.String())
	}
	if !strings.HasSuffix(string(rest), "\n") || !strings.Contains(stderr.String(), "ended by: interrupted") ||
		!strings.Contains(stderr.String(), "tokens/s") {
		t.Errorf("stdout ends with %q\n%s", string(rest[max(0, len(rest)-40):]), stderr.String())
	}
}

// modelWithWeights writes a model of one Add whose weights of n bytes are a hole in an external file.
func modelWithWeights(t *testing.T, n int64) string {
	t.Helper()
	number := func(b []byte, field protowire.Number, v int64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
	}
	text := func(b []byte, field protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	add := text(text(text(text(nil, 1, "x"), 1, "w"), 2, "y"), 4, "Add")
	weights := text(number(number(nil, 1, n/4), 2, 1), 8, "w")
	weights = text(weights, 13, string(text(text(nil, 1, "location"), 2, "weights")))
	weights = number(weights, 14, 1)
	graph := text(text(text(nil, 1, string(add)), 2, "g"), 5, string(weights))
	graph = text(text(graph, 11, string(text(nil, 1, "x"))), 12, string(text(nil, 1, "y")))
	model := text(text(number(nil, 1, 10), 7, string(graph)), 8, string(number(nil, 2, 20)))

	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, model, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(filepath.Dir(path), "weights"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	return path
}
