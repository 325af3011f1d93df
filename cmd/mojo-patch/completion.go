package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/rewrite/registry"

	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/spf13/cobra"
)

// shells are the shells that cobra writes completions for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion(a *app) *cobra.Command {
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
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
		},
	}
}

// completeValues completes the value of a flag with one of the values or, if list is set, with several separated by
// commas.
func completeValues(c *cobra.Command, flag string, values func() []string, list bool) {
	register(c, flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if list {
			return next(typed, ",", values()), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return next(typed, "", values()), cobra.ShellCompDirectiveNoFileComp
	})
}

func completeBackend(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	if typed == "" {
		typed = "+"
	}
	return next(typed, "+,", append([]string{registry.AllDevices}, registry.KnownDevices()...)),
		cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// next completes the last element of a list with the values that are not in the list yet. Elements start after any of
// the separators. A value may have a description after a tab.
func next(typed, separators string, values []string) []string {
	i := strings.LastIndexAny(typed, separators) + 1
	taken := strings.FieldsFunc(typed[:i], func(r rune) bool { return strings.ContainsRune(separators, r) })
	var fitting []string
	for _, v := range values {
		name, _, _ := strings.Cut(v, "\t")
		if strings.HasPrefix(name, typed[i:]) && !slices.Contains(taken, name) {
			fitting = append(fitting, typed[:i]+v)
		}
	}
	return fitting
}

// completeFile completes a flag that names a folder or a file with one of the extensions.
func completeFile(c *cobra.Command, flag string, extensions ...string) {
	register(c, flag, cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt))
}

func register(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the command lacks the flag: a bug that shows in every run
	}
}

// completeModels completes up to most models.
func completeModels(most int) cobra.CompletionFunc { return completeFiles(most, "onnx") }

// completeFiles completes up to most files with an extension, and the folders on the way to them.
func completeFiles(most int, extension string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{extension}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// kernelIDs lists the values of --include, each with a description after a tab.
func kernelIDs() []string {
	ids := []string{rewrite.Auto + "\tevery kernel that is available", rewrite.None + "\tno kernel"}
	for _, k := range registry.ScanAllKernels() {
		ids = append(ids, k.ID+"\t"+k.Summary)
	}
	return ids
}

func verifyModes() []string {
	return []string{string(rewrite.VerifyOff), string(rewrite.VerifyDistinct), string(rewrite.VerifyAll)}
}

func kernelModes() []string { return []string{kernelsAuto, kernelsOn, kernelsOff} }
