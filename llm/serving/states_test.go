package serving

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestPairStates pairs states for genai by their shapes, and refuses states that genai does not keep.
func TestPairStates(t *testing.T) {
	for name, c := range map[string]struct {
		sizes   []int64 // of the last axes
		batch   int
		buffers bool
		want    string // the sizes of the pairs, or a part of the error
	}{
		"two shapes":      {[]int64{3, 3, 5, 5}, 0, false, "3 5 3 5"},
		"in turns":        {[]int64{3, 5, 3, 5}, 0, false, "3 5 3 5"},
		"one shape":       {[]int64{3, 3, 3, 3}, 0, false, "3 3 3 3"},
		"an odd number":   {[]int64{3, 3, 3}, 0, false, "3 like s0 float32[b, 3]"},
		"unequal numbers": {[]int64{3, 3, 5}, 0, false, "2 like s0 float32[b, 3], 1 like s2 float32[b, 5]"},
		"three shapes":    {[]int64{3, 5, 7}, 0, false, "1 like s2 float32[b, 7]"},
		"another batch":   {[]int64{3, 3}, 1, false, "needs the batch as the first axis of a state"},
		"buffers":         {[]int64{3, 3}, 0, true, "without --cache static"},
	} {
		d := &decoder{Signature: &generate.Signature{}, buffers: c.buffers}
		for i, n := range c.sizes {
			past := generate.Port{Value: &onnx.Value{Name: fmt.Sprint("s", i)}, DataType: onnx.Float,
				Dims: []onnx.Dim{{Value: -1, Param: "b"}, {Value: n}}}
			d.Caches = append(d.Caches, generate.Cache{Past: past, Present: past, Batch: c.batch, Tokens: -1})
		}
		d.splitStates()
		got := ""
		if err := d.pairStates(); err != nil {
			got = err.Error()
		} else {
			for _, s := range d.states {
				got = strings.TrimSpace(fmt.Sprint(got, " ", s.Past.Dims[1].Value))
			}
		}
		if got != c.want && !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
