package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/spf13/cobra"
)

// modelArgs requires between least and most models as arguments.
func modelArgs(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		for i, path := range args {
			switch {
			case path == "":
				return errors.New("the path of a model is empty")
			case path == "-":
				return fmt.Errorf("%s reads models from files, not from stdin: write the model to a file first",
					shortPath(c))
			}
			if err := strayOption(c, path); i > 0 && err != nil {
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

// strayOption returns an error if an argument is not a file but reads like one more NAME=VALUE of a flag.
func strayOption(c *cobra.Command, arg string) error {
	if _, err := os.Stat(arg); err == nil || !optionArgument.MatchString(arg) {
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

// group is the action of a command that only contains other commands.
func group(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
	}
	return c.Help()
}

// writable returns an error if no file can be created at path, before a long run would fail at its end.
func writable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("cannot write %s: it exists and is not a regular file", path)
	}
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("cannot write %s: its folder does not exist: %w", path, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("cannot write %s: %s is not a folder", path, folder)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return errors.Join(f.Close(), atomicfile.Remove(f.Name()))
}

var counted = english.Counted
