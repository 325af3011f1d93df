// Command mojo-patch finds normalizations, gated activations and rotary embeddings in ONNX language models and rewrites
// them into fused ops. See docs/cli.md, or mojo-patch --help.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// gcPercent limits garbage relative to live memory. A graph of a hundred thousand nodes takes hundreds of megabytes
// without its weights; half the garbage would cost a tenth of the time.
const gcPercent = 150

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cleanInterrupts(os.Exit)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// version is set by the linker; see the Makefile.
var version = ""

func toolVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func newVersion(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:               "version",
		Short:             "Print the version",
		Example:           "  mojo-patch version",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(versionResult{jsonSchema, toolVersion(), runtime.Version(), runtime.GOOS,
					runtime.GOARCH})
			}
			_, err := fmt.Fprintf(a.out, "mojo-patch %s (%s, %s/%s)\n", toolVersion(), runtime.Version(), runtime.GOOS,
				runtime.GOARCH)
			return err
		},
	}
	a.jsonFlag(c, "version")
	return c
}
