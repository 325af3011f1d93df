// Command mojo-patch finds normalisations, gated activations and rotary embeddings in ONNX language models and rewrites
// them into fused ops. See docs/cli.md, or mojo-patch --help.
package main

import (
	"os"
	"runtime/debug"
)

// gcPercent bounds the garbage, as a part of what is in use: a graph of a hundred thousand nodes takes hundreds of
// megabytes without its weights, and half the garbage would cost a tenth of the time.
const gcPercent = 150

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cleanInterrupts(os.Exit)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
