package op

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestFindLibrary(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(LibraryVariable, dir)
	if _, err := FindLibrary(""); err == nil {
		t.Error("a folder without the library was accepted")
	}
	lib := dir + "/" + CPU.LibraryName()
	if err := os.WriteFile(lib, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, explicit := range []string{"", dir, lib} {
		if got, err := FindLibrary(explicit); err != nil || got != lib {
			t.Errorf("FindLibrary(%q) = %q, %v", explicit, got, err)
		}
	}
	if _, err := FindLibrary(dir + "/elsewhere.so"); err == nil {
		t.Error("an explicit path that does not exist was passed over")
	}
	for _, d := range []Device{CUDA, NPU} {
		name, find := d.LibraryName(), d.FindLibrary
		if _, err := find(""); err == nil {
			t.Errorf("a folder with the CPU's library alone has %s", name)
		}
		if _, err := find(lib); err == nil || !strings.Contains(err.Error(), "is not "+name) {
			t.Errorf("the CPU's library was taken for %s: %v", name, err)
		}
		device := dir + "/" + name
		if err := os.WriteFile(device, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, explicit := range []string{"", dir, device} {
			if got, err := find(explicit); err != nil || got != device {
				t.Errorf("%s: found by %q: %q, %v", name, explicit, got, err)
			}
		}
	}
}

// TestFindLibraryInOrder copies this program into an environment, and takes the places of its libraries away one by
// one. In each folder of the working directory lies a library that is never found.
func TestFindLibraryInOrder(t *testing.T) {
	const finding = "MOJO_TEST_FINDING"
	if os.Getenv(finding) != "" {
		path, err := FindLibrary("")
		fmt.Printf("found %q %v\n", path, err)
		return
	}
	root, here := t.TempDir(), t.TempDir()
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	put := func(path string) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	name := CPU.LibraryName()
	for _, folder := range []string{".", "build", "lib", "mojo_patch", "lib/python3.9/site-packages/mojo_patch"} {
		put(filepath.Join(here, folder, name))
	}
	put(filepath.Join(here, "go.mod"))
	find := func(folder string, environment ...string) string {
		t.Helper()
		program := filepath.Join(root, folder, "program")
		if _, err := os.Stat(program); err != nil {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(self)
			if err := errors.Join(err, os.MkdirAll(filepath.Dir(program), 0o777),
				os.WriteFile(program, b, 0o777)); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command(program, "-test.run=^TestFindLibraryInOrder$")
		c.Dir = here
		c.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
			return strings.HasPrefix(e, LibraryVariable+"=")
		}), append(environment, finding+"=1")...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	given := put(filepath.Join(t.TempDir(), name))
	places := []string{
		put(filepath.Join(root, "bin", name)),
		put(filepath.Join(root, "lib", name)),
		put(filepath.Join(root, "lib", "python3.9", "site-packages", "mojo_patch", name)),
		put(filepath.Join(root, "mojo_patch", name)), // pip install --target
	}
	if got := find("bin", LibraryVariable+"="+given); !strings.Contains(got, fmt.Sprintf("found %q <nil>", given)) {
		t.Errorf("the variable: %s", got)
	}
	for _, want := range places {
		if got := find("bin"); !strings.Contains(got, fmt.Sprintf("found %q <nil>", want)) {
			t.Errorf("want %s: %s", want, got)
		}
		if err := os.Remove(want); err != nil {
			t.Fatal(err)
		}
	}
	put(places[1]) // a folder above the program's that is not above a bin may be anybody's
	for _, got := range []string{find("program"), find("program", LibraryVariable+"=build")} {
		if !strings.Contains(got, `found ""`) || !strings.Contains(got, ErrNoLibrary.Error()) ||
			strings.Contains(got, here) {
			t.Errorf("%s", got)
		}
	}
}

// TestAnyOf names the types that a variable may be.
func TestAnyOf(t *testing.T) {
	for want, types := range map[string][]onnx.DataType{
		"float32":                       {onnx.Float, onnx.Float},
		"float32 and float16":           {onnx.Float, onnx.Float16, onnx.Float},
		"float32, float16 and bfloat16": {onnx.Float, onnx.Float16, onnx.BFloat16},
	} {
		o := &Op{}
		for _, dt := range types {
			o.Types = append(o.Types, Combination{Types: map[string]onnx.DataType{"T": dt}})
		}
		if got := o.anyOf("T"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
