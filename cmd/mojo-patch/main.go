// Command mojo-patch finds normalisations, gated activations and rotary embeddings in ONNX language models and rewrites
// them into fused ops. See docs/cli.md, or mojo-patch --help.
package main

import (
	"os"
)

func main() {
	cleanInterrupts(os.Exit)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
