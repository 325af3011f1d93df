// Package version is the command version.
package version

import (
	"fmt"
	"runtime"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/spf13/cobra"
)

// New returns the command version.
func New(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:               "version",
		Short:             "Print the version",
		Example:           "  mojo-patch version",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if a.JSON {
				return a.PrintJSON(Result{cli.JSONSchema, cli.Version(), runtime.Version(), runtime.GOOS,
					runtime.GOARCH})
			}
			_, err := fmt.Fprintf(a.Out, "mojo-patch %s (%s, %s/%s)\n", cli.Version(), runtime.Version(), runtime.GOOS,
				runtime.GOARCH)
			return err
		},
	}
	a.JSONFlag(c, "version")
	return c
}

// Result is the result of version.
type Result struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"` // of the tool
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}
