package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// TestMatchIsDryRun demands the same report from match and from apply --dry-run, except for times.
func TestMatchIsDryRun(t *testing.T) {
	model := filepath.Join("..", "..", "models", "gemma2-ts-fp32.onnx")
	for _, flags := range [][]string{
		{},
		{"--only", "RMSNorm,GeGLU", "--skip", "GeGLU", "--verify", "off"},
		{"--node", "layers.1", "--backend", "+REF"},
		{"--include", "cpu_fused_rope"},
	} {
		report := func(command ...string) *rewrite.Report {
			var out, errors bytes.Buffer
			args := append(command, model, "--json", "--assume-available", "--check-kernels", "off")
			if code := execute(append(args, flags...), &out, &errors); code != cli.ExitDone {
				t.Fatalf("%v: exit code %d: %s", args, code, errors.String())
			}
			r := &rewrite.Report{}
			if err := json.Unmarshal(out.Bytes(), r); err != nil {
				t.Fatal(err)
			}
			r.TimeMS, r.PeakRSSBytes = rewrite.Times{}, 0
			return r
		}
		match, dry := report("match"), report("apply", "--dry-run")
		if !reflect.DeepEqual(match, dry) {
			t.Errorf("%v: match gives\n%+v\napply --dry-run\n%+v", flags, match, dry)
		}
		if match.Schema != rewrite.Schema || match.Changed || match.Fused() == 0 {
			t.Errorf("%v: schema %d, changed %v, %d fused", flags, match.Schema, match.Changed, match.Fused())
		}
	}
}
