// Package quantize rounds the weights of a model to blocks of 4 or 8 bits, or to 16-bit floats, and makes the graph
// read these. rewrite.Quantize and rewrite.Narrow do the same with weights that a file already has in such a form.
//
// It rounds to nearest, as ggml does (internal/blocks), and learns nothing from data: a model is always rounded to the
// same bytes. Weights are read and written in tiles of a few megabytes, so memory use does not grow with them.
package quantize

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
)

// Float is the format of weights that are not rounded.
const Float = "float"

// formats lists the formats that weights can be rounded to.
var formats = []struct {
	name string
	*blocks.Format
}{{"q4_0", blocks.Q4_0}, {"q4_1", blocks.Q4_1}, {"q8_0", blocks.Q8_0}, {"mxfp4", blocks.MXFP4},
	{"fp8-block", blocks.FP8Block}, {"f16", blocks.F16}, {"bf16", blocks.BF16}}

// Formats lists the names of the formats.
func Formats() []string {
	var list []string
	for _, f := range formats {
		list = append(list, f.name)
	}
	return list
}

// lookup finds a format. It returns nil for Float.
func lookup(name string) (*blocks.Format, error) {
	if name == Float {
		return nil, nil
	}
	for _, f := range formats {
		if f.name == name {
			return f.Format, nil
		}
	}
	return nil, fmt.Errorf("unknown format %q: choose %s, or %s", name, strings.Join(Formats(), ", "),
		Float)
}

// Check returns an error for a name that is neither a format nor Float.
func Check(name string) error {
	_, err := lookup(name)
	return err
}
