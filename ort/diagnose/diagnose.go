// Package diagnose finds out whether onnxruntime, its kernels and its execution providers work on this machine.
package diagnose

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
)

// Facts are the facts that explain why a session cannot be opened.
type Facts struct {
	Library      ort.Library
	LibraryError error    // why no onnxruntime can be used, or nil
	Providers    []string // the execution providers that onnxruntime was built with

	Kernels      string // path of the kernel library, empty if it was not found
	KernelsError error  // why it was not found or cannot be registered, or nil
}

// Libraries looks for onnxruntime and the kernel library and tries to register the kernels. Failures become facts, not
// errors. For empty paths it searches; see ort.Find and fused.FindLibrary.
func Libraries(library, kernels string) Facts {
	var f Facts
	f.Library, f.Providers, f.LibraryError = ort.Load(library)
	f.Kernels, f.KernelsError = fused.FindLibrary(kernels)
	if f.KernelsError == nil && f.Library.Path != "" {
		f.KernelsError = ort.TryKernels(f.Kernels)
	}
	return f
}
