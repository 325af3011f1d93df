// Package completion is the command completion.
package completion

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/spf13/cobra"
)

// New returns the command completion.
func New(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the script that makes a shell complete commands, flags and their values",
		Long: `completion prints a script with which a shell completes commands, flags and their
values: kernels, patterns, modes, devices, models and recorded cases.`,
		Example: `  source <(mojo-patch completion bash)
  mojo-patch completion bash >~/.local/share/bash-completion/completions/mojo-patch
  mojo-patch completion zsh >"${fpath[1]}/_mojo-patch"
  mojo-patch completion fish >~/.config/fish/completions/mojo-patch.fish
  mojo-patch completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(shells, args[0]) {
				return nil
			}
			return fmt.Errorf("completion needs the name of a shell: %s", strings.Join(shells, ", "))
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(a.Out)
			}
		},
	}
}

// shells are the shells that cobra writes completions for.
var shells = []string{"bash", "zsh", "fish", "powershell"}
