//go:build cgo

package ort_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

func TestProviderNames(t *testing.T) {
	for name, want := range map[string]string{
		"qnn": "QNNExecutionProvider", "QNNExecutionProvider": "QNNExecutionProvider",
		"qnnexecutionprovider": "QNNExecutionProvider",
		"openvino":             "OpenVINOExecutionProvider", "OpenVINOExecutionProvider.AUTO": "OpenVINOExecutionProvider.AUTO",
		"cuda": "CUDAExecutionProvider", "Mine": "MineExecutionProvider",
	} {
		if got := ort.FullProvider(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := ort.ShortProvider("xnnpackexecutionprovider"); got != "Xnnpack" {
		t.Errorf("the short name of Xnnpack is %s", got)
	}
	if !ort.SameProvider("cpu", "CPUExecutionProvider") || ort.SameProvider("CPU", "CUDA") {
		t.Error("providers are not told apart by their names")
	}
}

// openWith opens a model with options that must be rejected, and returns the error.
func openWith(t *testing.T, options ...ort.Option) error {
	t.Helper()
	s, err := ort.Open(identity(t, onnx.Float, 1),
		append([]ort.Option{ort.WithLibrary(orttest.Library(t))}, options...)...)
	if err == nil {
		s.Close()
		t.Fatal("the session opens")
	}
	return err
}

// says requires parts in an error's text.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestProviderThatIsNotHere(t *testing.T) {
	t.Setenv(ort.ProviderLibraryVariable, "")
	err := openWith(t, ort.WithProvider("snpe", nil))
	if !errors.Is(err, ort.ErrNoProvider) {
		t.Errorf("%v is no ErrNoProvider", err)
	}
	says(t, err, `execution provider "SNPE"`, "was built with", "CPUExecutionProvider", "plugin library",
		ort.ProviderLibraryVariable)
	says(t, openWith(t, ort.WithProvider("Unheard", nil)), `execution provider "Unheard"`)
	says(t, openWith(t, ort.WithProvider("cpu", map[string]string{"device": "1"})),
		"does not support options", "device")
}

func TestProviderOfTheCPU(t *testing.T) {
	s := open(t, identity(t, onnx.Float, 1), ort.WithProvider("CPUExecutionProvider", nil))
	if _, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{2}, []float32{1, 2})}); err != nil {
		t.Error(err)
	}
	if err := ort.TryProvider("cpu", nil, ort.WithLibrary(orttest.Library(t))); err != nil {
		t.Error(err)
	}
}

func TestPlacement(t *testing.T) {
	path := identity(t, onnx.Float, 1)
	s := open(t, path, ort.WithPlacement(), ort.WithOptimization(ort.OptimizeNone))
	nodes, err := s.Placement()
	if err != nil || len(nodes) != 1 || nodes[0].Provider != "CPUExecutionProvider" || nodes[0].Op != "Identity" {
		t.Errorf("got %v, %v, want one node on the CPU", nodes, err)
	}
	if _, err := open(t, path).Placement(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a session that was not asked tells the providers of its nodes: %v", err)
	}
}

func TestProviderThatTakesNothing(t *testing.T) {
	library := orttest.Library(t)
	facts, err := ort.Providers(library)
	if err != nil {
		t.Fatal(err)
	}
	azure := slices.ContainsFunc(facts, func(f ort.ProviderFacts) bool { return f.Name == "AzureExecutionProvider" })
	if !azure {
		t.Skip("this onnxruntime was built without the Azure provider, which takes no nodes")
	}
	says(t, openWith(t, ort.WithProvider("azure", nil), ort.WithProviderDevice("NPU")), "it is built into onnxruntime",
		"NPU")
	if err := ort.TryProvider("azure", nil, ort.WithLibrary(library)); !errors.Is(err, ort.ErrOnCPU) {
		t.Errorf("got %v, want ErrOnCPU", err)
	}
}

func TestProviderLibraryThatIsNone(t *testing.T) {
	t.Setenv(ort.ProviderLibraryVariable, "")
	empty := t.TempDir()
	err := openWith(t, ort.WithProvider("qnn", nil), ort.WithProviderLibrary(empty))
	says(t, err, "given path", empty, "does not contain")
	if !errors.Is(err, ort.ErrNoProvider) {
		t.Errorf("%v is no ErrNoProvider", err)
	}
	says(t, openWith(t, ort.WithProvider("qnn", nil), ort.WithProviderLibrary(filepath.Join(empty, "absent.so"))),
		"absent.so", "cannot be read")
	text := filepath.Join(empty, "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, openWith(t, ort.WithProvider("qnn", nil), ort.WithProviderLibrary(text)),
		`execution provider "QNN"`, "cannot register the plugin library", text)
	// An onnxruntime library is not a plugin.
	says(t, openWith(t, ort.WithProvider("qnn", nil), ort.WithProviderLibrary(orttest.Library(t))),
		"cannot register the plugin library")
}

