//go:build unix

package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRefuse(t *testing.T) {
	dir := t.TempDir()
	pipe, socket, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o666), os.WriteFile(file, []byte("12345678"), 0o666),
		os.Symlink(pipe, filepath.Join(dir, "link")), os.Symlink(file, filepath.Join(dir, "good"))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{
		pipe: "pipe is a named pipe: only regular files are read", filepath.Join(dir, "link"): "is a named pipe",
		socket: "is a socket", "/dev/zero": "is a device", dir: "is a folder",
		filepath.Join(dir, "none"): "no such file", file: "", filepath.Join(dir, "good"): "",
	} {
		done := make(chan error, 2)
		go func() {
			_, err := ReadFile(path, 8)
			done <- err
			done <- Check(path)
		}()
		for range 2 {
			select {
			case err := <-done:
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s: %v, want %q", path, err, want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: it waits", path)
			}
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 8); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if b, err := ReadFile(file, 8); err != nil || string(b) != "12345678" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadFile(file, 7); err == nil || !strings.Contains(err.Error(), "it has more than the 7 bytes") {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/self/status"); err == nil { // of size 0
		if b, err := ReadFile("/proc/self/status", 1<<20); err != nil || len(b) == 0 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if _, err := ReadFile("/proc/self/status", 10); err == nil {
			t.Error("more than the bound")
		}
	}
}

// TestOthersOpenHere finds code that reads files without this package. A program may open its own files by name.
func TestOthersOpenHere(t *testing.T) {
	own := map[string]bool{"internal/regular/regular.go": true, "internal/atomicfile/folder.go": true,
		"cmd/mojo-patch/cli/rss_unix.go": true, "cmd/mojo-patch/bench/times.go": true, "onnx/write.go": true}
	for _, folder := range []string{"cmd", "golden", "internal/atomicfile", "internal/mmap", "llm", "onnx", "ort",
		"page", "patterns", "rewrite", "trace", "tune"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			code := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
			if err != nil || d.IsDir() || !code || own[name] {
				return err
			}
			text, err := os.ReadFile(path)
			for _, call := range []string{"os.Open(", "os.ReadFile("} {
				if strings.Contains(string(text), call) {
					t.Errorf("%s calls %s), which waits at a named pipe: use package regular", name, call)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
