//go:build linux

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestInterruptEveryCommand ends each command that writes, at moments spread over its run, with signals that allow a
// cleanup and with one that does not. After the former, either all files of the command exist or no file. After the
// latter, a model exists only with the files that precede it. MOJO_INTERRUPTS is the number of moments, 2 by default.
func TestInterruptEveryCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs every command several times")
	}
	moments := 2
	if n, err := strconv.Atoi(os.Getenv("MOJO_INTERRUPTS")); err == nil {
		moments = n
	}
	const llama, cached = "../../models/llama-ts-fp32.onnx", "../../models/llama-kv-dynamo-fp32.onnx"
	work := t.TempDir()
	in := func(name string) string { return filepath.Join(work, name) }
	run := func(dir, line string, wait func(), signal syscall.Signal) (int, time.Duration, string) {
		t.Helper()
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(program)
		c.Args = []string{"mojo-patch"}
		for _, arg := range strings.Fields(line) {
			c.Args = append(c.Args, strings.NewReplacer("OUT", dir, "~", " ").Replace(arg))
		}
		var stderr strings.Builder
		c.Stderr = &stderr
		start := time.Now()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if signal != 0 {
			wait()
			c.Process.Signal(signal)
		}
		c.Wait()
		return c.ProcessState.ExitCode(), time.Since(start), stderr.String()
	}
	must := func(line string) {
		t.Helper()
		if code, _, stderr := run(work, line, nil, 0); code != cli.ExitDone {
			t.Fatalf("%s: %d\n%s", line, code, stderr)
		}
	}
	const quick = " --assume-available --check-kernels off"
	must("apply " + llama + " -o OUT/patched.onnx" + quick)
	must("weights strip " + llama + " -o OUT/graph.onnx --over 200")
	m, err := onnx.Read(llama)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	list, err := checkpoints.Llama(m)
	if err := errors.Join(err, checkpoints.Safetensors(in("m.safetensors"), list)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("wrong.pat"), []byte("pattern Ungated(gate, up) -> y {\n"+
		"  y = Mul(Mul(gate, Sigmoid(gate)), up)\n} => Mul(gate, up)\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	must("match " + llama + " -o OUT/wrong.json --patterns " + in("wrong.pat") +
		" --only Ungated,RMSNorm --verify off --assume-available")
	bisect := "bisect " + llama + " --plan " + in("wrong.json") + " --evaluator --dim sequence=3 -o OUT/f.json " +
		"--passing OUT/p.json --extract OUT/part"
	for _, line := range []string{
		bisect,
		"apply " + llama + " -o OUT/m.onnx --external-data-over 1000 --html OUT/p.html --learn OUT/l.pat" + quick,
		"match " + llama + " -o OUT/plan.json --html OUT/p.html" + quick,
		"revert " + in("patched.onnx") + " -o OUT/m.onnx",
		"quantize " + llama + " --format q4_0 -o OUT/m.onnx --external-data-over 1000",
		"weights strip " + llama + " -o OUT/m.onnx",
		"weights load " + in("graph.onnx") + " --from " + in("m.safetensors") + " -o OUT/m.onnx",
		"extract " + llama + " -o OUT/part --block layer~1~mlp --evaluator",
		"export genai " + cached + " --tokenizer ../../models/smollm2 -o OUT/folder",
		"export triton " + cached + " -o OUT/repository --name x",
		"golden record " + llama + " -o OUT/g.npz --evaluator --dim sequence=3",
		"golden record " + llama + " -o OUT/data --evaluator --dim sequence=3",
		"diff " + llama + " " + in("patched.onnx") + " --evaluator --dim sequence=3 --html OUT/d.html",
	} {
		whole := t.TempDir()
		code, took, stderr := run(whole, line, nil, 0)
		if code != cli.ExitDone {
			t.Errorf("%s: %d\n%s", line, code, stderr)
			continue
		}
		want := filesBelow(t, whole)
		ended := 0
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
			for i := range moments {
				dir := t.TempDir()
				moment := took * time.Duration(2*i+1) / time.Duration(2*moments)
				code, _, _ := run(dir, line, func() { time.Sleep(moment) }, signal)
				if code != cli.ExitDone {
					ended++
				}
				if got := filesBelow(t, dir); signal != syscall.SIGKILL && len(got) > 0 && !slices.Equal(got, want) {
					t.Errorf("%s: %v, which made it exit with %d, left %q of %q", line, signal, code, got, want)
				} else if signal == syscall.SIGKILL {
					checkKilled(t, line, want, got)
				}
			}
		}
		t.Logf("%s: ended %d of %d times", line, ended, 3*moments)
	}

	dir := t.TempDir()
	code, _, stderr := run(dir, bisect, func() {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if begun, _ := filepath.Glob(filepath.Join(dir, ".mojo-patch-folder-*")); len(begun) > 0 {
				return
			}
		}
	}, syscall.SIGTERM)
	if got := filesBelow(t, dir); code != 143 || len(got) > 0 {
		t.Errorf("%s: interrupted while it fills the folder, exit code %d, left %q\n%s", bisect, code, got, stderr)
	}
}

// checkKilled reports an error if a killed command left a file without all files that precede it.
func checkKilled(t *testing.T, line string, want, got []string) {
	t.Helper()
	const model = "m.onnx"
	for _, name := range want {
		if slices.Contains(got, model) && !slices.Contains(got, name) {
			t.Errorf("%s: killed, it left %s without %s: %q", line, model, name, got)
		}
	}
	for _, name := range got {
		temporary := strings.Contains("/"+name, "/.") // or in a temporary folder
		if strings.Contains(name, "/") && !temporary && len(got) < len(want) {
			t.Errorf("%s: killed, it left a part of a folder: %q of %q", line, got, want)
		}
	}
}

// filesBelow lists the files below a folder.
func filesBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(dir, path)
			list = append(list, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
