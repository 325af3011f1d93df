//go:build cgo

package diagnose_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/diagnose"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

func TestLibraries(t *testing.T) {
	library := orttest.Library(t)
	facts := diagnose.Libraries(library, "/no/kernels.so")
	if facts.LibraryError != nil || facts.Library.Version == "" || facts.Library.API < ort.APILevel {
		t.Errorf("library: %+v, %v", facts.Library, facts.LibraryError)
	}
	if !slices.Contains(facts.Providers, "CPUExecutionProvider") {
		t.Errorf("providers: %q", facts.Providers)
	}
	if facts.KernelsError == nil {
		t.Error("a kernel library that does not exist is no error")
	}
	if facts = diagnose.Libraries(library, library); facts.KernelsError == nil ||
		!strings.Contains(facts.KernelsError.Error(), "RegisterCustomOps") {
		t.Errorf("a library without kernels: %v", facts.KernelsError)
	}
	if facts = diagnose.Libraries(library, orttest.Kernels(t)); facts.KernelsError != nil {
		t.Error(facts.KernelsError)
	}
}
