//go:build !cgo

package ort_test

import (
	"errors"
	"testing"

	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/diagnose"
)

func TestWithoutCgo(t *testing.T) {
	if _, err := ort.Find(""); !errors.Is(err, ort.ErrNoLibrary) {
		t.Errorf("Find gives %v", err)
	}
	if s, err := ort.Open("model.onnx"); s != nil || !errors.Is(err, ort.ErrNoLibrary) {
		t.Errorf("Open gives %v, %v", s, err)
	}
	if facts := diagnose.Libraries("", ""); !errors.Is(facts.LibraryError, ort.ErrNoLibrary) {
		t.Errorf("Libraries gives %+v", facts)
	}
}
