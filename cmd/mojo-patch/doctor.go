package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/spf13/cobra"
)

// finding is one line of doctor, and its JSON form.
type finding struct {
	What   string `json:"what"`
	Found  string `json:"found,omitempty"`
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// label says in one word what is the matter: kernels that were tried and differ are not missing.
func (f finding) label() string {
	if f.What == triedKernels {
		return "wrong  "
	}
	return "missing"
}

// triedKernels is the finding about what the kernels compute.
const triedKernels = "kernels"

func newDoctor(a *app) *cobra.Command {
	var lib, onnxruntime string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is found on this machine, what is missing, and how to get it",
		Long: `doctor looks for onnxruntime and the kernel library, registers the kernels with onnxruntime, and tries each of them. It
exits with 4 when something is missing and with 1 when a kernel gives wrong results.`,
		Example: `  mojo-patch doctor
  ONNXRUNTIME_LIB=/opt/onnxruntime/lib mojo-patch doctor`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			list, verdict := examine(onnxruntime, lib)
			if a.json {
				if err := a.printJSON(map[string]any{"schema": jsonSchema, "version": toolVersion(), "findings": list}); err != nil {
					return err
				}
				return verdict
			}
			for _, f := range list {
				if f.Error == "" {
					fmt.Fprintf(a.out, "%s %-16s %s\n", a.paint(a.out, green, "ok     "), f.What, f.Found)
					continue
				}
				fmt.Fprintf(a.out, "%s %-16s %s\n", a.paint(a.out, red, f.label()), f.What, strings.ReplaceAll(f.Error, "\n", "\n        "))
				if f.Advice != "" {
					fmt.Fprintf(a.out, "        %s\n", f.Advice)
				}
			}
			return verdict
		},
	}
	libraryFlags(c, &onnxruntime, &lib)
	a.jsonFlag(c)
	return c
}

// examine gathers the findings; verdict is an error with an exit code and no message, nil when all is well.
func examine(onnxruntime, lib string) (list []finding, verdict error) {
	facts := ort.Doctor(onnxruntime, lib)
	list = append(list, finding{What: "mojo-patch", Found: fmt.Sprintf("%s, %s, %s/%s", toolVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)})
	code := exitDone
	add := func(f finding, err error) {
		if err != nil {
			f.Found, f.Error = "", err.Error()
			code = exitEnvironment
		} else {
			f.Advice = ""
		}
		list = append(list, f)
	}
	l := facts.Library
	add(finding{What: "onnxruntime", Found: fmt.Sprintf("%s, API %d, %s (%s)", l.Version, l.API, l.Path, l.Source),
		Advice: "to get it: scripts/fetch-onnxruntime.sh, or pip install onnxruntime==" + ort.BundledVersion}, facts.LibraryError)
	if facts.LibraryError == nil {
		add(finding{What: "providers", Found: strings.Join(facts.Providers, ", ")}, nil)
	}
	kernelsError := facts.KernelsError
	if kernelsError == nil && facts.LibraryError != nil {
		kernelsError = errors.New(facts.Kernels + " is there and cannot be tried without onnxruntime")
	}
	add(finding{What: "kernel library", Found: facts.Kernels, Advice: "to get it: make, or cmake -S fused/kernels -B build/kernels && cmake --build build/kernels"},
		kernelsError)
	if code != exitDone {
		return list, &exitError{code: code}
	}
	rows, missing := tryKernels(onnxruntime, lib)
	var wrong []error
	tried, cuda := 0, ""
	for _, r := range rows {
		switch {
		case r.Status == kernelUnknown && strings.EqualFold(r.Device, deviceCUDA):
			cuda = r.Reason
		case r.Status != kernelStandard:
			tried++
		}
		if r.Status == kernelFails {
			wrong = append(wrong, fmt.Errorf("%s (%s): %s", r.Op, strings.Join(r.Types, ", "), r.Reason))
		}
	}
	err := errors.Join(append(wrong, missing)...)
	add(finding{What: triedKernels, Found: fmt.Sprintf("%d of %d run and agree with their definition", tried-len(wrong), tried)}, err)
	if cuda != "" { // nothing is wrong with a machine without a GPU
		add(finding{What: "CUDA kernels", Found: "not tried: " + cuda}, nil)
	}
	if len(wrong) > 0 {
		code = exitFailed
	}
	if code != exitDone {
		return list, &exitError{code: code}
	}
	return list, nil
}
