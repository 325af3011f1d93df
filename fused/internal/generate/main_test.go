package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

func TestGeneratedFilesAreCurrent(t *testing.T) {
	if err := run(root, true); err != nil {
		t.Error(err)
	}
}

// TestStaleFilesAreNoticed changes each file and checks that it is reported and rewritten.
func TestStaleFilesAreNoticed(t *testing.T) {
	for _, stale := range files {
		dir := t.TempDir()
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(root, f))
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			if f == stale {
				text = strings.Replace(text, "RMSNorm |", "Norm |", 1) // in the generated part of a document
				text = strings.Replace(text, "AddRMSNorm", "AddNorm", 1)
				text = strings.Replace(text, "OpType()", "Type()", 1)
			}
			path := filepath.Join(dir, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := run(dir, true); err == nil || !strings.Contains(err.Error(), stale) {
			t.Errorf("%s is stale: %v", stale, err)
		}
		if err := run(dir, false); err != nil {
			t.Fatal(err)
		}
		if err := run(dir, true); err != nil {
			t.Errorf("%s was written anew: %v", stale, err)
		}
	}
}
