package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestRules(t *testing.T) {
	for _, x := range []struct{ line, want string }{
		{"", ""},
		{"--shape a=1", "--shape requires --target"},
		{"--shape a=1 --target mojo", "--shape requires --target"},
		{"--shape a=1 --target ort", ""},
		{"--level 4 --target onnx", "--level requires --target ort or --force"},
		{"--level 4 --target ort", ""},
		{"--level 4 --force", ""},
		{"--force --target ort", "--force cannot be combined with --target: only fused ops have them"},
		{"--force=false --target ort", ""},
		{"--force --target mojo", ""},
		{"--force --cache paged=16", "--cache paged cannot be combined with --force"},
		{"--force --cache pagedother", ""},
		{"--force --cache static", ""},
	} {
		c := &cobra.Command{Use: "x", RunE: func(c *cobra.Command, _ []string) error { return CheckRules(c) },
			SilenceErrors: true, SilenceUsage: true}
		c.Flags().String("target", "mojo", "")
		c.Flags().String("shape", "", "")
		c.Flags().String("cache", "", "")
		c.Flags().Int("level", 0, "the level")
		c.Flags().Bool("force", false, "")
		Rules(c, "shape requires target", "level requires target=ort force",
			"target excludes force: only fused ops have them", "force excludes cache=paged")
		c.SetArgs(strings.Fields(x.line))
		got := ""
		if err := c.Execute(); err != nil {
			got = err.Error()
		}
		if got != x.want {
			t.Errorf("%s: %q, want %q", x.line, got, x.want)
		}
		if usage := c.Flags().Lookup("level").Usage; usage != "with --target ort or --force: the level" {
			t.Errorf("the help of a flag with a requirement is %q", usage)
		}
	}
}
