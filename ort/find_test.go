//go:build cgo

package ort_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// nowhere empties every place that Find searches, except the linker's.
func nowhere(t *testing.T) (cache string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the cache folder and the names of libraries are Linux's")
	}
	dir := t.TempDir()
	for _, name := range []string{ort.LibraryVariable, "VIRTUAL_ENV", "CONDA_PREFIX"} {
		t.Setenv(name, "")
	}
	t.Setenv("PATH", dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	cache = filepath.Join(dir, "mojo-patch", "onnxruntime-"+ort.BundledVersion)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	return cache
}

func TestFindPlaces(t *testing.T) {
	library := orttest.Library(t)
	cache := nowhere(t)
	python := filepath.Join(t.TempDir(), "venv")
	capi := filepath.Join(python, "lib", "python3.12", "site-packages", "onnxruntime", "capi")
	if err := errors.Join(os.MkdirAll(capi, 0o755),
		os.Symlink(library, filepath.Join(capi, filepath.Base(library)))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VIRTUAL_ENV", python)
	check := func(explicit, source string) {
		t.Helper()
		lib, err := ort.Find(explicit)
		if err != nil || lib.Source != source || lib.API < ort.APILevel || !strings.HasPrefix(lib.Version, "1.") {
			t.Errorf("got %+v, %v, want one from %s", lib, err, source)
		}
	}
	const environment = "virtual environment ($VIRTUAL_ENV)"
	check("", environment)
	other := filepath.Join(filepath.Dir(cache), "onnxruntime-1.30.0") // the second source of the script
	if err := errors.Join(os.Mkdir(other, 0o755),
		os.Symlink(library, filepath.Join(other, "libonnxruntime.so.1.30.0"))); err != nil {
		t.Fatal(err)
	}
	check("", environment)
	t.Setenv("VIRTUAL_ENV", "")
	check("", "cache folder")
	if err := os.RemoveAll(other); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(library, filepath.Join(cache, filepath.Base(library))); err != nil {
		t.Fatal(err)
	}
	check("", "cache folder")
	t.Setenv(ort.LibraryVariable, capi)
	check("", "$"+ort.LibraryVariable)
	check(library, "given path")

	for _, relative := range []string{"libonnxruntime.so", ".", "./lib/libonnxruntime.so"} {
		t.Setenv(ort.LibraryVariable, relative)
		if _, err := ort.Find(""); !errors.Is(err, ort.ErrNoLibrary) || !strings.Contains(err.Error(), "relative") {
			t.Errorf("%s is relative: %v", relative, err)
		}
	}
	t.Setenv(ort.LibraryVariable, filepath.Join(cache, "none.so"))
	if _, err := ort.Find(""); !errors.Is(err, ort.ErrNoLibrary) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a variable that names no file: %v", err)
	}
}

// findNothing is the environment variable that marks the process that TestFindNothing starts.
const findNothing = "MOJO_TEST_FIND_NOTHING"

// TestFindNothing runs itself in another process, because the linker finds a loaded library by its name.
func TestFindNothing(t *testing.T) {
	if os.Getenv(findNothing) != "" {
		lib, err := ort.Find("")
		if err == nil {
			t.Skipf("the system has an onnxruntime of its own: %s", lib.Path)
		}
		if !errors.Is(err, ort.ErrNoLibrary) {
			t.Error("it does not wrap ErrNoLibrary")
		}
		t.Log(err)
		return
	}
	old := filepath.Join(t.TempDir(), "libonnxruntime.so.1.20.0")
	oldLibrary(t, old)
	cache := nowhere(t)
	if err := os.Symlink(old, filepath.Join(cache, "libonnxruntime.so.1.20.0")); err != nil {
		t.Fatal(err)
	}
	test := exec.Command(os.Args[0], "-test.run=^TestFindNothing$", "-test.v")
	test.Env = append(os.Environ(), findNothing+"=1")
	out, err := test.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"library found; onnxruntime 1.20.0 is too old: 1.29 or newer is needed; pip install -U", "fetch-onnxruntime.sh",
		ort.LibraryVariable, filepath.Join(cache, "libonnxruntime"), "system linker path",
	} {
		if !strings.Contains(string(out), want) && !strings.Contains(string(out), "SKIP") {
			t.Errorf("the error does not name %s:\n%s", want, out)
		}
	}
}

