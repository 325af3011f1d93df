package rewrite

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// Older runtimes mix up two definitions of one op in a model. The report must say so of such models only.
func TestVariants(t *testing.T) {
	for _, activations := range [][]string{{"Sigmoid"}, {"Sigmoid", "Gelu"}} {
		b := rewritetest.New(t, 20, onnx.Float)
		x, up := b.In("x", "batch", 8), b.In("up", "batch", 8)
		for _, name := range activations {
			a := b.Op(name, x)
			if name == "Sigmoid" {
				a = b.Op("Mul", x, a)
			}
			b.Out(b.Op("Mul", a, up), "batch", 8)
		}
		r := apply(t, b.Model)
		if r.Fused() != len(activations) {
			t.Fatalf("%+v", r.Sites)
		}
		var want []string
		if len(activations) > 1 {
			want = []string{"mojo.GLU"}
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Variants, want) || strings.Contains(text.String(), "1.27") != (want != nil) {
			t.Errorf("%v: variants %v, expected %v\n%s", activations, r.Variants, want, text.String())
		}
	}
}