func TestFindProviderLibraries(t *testing.T) {
	cache := nowhere(t)
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
	t.Setenv(ort.ProviderLibraryVariable, "")
	list := func(given ...string) []string {
		t.Helper()
		found, err := ort.FindProviderLibraries(filepath.Join(cache, "libonnxruntime.so"), given...)
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
	t.Setenv(ort.ProviderLibraryVariable, filepath.Join(packages, "other", "libonnxruntime_providers_webgpu.so"))
	if got := list(); len(got) != len(want)+1 || !strings.HasPrefix(got[0], "WebGpu") {
		t.Errorf("with one of the environment: %q", got)
	}
	t.Setenv(ort.ProviderLibraryVariable, packages)
	if _, err := ort.FindProviderLibraries(""); err == nil ||
		!strings.Contains(err.Error(), ort.ProviderLibraryVariable) {
		t.Errorf("an environment that names a folder without plugins: %v", err)
	}
}

func TestCANNWithKernels(t *testing.T) {
	kernels := orttest.Kernels(t)
	err := openWith(t, ort.WithProvider("cann", map[string]string{"enable_cann_graph": "1"}),
		ort.WithKernelLibrary(kernels))
	says(t, err, `execution provider "CANN"`, "enable_cann_graph", "whole graph", "registered")
	// Without kernels, or without the provider's graphs, the error is that this onnxruntime lacks CANN.
	for _, options := range [][]ort.Option{
		{ort.WithProvider("cann", map[string]string{"enable_cann_graph": "1"})},
		{ort.WithProvider("cann", nil), ort.WithKernelLibrary(kernels)},
	} {
		if err := openWith(t, options...); strings.Contains(err.Error(), "enable_cann_graph") ||
			!errors.Is(err, ort.ErrNoProvider) {
			t.Errorf("got %v, want ErrNoProvider", err)
		}
	}
}

// TestPlugin runs with the plugin libraries in MOJO_PROVIDER_LIBRARY. MOJO_PROVIDER_OPTIONS may set provider options,
// such as "backend_path=/path/libQnnHtp.so soc_model=60".
func TestPlugin(t *testing.T) {
	if os.Getenv(ort.ProviderLibraryVariable) == "" {
		t.Skipf("$%s names no plugin library", ort.ProviderLibraryVariable)
	}
	if runtime.GOOS == "windows" {
		t.Skip("the paths of libraries are separated otherwise")
	}
	library := orttest.Library(t)
	plugins, err := ort.FindProviderLibraries(library)
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{}
	for _, o := range strings.Fields(os.Getenv("MOJO_PROVIDER_OPTIONS")) {
		key, value, _ := strings.Cut(o, "=")
		options[key] = value
	}
	name := plugins[0].Provider
	if err := ort.TryProvider(name, options, ort.WithLibrary(library)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	facts, err := ort.Providers(library)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(facts, func(f ort.ProviderFacts) bool { return f.Name == name })
	if i < 0 || len(facts[i].Devices) == 0 || facts[i].Library == "" || facts[i].Devices[0].Type == "" {
		t.Fatalf("%s is not among %+v, or has no device", name, facts)
	}
	hardware := facts[i].Devices[0].Type
	if err := ort.TryProvider(name, options, ort.WithLibrary(library), ort.WithProviderDevice(hardware)); err != nil {
		t.Errorf("on a %s: %v", hardware, err)
	}
	err = ort.TryProvider(name, options, ort.WithLibrary(library), ort.WithProviderDevice("TPU"))
	if !errors.Is(err, ort.ErrNoProvider) || !strings.Contains(err.Error(), hardware) {
		t.Errorf("on a type of device that there is not: %v", err)
	}
	err = openWith(t, ort.WithProvider("Unheard", nil), ort.WithProviderLibrary(plugins[0].Path))
	says(t, err, `execution provider "Unheard"`, "the plugin library", plugins[0].Path, name)
}
