package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestEverythingUnderWayIsRemoved(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	second, err := Create(filepath.Join(dir, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if filepath.Dir(f.Name()) != dir || f.Name() == second.Name() {
		t.Errorf("temporary files %s and %s, expected two in %s", f.Name(), second.Name(), dir)
	}
	folder, err := MkdirTemp(dir, "probe")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(folder, "x"), filepath.Join(dir, "kept")} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := Commit(func() error { return os.Rename(f.Name(), filepath.Join(dir, "model.onnx")) }); err != nil {
		t.Fatal(err)
	}
	removeAll()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "kept" || entries[1].Name() != "model.onnx" {
		t.Errorf("left %v (%v), expected kept and model.onnx", entries, err)
	}
}

// TestFolderThatIsWrittenIsRemoved lets another goroutine write to a folder during RemoveAll.
func TestFolderThatIsWrittenIsRemoved(t *testing.T) {
	dir := t.TempDir()
	for range 20 {
		folder, err := MkdirTemp(dir, "probe-*")
		if err != nil {
			t.Fatal(err)
		}
		begun, ended := make(chan bool), make(chan int)
		go func() {
			for i := 0; ; i++ {
				if i == 100 {
					close(begun)
				}
				if os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), nil, 0o666) != nil {
					ended <- i
					return
				}
			}
		}()
		<-begun
		removeAll()
		if n := <-ended; n < 100 {
			t.Errorf("the folder is gone after %d files", n)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Fatalf("%v is left, %v", entries, err)
		}
	}
}

func TestRemoveForgets(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := Remove(f.Name()); err != nil || len(paths) != 0 {
		t.Errorf("error %v, still tracked: %v", err, paths)
	}
	if _, err := os.Stat(f.Name()); err == nil {
		t.Error("the file is still there")
	}
}

func TestCreateInNoFolder(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "absent", "x")); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}

// TestWriteOverNoFile demands that a device stays: a user who may write to /dev would lose it.
func TestWriteOverNoFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "device")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{link, dir} {
		err := WriteFile(path, func(io.Writer) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != os.DevNull {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

func TestWriteFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "made")
	fails := errors.New("full")
	err := WriteFolder(path, func(folder string) error {
		return errors.Join(os.WriteFile(filepath.Join(folder, "x"), nil, 0o666), fails)
	})
	if entries, _ := os.ReadDir(dir); !errors.Is(err, fails) || len(entries) != 0 {
		t.Errorf("%v, and %v is left", err, entries)
	}
	err = WriteFolder(path, func(folder string) error {
		if _, err := os.Stat(path); err == nil {
			t.Error("the folder appears before it is whole")
		}
		return os.WriteFile(filepath.Join(folder, "x"), nil, 0o666)
	})
	info, statErr := os.Stat(filepath.Join(path, "x"))
	if err != nil || statErr != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", err, statErr)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v is left", entries)
	}
}
