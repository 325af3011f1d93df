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
	"github.com/mojo-patch/mojo-patch/ort/diagnose"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

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
	t.Setenv(providers.LibraryVariable, "")
	err := openWith(t, ort.WithProvider("snpe", nil))
	if !errors.Is(err, providers.ErrUnavailable) {
		t.Errorf("%v is no ErrUnavailable", err)
	}
	says(t, err, `execution provider "SNPE"`, "was built with", "CPUExecutionProvider", "plugin library",
		providers.LibraryVariable)
	says(t, openWith(t, ort.WithProvider("Unheard", nil)), `execution provider "Unheard"`)
	says(t, openWith(t, ort.WithProvider("cpu", map[string]string{"device": "1"})),
		"does not support options", "device")
}

func TestProviderOfTheCPU(t *testing.T) {
	s := open(t, identity(t, onnx.Float, 1), ort.WithProvider("CPUExecutionProvider", nil))
	if _, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{2}, []float32{1, 2})}); err != nil {
		t.Error(err)
	}
	if err := diagnose.TryProvider("cpu", nil, ort.WithLibrary(orttest.Library(t))); err != nil {
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
	if err := diagnose.TryProvider("azure", nil, ort.WithLibrary(library)); !errors.Is(err, diagnose.ErrOnCPU) {
		t.Errorf("got %v, want ErrOnCPU", err)
	}
}

func TestProviderLibraryThatIsNone(t *testing.T) {
	t.Setenv(providers.LibraryVariable, "")
	empty := t.TempDir()
	err := openWith(t, ort.WithProvider("qnn", nil), ort.WithProviderLibrary(empty))
	says(t, err, "given path", empty, "does not contain")
	if !errors.Is(err, providers.ErrUnavailable) {
		t.Errorf("%v is no ErrUnavailable", err)
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
			!errors.Is(err, providers.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	}
}

// TestPlugin runs with the plugin libraries in MOJO_PROVIDER_LIBRARY. MOJO_PROVIDER_OPTIONS may set provider options,
// such as "backend_path=/path/libQnnHtp.so soc_model=60".
func TestPlugin(t *testing.T) {
	if os.Getenv(providers.LibraryVariable) == "" {
		t.Skipf("$%s names no plugin library", providers.LibraryVariable)
	}
	if runtime.GOOS == "windows" {
		t.Skip("the paths of libraries are separated otherwise")
	}
	library := orttest.Library(t)
	plugins, err := providers.FindLibraries(library)
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{}
	for _, o := range strings.Fields(os.Getenv("MOJO_PROVIDER_OPTIONS")) {
		key, value, _ := strings.Cut(o, "=")
		options[key] = value
	}
	name := plugins[0].Provider
	if err := diagnose.TryProvider(name, options, ort.WithLibrary(library)); err != nil {
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
	err = diagnose.TryProvider(name, options, ort.WithLibrary(library), ort.WithProviderDevice(hardware))
	if err != nil {
		t.Errorf("on a %s: %v", hardware, err)
	}
	err = diagnose.TryProvider(name, options, ort.WithLibrary(library), ort.WithProviderDevice("TPU"))
	if !errors.Is(err, providers.ErrUnavailable) || !strings.Contains(err.Error(), hardware) {
		t.Errorf("on a type of device that there is not: %v", err)
	}
	err = openWith(t, ort.WithProvider("Unheard", nil), ort.WithProviderLibrary(plugins[0].Path))
	says(t, err, `execution provider "Unheard"`, "the plugin library", plugins[0].Path, name)
}
