// Package doctor is the command doctor.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/ort/diagnose"
	"github.com/mojo-patch/mojo-patch/ort/providers"
	"github.com/spf13/cobra"
)

// finding is one line of doctor, and its JSON form.
type finding struct {
	What   string `json:"what"`
	Found  string `json:"found,omitempty"`
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`

	provider bool // in JSON, providers have a separate list
	unusable bool // found but not working here, and not requested
	open     bool // the target does not take all of the model's fused ops
}

// label returns the state in one word. Kernels that were tried and differ are wrong, not missing.
func (f finding) label() string {
	switch {
	case f.open:
		return "open   "
	case f.unusable:
		return "unused "
	case f.Error == "":
		return "ok     "
	case f.What == triedKernels:
		return "wrong  "
	}
	return "missing"
}

func (f finding) colour() string {
	switch {
	case f.unusable:
		return cli.Plain
	case f.Error == "":
		return cli.Green
	}
	return cli.Red
}

// triedKernels names the finding about the results of the kernels.
const triedKernels = "kernels"

type doctorFlags struct {
	kernelsLib, onnxruntime string
	provider                session.ProviderFlags
	patched                 modelFlags
}

// New returns the command doctor.
func New(a *cli.App) *cobra.Command {
	f := &doctorFlags{}
	c := &cobra.Command{
		Use:   "doctor [--provider NAME [KEY=VALUE...]]",
		Short: "Report which libraries this machine has, which are missing, and how to install them",
		Long: `doctor looks for onnxruntime and the kernel library, registers the kernels with onnxruntime, and
tries each of them. It exits with 4 if something is missing and with 1 if a kernel returns wrong
results.

It lists the execution providers built into onnxruntime and the providers of plugin libraries beside
onnxruntime, in Python packages and in --provider-library. It tries each with a model of one node. A
provider that does not open counts as missing only if --provider names it, with the options of
--provider-option or KEY=VALUE. -v adds the plugins and the devices that they offer.

With --model it also reads a patched model and reports which of its fused ops are within the limits in
an NPU's documentation.`,
		Example: `  mojo-patch doctor
  mojo-patch doctor -v --provider qnn backend_type=htp soc_model=60
  mojo-patch doctor --model patched.onnx --target ascend
  ONNXRUNTIME_LIB=/opt/onnxruntime/lib mojo-patch doctor`,
		Args: func(c *cobra.Command, args []string) error {
			rest, _ := f.provider.Split(args, 0)
			return cobra.NoArgs(c, rest)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			f.provider.Take(args, 0)
			if err := f.provider.CheckProvider(true); err != nil {
				return err
			}
			model, wrong, err := f.patched.findings(a)
			if err != nil {
				return err
			}
			list, reports, verdict := f.examine(a)
			list = append(list, model...)
			if wrong && verdict == nil {
				verdict = cli.Failed(nil)
			}
			if a.JSON {
				list = slices.DeleteFunc(list, func(f finding) bool { return f.provider })
				result := Result{cli.JSONSchema, cli.Version(), list, append([]providerReport{}, reports...)}
				if err := a.PrintJSON(result); err != nil {
					return err
				}
				return verdict
			}
			for _, f := range list {
				text := cmp.Or(f.Error, f.Found)
				if f.Error != "" && f.Advice != "" {
					text += "\n" + f.Advice
				}
				fmt.Fprintf(a.Out, "%s %-16s %s\n", a.Paint(a.Out, f.colour(), f.label()), f.What,
					strings.ReplaceAll(text, "\n", "\n        "))
			}
			return verdict
		},
	}
	session.LibraryFlags(c, &f.onnxruntime, &f.kernelsLib)
	f.provider.NameFlags(c, "(doctor tries every one that is here)")
	f.patched.flags(c)
	a.JSONFlag(c, "doctor")
	return c
}

// examine collects the findings. verdict is an error with an exit code and no message, or nil if all is well.
func (f *doctorFlags) examine(a *cli.App) (list []finding, reports []providerReport, verdict error) {
	facts := diagnose.Libraries(f.onnxruntime, f.kernelsLib)
	list = append(list, finding{What: "mojo-patch",
		Found: fmt.Sprintf("%s, %s, %s/%s", cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)})
	code := cli.ExitDone
	add := func(f finding, err error) {
		if err != nil {
			f.Found, f.Error = "", err.Error()
			code = cli.ExitEnvironment
		} else {
			f.Advice = ""
		}
		list = append(list, f)
	}
	l := facts.Library
	add(finding{What: "onnxruntime", Found: fmt.Sprintf("%s, API %d, %s (%s)", l.Version, l.API, l.Path, l.Source),
		Advice: adviceOnnxruntime(facts.LibraryError)}, facts.LibraryError)
	if facts.LibraryError == nil {
		add(finding{What: "providers", Found: strings.Join(facts.Providers, ", ")}, nil)
		var err error
		reports, err = f.providers()
		for _, p := range reports {
			switch line := p.finding(); {
			case err != nil && providers.Same(p.Name, f.provider.Provider):
			case a.Verbose:
				list = append(list, line)
			default:
				list = append(list, line.oneLine())
			}
		}
		if err != nil {
			add(finding{What: cmp.Or(f.provider.Provider, "plugins"),
				Advice: adviceProvider(f.provider.Provider, err)}, err)
		}
	}
	kernelsError := facts.KernelsError
	if kernelsError == nil && facts.LibraryError != nil {
		kernelsError = errors.New(facts.Kernels + " was found, but cannot be tried without onnxruntime")
	}
	add(finding{What: "kernel library", Found: facts.Kernels, Advice: adviceKernels(facts.KernelsError)}, kernelsError)
	if code != cli.ExitDone {
		return list, reports, cli.ExitWith(code, nil)
	}
	rows, missing := prober.TryKernels(a, f.onnxruntime, f.kernelsLib)
	var wrong []error
	tried, elsewhere := 0, map[string]string{}
	for _, r := range rows {
		switch {
		case r.Status == prober.KernelUnknown && !r.Away: // another library has it
		case r.Status == prober.KernelUnknown && !strings.EqualFold(r.Device, session.DeviceCPU):
			elsewhere[strings.ToUpper(r.Device)] = r.Reason
		case r.Status != prober.KernelStandard:
			tried++
		}
		if r.Status == prober.KernelFails {
			wrong = append(wrong, fmt.Errorf("%s (%s): %s", r.Op, strings.Join(r.Types, ", "), r.Reason))
		}
	}
	err := errors.Join(append(wrong, missing)...)
	add(finding{What: triedKernels, Found: fmt.Sprintf("%d of %d run and agree with their definition", tried-len(wrong),
		tried)}, err)
	for _, device := range slices.Sorted(maps.Keys(elsewhere)) { // a machine without a GPU is fine
		if reason := elsewhere[device]; reason != "" {
			add(finding{What: device + " kernels", Found: "not tried: " + reason}, nil)
		}
	}
	switch {
	case len(wrong) > 0:
		verdict = cli.Failed(nil)
	case code != cli.ExitDone:
		verdict = cli.ExitWith(code, nil)
	}
	return list, reports, verdict
}

// Result is the result of doctor.
type Result struct {
	Schema    int              `json:"schema"`
	Version   string           `json:"version"` // of the tool
	Findings  []finding        `json:"findings"`
	Providers []providerReport `json:"providers"`
}
