// Package orttest finds onnxruntime and the kernel library for tests. A test that needs a missing one is skipped, or
// fails if the environment variable MOJO_REQUIRE_ORT is set.
package orttest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// RequireVariable is the environment variable that turns skipping into failing.
const RequireVariable = "MOJO_REQUIRE_ORT"

// ProviderVariable is the environment variable that names the execution provider under test, such as CUDA. Without it,
// or with CPU, it is the CPU's.
const ProviderVariable = "MOJO_TEST_PROVIDER"

// Provider returns the option for the execution provider under test.
func Provider() ort.Option {
	if CUDA() {
		return ort.WithProvider("CUDA", map[string]string{"use_tf32": "0"}) // products of float32 as on the CPU
	}
	if name := os.Getenv(ProviderVariable); name != "" && name != "CPU" {
		return ort.WithProvider(name, nil)
	}
	return ort.WithThreads(1)
}

// CUDA reports whether the execution provider under test is CUDA's.
func CUDA() bool { return providers.Same(os.Getenv(ProviderVariable), "CUDA") }

// CUDAGraphs is Provider with CUDA graphs recorded.
func CUDAGraphs() ort.Option {
	return ort.WithProvider("CUDA", map[string]string{"use_tf32": "0", "enable_cuda_graph": "1"})
}

// Library returns the path of onnxruntime: the one that ort.Find finds, else the one in the repository's virtual
// environment build/venv.
func Library(t testing.TB) string {
	t.Helper()
	path, err := library()
	if err != nil {
		missing(t, err)
	}
	return path
}

func library() (string, error) {
	lib, err := ort.Find("")
	if err == nil || os.Getenv(ort.LibraryVariable) != "" { // a wrong one must not go unnoticed
		return lib.Path, err
	}
	found, _ := filepath.Glob(filepath.Join(root(), "build", "venv", "lib", "python3*", "site-packages", "onnxruntime",
		"capi"))
	for _, dir := range found {
		if lib, err := ort.Find(dir); err == nil {
			return lib.Path, nil
		}
	}
	return "", err
}

// Main is for TestMain of packages whose examples open models. The examples use the onnxruntime of Library and the
// kernels of Kernels. Without onnxruntime they are skipped like tests, which an example cannot do itself.
func Main(m *testing.M) {
	if path, err := kernels(); err == nil {
		os.Setenv(fused.LibraryVariable, path)
	}
	path, err := library()
	switch {
	case err == nil:
		os.Setenv(ort.LibraryVariable, path)
	case os.Getenv(RequireVariable) != "":
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		flag.Parse()
		skip := "^Example"
		if given := flag.Lookup("test.skip").Value.String(); given != "" {
			skip = "(" + given + ")|" + skip
		}
		flag.Set("test.skip", skip)
	}
	os.Exit(m.Run())
}

// Kernels returns the path of the library with the fused kernels: the one that fused.FindLibrary finds, else the one in
// the repository's build/.
func Kernels(t testing.TB) string {
	t.Helper()
	path, err := kernels()
	if err != nil {
		missing(t, err)
	}
	return path
}

func kernels() (string, error) {
	path, err := fused.FindLibrary("")
	if err == nil || os.Getenv(fused.LibraryVariable) != "" {
		return path, err
	}
	return fused.FindLibrary(filepath.Join(root(), "build"))
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(RequireVariable) != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// root returns the folder of the module that the test runs in, or the working directory.
func root() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "."
}
