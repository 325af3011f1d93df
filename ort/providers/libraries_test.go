package providers_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/ort/providers"
)

func TestFindProviderLibraries(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the names of libraries are Linux's")
	}
	cache := t.TempDir()
	for _, name := range []string{"CONDA_PREFIX", "PATH", "HOME"} {
		t.Setenv(name, "")
	}
	python := filepath.Join(t.TempDir(), "venv")
	packages := filepath.Join(python, "lib", "python3.12", "site-packages")
	var want []string
	plant := func(provider string, parts ...string) {
		path := filepath.Join(parts...)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if provider != "" {
			want = append(want, provider+" "+path)
		}
	}
	plant("CUDAExecutionProvider", cache, "libonnxruntime_providers_cuda.so")
	plant("OpenVINOExecutionProvider", packages, "onnxruntime_ep_openvino",
		"libonnxruntime_providers_openvino_plugin.so")
	plant("QNNExecutionProvider", packages, "onnxruntime_qnn", "libonnxruntime_providers_qnn.so")
	plant("", packages, "onnxruntime", "capi", "libonnxruntime_providers_shared.so")
	plant("", packages, "onnxruntime_qnn", "libQnnHtp.so")
	plant("", packages, "other", "libonnxruntime_providers_webgpu.so")
	t.Setenv("VIRTUAL_ENV", python)
	t.Setenv(providers.LibraryVariable, "")
	list := func(given ...string) []string {
		t.Helper()
		found, err := providers.FindLibraries(filepath.Join(cache, "libonnxruntime.so"), given...)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range found {
			names = append(names, l.Provider+" "+l.Path)
		}
		return names
	}
	got := list()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	// Named libraries come first, and once.
	folder := filepath.Join(packages, "onnxruntime_qnn")
	if got := list(folder); len(got) != len(want) || !strings.HasPrefix(got[0], "QNN") {
		t.Errorf("with the folder of QNN: %q", got)
	}
	t.Setenv(providers.LibraryVariable, filepath.Join(packages, "other", "libonnxruntime_providers_webgpu.so"))
	if got := list(); len(got) != len(want)+1 || !strings.HasPrefix(got[0], "WebGpu") {
		t.Errorf("with one of the environment: %q", got)
	}
	t.Setenv(providers.LibraryVariable, packages)
	if _, err := providers.FindLibraries(""); err == nil ||
		!strings.Contains(err.Error(), providers.LibraryVariable) {
		t.Errorf("an environment that names a folder without plugins: %v", err)
	}
}
