// Command mojo-patch finds normalizations, gated activations and rotary embeddings in ONNX language models and rewrites
// them into fused ops. See docs/cli.md, or mojo-patch --help.
package main

import (
	"os"
	"runtime/debug"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
)

// gcPercent limits garbage relative to live memory. A graph of a hundred thousand nodes takes hundreds of megabytes
// without its weights; half the garbage would cost a tenth of the time.
const gcPercent = 150

// version is set by the linker; see the Makefile.
var version = ""

func main() {
	cli.Release = version
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cli.CleanInterrupts(os.Exit)
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}
