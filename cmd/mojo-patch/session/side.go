package session

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// sideKeys are the keys that --left and --right accept.
const sideKeys = "provider, kernels, kernels-lib, optimize, threads, products, evaluator"

// with returns the backend with the settings of a text such as "provider=cuda,kernels=off". Call it before check.
func (b Backend) with(flag, text string) (Backend, error) {
	for _, entry := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		err := error(nil)
		switch {
		case key == "evaluator" && (value == "" || value == "on" || value == "true"):
			b.Evaluator = true
		case value == "":
			err = fmt.Errorf("write KEY=VALUE")
		case key == "evaluator" && (value == "off" || value == "false"):
			b.Evaluator = false
		case key == "provider":
			b.Provider = value
		case key == "kernels":
			b.Kernels = value
		case key == "kernels-lib":
			b.KernelsLib = value
		case key == "optimize":
			b.Optimize = value
		case key == "products":
			b.products = value
		case key == "threads":
			b.threads, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("the keys are %s", sideKeys)
		}
		if err != nil {
			return b, fmt.Errorf("--%s %q: %w", flag, entry, err)
		}
	}
	return b, nil
}

// SideFlags let the two models of a comparison run in different ways.
type SideFlags struct {
	texts [2]string
	Sides [2]Backend // after Check
}

// AddTo adds the flags to a command.
func (f *SideFlags) AddTo(c *cobra.Command) {
	for i, name := range []string{"left", "right"} {
		c.Flags().StringVar(&f.texts[i], name, "",
			"KEY=VALUE,…: how the "+[]string{"first", "second"}[i]+" model runs, if different: "+sideKeys)
	}
}

// Given reports whether a side differs.
func (f *SideFlags) Given() bool { return f.texts != [2]string{} }

// Check builds both sides from b, and returns an error if a side is invalid.
func (f *SideFlags) Check(c *cobra.Command, b Backend) error {
	for i, flag := range []string{"left", "right"} {
		side, err := b, error(nil)
		if f.texts[i] != "" {
			if side, err = b.with(flag, f.texts[i]); err != nil {
				return err
			}
		}
		if err := side.Check(c); err != nil {
			return err
		}
		f.Sides[i] = side
	}
	return nil
}
