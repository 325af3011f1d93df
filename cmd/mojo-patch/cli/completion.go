package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// CompleteValues completes the value of a flag with one of the values or, if list is set, with several separated by
// commas.
func CompleteValues(c *cobra.Command, flag string, values func() []string, list bool) {
	Register(c, flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if list {
			return Next(typed, ",", values()), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return Next(typed, "", values()), cobra.ShellCompDirectiveNoFileComp
	})
}

// Next completes the last element of a list with the values that are not in the list yet. Elements start after any of
// the separators. A value may have a description after a tab.
func Next(typed, separators string, values []string) []string {
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

// CompleteFile completes a flag that names a folder or a file with one of the extensions.
func CompleteFile(c *cobra.Command, flag string, extensions ...string) {
	Register(c, flag, cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt))
}

// Register completes a flag with f.
func Register(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the command lacks the flag: a bug that shows in every run
	}
}

// CompleteModels completes up to most models.
func CompleteModels(most int) cobra.CompletionFunc { return CompleteFiles(most, "onnx") }

// CompleteFiles completes up to most files with an extension, and the folders on the way to them.
func CompleteFiles(most int, extension string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{extension}, cobra.ShellCompDirectiveFilterFileExt
	}
}
