package rewrite

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestZoo rewrites real exports and compares the counts of blocks with what is known of the models. MOJO_ZOO names a
// folder with truth.json and models/*.onnx; with MOJO_ZOO_OUT the patched models are kept there.
func TestZoo(t *testing.T) {
	zoo := os.Getenv("MOJO_ZOO")
	if zoo == "" {
		t.Skip("MOJO_ZOO names no folder of models")
	}
	out := os.Getenv("MOJO_ZOO_OUT")
	if out == "" {
		out = t.TempDir()
	}
	b, err := os.ReadFile(filepath.Join(zoo, "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var truth map[string]struct{ RMSNorm, Rope, GLU int }
	if err := json.Unmarshal(b, &truth); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(zoo, "models", "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no models in %s: %v", zoo, err)
	}
	for _, path := range files {
		name := filepath.Base(path[:len(path)-len(".onnx")])
		t.Run(name, func(t *testing.T) {
			m, err := onnx.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			r := apply(t, m)
			if err := onnx.Write(filepath.Join(out, name+".onnx"), m); err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for _, s := range r.Sites {
				if s.Status == Fused {
					got[s.Op]++
				}
			}
			var text bytes.Buffer
			r.WriteText(&text)
			want := truth[name]
			t.Logf("norms %d of %d, rotations %d of %d, gated activations %d of %d; %+v", got["RMSNorm"]+got["AddRMSNorm"], want.RMSNorm,
				got["RotaryEmbedding"], want.Rope, got["GLU"], want.GLU, r.TimeMS)
			if got["RMSNorm"]+got["AddRMSNorm"] > want.RMSNorm || got["RotaryEmbedding"] > want.Rope || got["GLU"] > want.GLU || r.Refused() > 0 {
				t.Errorf("more than there is, or sites refused\n%s", &text)
			}
			if again := apply(t, m); again.Changed {
				t.Error("a second run changed the model")
			}
		})
	}
}
