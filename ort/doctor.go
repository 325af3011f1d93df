package ort

import "github.com/mojo-patch/mojo-patch/fused"

// Facts are the facts that explain why a session cannot be opened.
type Facts struct {
	Library      Library
	LibraryError error    // why no onnxruntime can be used, or nil
	Providers    []string // the execution providers that onnxruntime was built with

	Kernels      string // path of the kernel library, empty if it was not found
	KernelsError error  // why it was not found or cannot be registered, or nil
}

// Doctor looks for onnxruntime and the kernel library and tries to register the kernels. Failures become facts, not
// errors. For empty paths it searches; see Find and fused.FindLibrary.
func Doctor(library, kernels string) Facts {
	var f Facts
	a, err := load(library)
	if err != nil {
		f.LibraryError = err
	} else {
		f.Library = a.library("loaded")
		if found, err := Find(library); err == nil && sameFile(found.Path, a.path) {
			f.Library = found
		}
		f.Providers, f.LibraryError = a.providers()
	}
	f.Kernels, f.KernelsError = fused.FindLibrary(kernels)
	if f.KernelsError == nil && a != nil {
		f.KernelsError = tryKernels(f.Kernels)
	}
	return f
}
