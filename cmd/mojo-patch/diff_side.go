package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// sideKeys are the keys that --left and --right accept.
const sideKeys = "provider, kernels, kernels-lib, optimize, threads, evaluator"

// with returns the backend with the settings of a text such as "provider=cuda,kernels=off". Call it before check.
func (b backend) with(flag, text string) (backend, error) {
	for _, entry := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(entry, "=")
		err := error(nil)
		switch {
		case key == "evaluator" && (value == "" || value == "on" || value == "true"):
			b.evaluator = true
		case value == "":
			err = fmt.Errorf("write KEY=VALUE")
		case key == "evaluator" && (value == "off" || value == "false"):
			b.evaluator = false
		case key == "provider":
			b.provider = value
		case key == "kernels":
			b.kernels = value
		case key == "kernels-lib":
			b.kernelsLib = value
		case key == "optimize":
			b.optimize = value
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

// sideFlags let the two models of a comparison run in different ways.
type sideFlags struct {
	texts [2]string
	sides [2]backend
}

func (f *sideFlags) flags(c *cobra.Command) {
	for i, name := range []string{"left", "right"} {
		c.Flags().StringVar(&f.texts[i], name, "",
			"KEY=VALUE,…: how the "+[]string{"first", "second"}[i]+" model runs, if different: "+sideKeys)
	}
}

func (f *sideFlags) given() bool { return f.texts != [2]string{} }

// check builds both sides from b, and returns an error if a side is invalid.
func (f *sideFlags) check(c *cobra.Command, b backend) error {
	for i, flag := range []string{"left", "right"} {
		side, err := b, error(nil)
		if f.texts[i] != "" {
			if side, err = b.with(flag, f.texts[i]); err != nil {
				return err
			}
		}
		if err := side.check(c); err != nil {
			return err
		}
		f.sides[i] = side
	}
	return nil
}
