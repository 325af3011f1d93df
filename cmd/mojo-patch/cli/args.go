package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/spf13/cobra"
)

// ModelArgs requires between least and most models as arguments.
func ModelArgs(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		for i, path := range args {
			switch {
			case path == "":
				return errors.New("the path of a model is empty")
			case path == "-":
				return fmt.Errorf("%s reads models from files, not from stdin: write the model to a file first",
					shortPath(c))
			}
			if err := StrayOption(c, path); i > 0 && err != nil {
				return err
			}
		}
		if len(args) >= least && len(args) <= most {
			return nil
		}
		wanted := "one model"
		if most > 1 {
			wanted = fmt.Sprintf("%d to %d models", least, most)
		}
		given := "but got 0"
		if len(args) > 0 {
			given = fmt.Sprintf("but got %d arguments: %s", len(args), strings.Join(args, " "))
		}
		return fmt.Errorf("%s takes %s, %s\nusage: %s", c.Name(), wanted, given, c.UseLine())
	}
}

// keyed lists the repeatable flags that take NAME=VALUE or NAME:VALUE.
var keyed = []string{"dim", "shape", "provider-option"}

// StrayOption returns an error if an argument is not a file but reads like one more NAME=VALUE of a flag.
func StrayOption(c *cobra.Command, arg string) error {
	if _, err := os.Stat(arg); err == nil || !OptionArgument.MatchString(arg) {
		return nil
	}
	for _, name := range keyed {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			return fmt.Errorf("%s is not a model: repeat --%s for each value (--%s %s)", arg, name, name, arg)
		}
	}
	if c.Flags().Lookup("provider") == nil {
		return nil
	}
	return fmt.Errorf("%s is not a model: to set an option of a provider, use --provider with a provider other than "+
		"the CPU", arg)
}

// Group is the action of a command that only contains other commands.
func Group(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
	}
	return c.Help()
}

// Counted is english.Counted, for reports.
var Counted = english.Counted

// ParseBytes parses a number of bytes such as 512M; the factors k, M, G and T are powers of 1024.
func ParseBytes(text string) (int64, error) {
	parts := bytesPattern.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is not a number of bytes: write for example 512M or 2G", text)
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	shift := 10 * (strings.Index(" kMGT", strings.Replace(parts[2], "K", "k", 1)))
	if parts[2] == "" {
		shift = 0
	}
	if err != nil || n < 1 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is too large a number of bytes", text)
	}
	return n << shift, nil
}

var bytesPattern = regexp.MustCompile(`^([0-9]+)([kKMGT]?)(i?B)?$`)

// OptionArgument matches an option among the arguments. An existing file is never an option.
var OptionArgument = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*=`)
