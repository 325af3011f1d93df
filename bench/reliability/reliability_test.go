//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestReliability is the short form of make reliability: 8 kills, and all but the node tests.
func TestReliability(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	b := &bench{tool: filepath.Join(t.TempDir(), "mojo-patch"), models: filepath.Join("..", "..", "models"), kills: 8,
		seed: 1, dir: t.TempDir()}
	build := exec.Command("go", "build", "-ldflags=-w", "-o", b.tool, "../../cmd/mojo-patch")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range parts {
		if p.name == "node-tests" {
			continue
		}
		rows, err := p.run(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			t.Logf("%s: %d of %d; %s", r.what, r.held, r.tried, r.note)
			for _, f := range r.failed {
				t.Errorf("%s: %s", r.what, f)
			}
		}
	}
}