// oldLibrary compiles a library that reports version 1.20.0.
func oldLibrary(t *testing.T, path string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	test := exec.Command(cc, "-shared", "-fPIC", "-o", path, "-x", "c", "-")
	test.Stdin = strings.NewReader(`static const void *api(unsigned v) { return 0; }
static const char *version(void) { return "1.20.0"; }
static struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {api, version};
const void *OrtGetApiBase(void) { return &base; }`)
	if out, err := test.CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
}

// TestFindNotHere makes every variable point to the working directory, which has a library of each name.
func TestFindNotHere(t *testing.T) {
	library := orttest.Library(t)
	nowhere(t)
	here := t.TempDir()
	t.Chdir(here)
	for _, folder := range []string{".", "bin", "lib/python3.12/site-packages/onnxruntime/capi", ".cache/mojo-patch/" +
		"onnxruntime-" + ort.BundledVersion, ".local/lib/python3.12/site-packages/onnxruntime/capi"} {
		for _, name := range []string{"libonnxruntime.so", "libonnxruntime.so.1", "python3"} {
			if err := errors.Join(os.MkdirAll(folder, 0o777),
				os.Symlink(library, filepath.Join(folder, name))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, ".")
	}
	t.Setenv("PATH", "bin:.:")
	t.Setenv("LD_LIBRARY_PATH", ":lib")
	if lib, err := ort.Find(""); err == nil {
		t.Errorf("found %+v", lib)
	} else if !strings.Contains(err.Error(), "$LD_LIBRARY_PATH has an entry") {
		t.Errorf("the error does not say why the linker was not asked: %v", err)
	}
	absolute := t.TempDir() // absolute folders are still searched
	if err := os.Symlink(library, filepath.Join(absolute, "libonnxruntime.so")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", ":"+absolute)
	if lib, err := ort.Find(""); err != nil || lib.Source != "$LD_LIBRARY_PATH" {
		t.Errorf("found %+v, %v", lib, err)
	}
	if lib, err := ort.Find("libonnxruntime.so"); err != nil || !filepath.IsAbs(lib.Path) {
		t.Errorf("a path that the caller names: %+v, %v", lib, err)
	}
}

func TestFindPassesOverWhatItCannotUse(t *testing.T) {
	library := orttest.Library(t)
	old := filepath.Join(t.TempDir(), "libonnxruntime.so.1.20.0")
	oldLibrary(t, old)
	_, err := ort.Find(old)
	if err == nil || !strings.Contains(err.Error(), "onnxruntime 1.20.0 is too old: 1.29 or newer is needed") {
		t.Errorf("an old onnxruntime gives error %v", err)
	}

	cache := nowhere(t)
	if err := os.WriteFile(filepath.Join(cache, "libonnxruntime.so.9"), []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(library, filepath.Join(cache, "libonnxruntime.so.1")); err != nil {
		t.Fatal(err)
	}
	if lib, err := ort.Find(""); err != nil || lib.Source != "cache folder" {
		t.Errorf("a damaged library beside a good one gives %+v, %v", lib, err)
	}
}

func TestOneLibraryPerProcess(t *testing.T) {
	library := orttest.Library(t)
	if _, err := ort.Open(identity(t, 1, 1), ort.WithLibrary(filepath.Dir(library))); err != nil {
		t.Error("the folder of the library that is loaded:", err)
	}
	if _, err := ort.Open(identity(t, 1, 1), ort.WithLibrary("/no/such/library.so")); err == nil {
		t.Error("a library that does not exist was accepted")
	}
}

// TestPins compares the other places that pin the tested onnxruntime with BundledVersion.
func TestPins(t *testing.T) {
	for file, line := range map[string]string{
		"tools/fetch-onnxruntime.sh":       "pip_version=",
		"tools/requirements/test.txt":      "onnxruntime==",
		"tools/requirements/export.txt":    "onnxruntime==",
		"tools/requirements/exporters.txt": "onnxruntime==",
		"docs/install.md":                  "pip install onnxruntime==",
		"THIRD_PARTY.md":                   "| onnxruntime (its shared library) | ",
	} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		_, version, found := strings.Cut("\n"+string(text), "\n"+line)
		if !found || !strings.HasPrefix(version, ort.BundledVersion) {
			t.Errorf("%s: %q is followed by %.8q, not by %s", file, line, version, ort.BundledVersion)
		}
	}
}
