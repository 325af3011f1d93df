//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "model.onnx")
	l, err := Acquire(out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(out); !errors.Is(err, ErrBusy) {
		t.Errorf("a second lock: %v", err)
	}
	if err := l.SetNote("half done"); err != nil {
		t.Fatal(err)
	}
	l.file.Close() // as when the process dies
	Keep(l.file.Name())

	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".model.onnx.12-0.tmp", ".model.onnx.12-1.data.tmp", ".model.onnx.data.12-0.tmp",
		"model.onnx.12-0.tmp",
		".model.onnx.tmp", ".other.onnx.12-0.tmp", ".model.onnx.12-0.tmp.onnx"} {
		write(name)
	}
	if l, err = Acquire(out); err != nil || l.Note() != "half done" {
		t.Fatalf("the lock of a dead run has the note %q, %v", l.Note(), err)
	}
	own, err := CreateKind(out, "data")
	if err != nil {
		t.Fatal(err)
	}
	own.Close()
	list, err := l.Leftovers()
	if err != nil || len(list) != 2 || filepath.Base(list[0]) != ".model.onnx.12-0.tmp" ||
		filepath.Base(list[1]) != ".model.onnx.12-1.data.tmp" {
		t.Errorf("leftovers %v, %v", list, err)
	}
	if err := errors.Join(Remove(own.Name()), l.Release()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".model.onnx.lock")); err == nil {
		t.Error("the lock file is still there")
	}
	if l, err = Acquire(out); err != nil || l.Note() != "" {
		t.Errorf("after the release: %v", err)
	}
	l.Release()
}

// TestLockOfNoFile puts a named pipe in the lock's place, which a read would block on.
func TestLockOfNoFile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "model.onnx")
	if err := syscall.Mkfifo(filepath.Join(filepath.Dir(out), ".model.onnx.lock"), 0o666); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := Acquire(out)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "it is not a separate file") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits")
	}
}

func TestFoldersOfTheDead(t *testing.T) {
	dir := t.TempDir()
	alive, err := MkdirTemp(dir, "probe-*")
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	for _, name := range []string{alive, filepath.Join(dir, "probe-123"), filepath.Join(dir, "probe-name"),
		filepath.Join(dir, "probe-124")} {
		os.Mkdir(name, 0o777)
		if name != filepath.Join(dir, "probe-124") { // it is young
			os.Chtimes(name, past, past)
		}
	}
	delete(paths, alive) // so that only its lock protects it
	second, err := MkdirTemp(dir, "probe-*")
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if e.Name() == "probe-123" {
			t.Error("the folder of a dead run is still there")
		}
	}
	if len(names) != 4 {
		t.Errorf("left %v", names)
	}
	Remove(alive, second)
}
