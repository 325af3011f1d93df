// Package quantize rounds the weights of a model to blocks of 4 or 8 bits, or to floats of 16 bits, and has the graph
// read these: what rewrite.Quantize and rewrite.Narrow do with weights that a file has in such a form already.
//
// It rounds to the nearest, as ggml does (internal/blocks), with nothing learnt from data: the same model gives the
// same bytes. Weights are read and written by tiles of a few megabytes, so that memory does not grow with them.
package quantize

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
)

// Float is the format of weights that stay as they are.
const Float = "float"

// formats are those that weights can be rounded to.
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

// lookup finds a format; it is nil for Float.
func lookup(name string) (*blocks.Format, error) {
	if name == Float {
		return nil, nil
	}
	for _, f := range formats {
		if f.name == name {
			return f.Format, nil
		}
	}
	return nil, fmt.Errorf("there is no format %q to round to: choose %s, or %s", name, strings.Join(Formats(), ", "),
		Float)
}

// Check errs on a name that is neither a format nor Float.
func Check(name string) error {
	_, err := lookup(name)
	return err
}
