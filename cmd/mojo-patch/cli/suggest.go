package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UnknownFlag adds to an unknown-flag error the flag that was probably meant, or else the commands that have it.
func UnknownFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name := unknown.GetSpecifiedName()
	var flags []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, "--"+f.Name)
		}
	})
	command := shortPath(c)
	if s := english.Suggestion("--"+name, flags); s != "" {
		return fmt.Errorf("%s has no flag --%s%s", command, name, s)
	}
	var others []string
	for _, other := range Leaves(c.Root()) {
		if f := other.Flags().Lookup(name); f != nil && !f.Hidden {
			others = append(others, shortPath(other))
		}
	}
	if c.Flags().Lookup("for") != nil && (name == "provider" || name == "device") {
		return fmt.Errorf("%s has no flag --%s: use --for cuda, or --backend +CUDA,CPU", command, name)
	}
	if len(others) > 0 {
		return fmt.Errorf("%s has no flag --%s; it is a flag of %s", command, name, strings.Join(others, ", "))
	}
	return fmt.Errorf("%s has no flag --%s; %s --help lists its flags", command, name, c.CommandPath())
}

// shortPath returns the name of a command without the program, such as "golden record".
func shortPath(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// Leaves returns the commands without subcommands, at any depth.
func Leaves(c *cobra.Command) (list []*cobra.Command) {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			list = append(list, Leaves(sub)...)
		}
	}
	return list
}

// noStdout returns an error if an output is "-". A model may need a second file for its weights, and is renamed when
// complete, so it cannot go to stdout.
func noStdout(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "output", "html", "learn":
			if f.Value.String() == "-" {
				err = fmt.Errorf("--%s -: %s writes files, not stdout; name a file, "+
					"such as ./- for one that is called -", f.Name, shortPath(c))
			}
		}
	})
	return err
}
