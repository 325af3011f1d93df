// Command mojo-patch finds normalizations, gated activations and rotary embeddings in ONNX language models and rewrites
// them into fused ops. See docs/cli.md, or mojo-patch --help.
package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
)

// gcPercent limits garbage relative to live memory. A graph of a hundred thousand nodes takes hundreds of megabytes
// without its weights; half the garbage would cost a tenth of the time.
const gcPercent = 150

// firstHeap is the size of the heap at the first collection. Go begins at 4 MB and would collect ten times while a heap
// grows to it, a tenth of the time for a graph of some thousand nodes.
const firstHeap = 128 << 20

// limitGarbage delays the first collection, and then applies gcPercent.
func limitGarbage() {
	const least = 4 << 20 // Go's least heap, at 100 percent
	debug.SetGCPercent(100 * (firstHeap / least))
	runtime.AddCleanup(new([64]byte), func(percent int) { debug.SetGCPercent(percent) }, gcPercent)
}

// version is set by the linker; see the Makefile.
var version = ""

func main() {
	cli.Release = version
	if os.Getenv("GOGC") == "" {
		limitGarbage()
	}
	cli.CleanInterrupts(os.Exit)
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}
