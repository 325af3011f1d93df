// Package builtin holds the text of the built-in patterns.
package builtin

import "embed"

//go:embed *.pat
var files embed.FS

// Blocks are the files of the blocks, in search order: views first, and a pattern that contains another before it.
var Blocks = []string{"views.pat", "rmsnorm.pat", "layernorm.pat", "glu.pat", "gelu.pat", "rotary.pat",
	"softmax.pat", "attention.pat"}

// Text returns the text of a file.
func Text(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // a bug here, which any test catches
	}
	return string(text)
}
