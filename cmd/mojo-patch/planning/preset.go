package planning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A preset is a value of --for. Its flags have values after "=". next is the command that exports the patched model, if
// there is one.
type preset struct{ name, where, flags, next string }

// presets are all values of --for. The help, docs/cli.md and completion come from this table.
var presets = []preset{
	{"cpu", "onnxruntime on a CPU: Ray Serve, generate, a loop in Python",
		"last-logits cache=static past-length=rows backend=+CPU", ""},
	{"cuda", "onnxruntime or onnxruntime-genai on an NVIDIA GPU",
		"last-logits cache=static past-length=rows merge-products backend=+CUDA,CPU", ""},
	{"genai", "onnxruntime-genai (export genai)", "last-logits cache=static past-length=rows",
		"export genai %s --tokenizer CHECKPOINT -o FOLDER"},
	{"triton", "Triton Inference Server (export triton), for texts of up to 1024 tokens",
		"last-logits cache=static=1024 past-length=rows", "export triton %s -o REPOSITORY"},
	{"web", "onnxruntime-web, which cannot load kernels; dtype is for models in bfloat16 only",
		"last-logits target=ort dtype=float32", ""},
}

// PresetsHelp is the part of a command's help about --for.
func PresetsHelp() string {
	var b strings.Builder
	b.WriteString("--for chooses the flags that serving a decoder needs (docs/serving.md). Flags that are also " +
		"given win.\nFlags that do not apply to the model are left out, and the report lists them with the reasons.\n")
	for _, p := range presets {
		fmt.Fprintf(&b, "\n    %-7s %s:\n            %s", p.name, p.where, spelledFlags(p.flags))
	}
	return b.String()
}

// spelledFlags spells flags as the command line has them.
func spelledFlags(flags string) string {
	var list []string
	for f := range strings.FieldsSeq(flags) {
		name, value, _ := strings.Cut(f, "=")
		list = append(list, spelled(name, value))
	}
	return strings.Join(list, " ")
}

func spelled(name, value string) string {
	switch {
	case value == "":
		return "--" + name
	case name == "past-length" || value == "true" || value == "false": // the value is optional
		return "--" + name + "=" + value
	}
	return "--" + name + " " + value
}

// PresetFlag is --for.
type PresetFlag struct {
	name   string
	set    []string          // the names of the flags that it set, which may be left out
	absent map[string]string // flags that the command lacks or does not try, by their names
	report *rewrite.PresetReport
}

// AddTo adds the flag to a command.
func (f *PresetFlag) AddTo(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "for", "", "choose flags for serving a decoder: "+
		strings.Join(presetNames(), ", ")+"; each can also be given")
	cli.CompleteValues(c, "for", func() (list []string) {
		for _, p := range presets {
			list = append(list, p.name+"\t"+p.where)
		}
		return list
	}, false)
}

func presetNames() (names []string) {
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

// Changed returns the names of the flags that were given.
func Changed(c *cobra.Command) map[string]bool {
	names := map[string]bool{}
	c.Flags().Visit(func(f *pflag.Flag) { names[f.Name] = true })
	return names
}

// Expand sets the flags of the preset that are not in given, the flags of the command line. A plan may have set some of
// them. With dry, no caches are changed.
func (f *PresetFlag) Expand(a *cli.App, c *cobra.Command, model string, given map[string]bool, dry bool) error {
	if f.name == "" {
		if c.Flags().Changed("for") {
			return errors.New("the value of --for is empty")
		}
		return nil
	}
	i := slices.IndexFunc(presets, func(p preset) bool { return p.name == f.name })
	if i < 0 {
		return fmt.Errorf("--for %q: must be one of %s", f.name, strings.Join(presetNames(), ", "))
	}
	f.set, f.absent, f.report = nil, map[string]string{}, &rewrite.PresetReport{Name: f.name, Flags: []string{}}
	var own, later []string
	state := sync.OnceValues(func() (string, error) { return stateOf(a, model) })
	for flag := range strings.FieldsSeq(presets[i].flags) {
		name, value, _ := strings.Cut(flag, "=")
		text := spelled(name, value)
		if value == "" {
			value = "true"
		}
		fl := c.Flags().Lookup(name)
		switch {
		case given[name]:
			own = append(own, spelled(name, cmp.Or(fl.Value.String(), `""`)))
			continue
		case fl != nil && fl.Changed && fl.Value.String() != value: // a plan says otherwise
			continue
		case name == "past-length" && given["cache"] && c.Flags().Lookup("cache").Value.String() == "":
			continue
		case fl == nil || dry && slices.Contains(writtenFlags, name):
			if f.absent[name] = value; fl != nil {
				if err := c.Flags().Set(name, fl.DefValue); err != nil {
					return err
				}
			}
			later = append(later, text)
			continue
		case name == "dtype":
			if is, err := f.isBFloat16(a, model); err != nil || !is {
				f.leave([]string{text}, "the model is not in bfloat16")
				continue
			}
		case f.name == "genai" && (name == "cache" || name == "past-length"):
			name, err := state()
			if err != nil {
				return err
			}
			if name != "" {
				f.leave([]string{text}, fmt.Sprintf("genai would overwrite state %q while the model reads it", name))
				continue
			}
		}
		if other := cli.Excluding(c, name, value); other != "" {
			return fmt.Errorf("--for %s stands for %s, which cannot be combined with --%s", f.name, text, other)
		}
		if err := c.Flags().Set(name, value); err != nil {
			return fmt.Errorf("--for %s: %s: %w", f.name, text, err)
		}
		f.set = append(f.set, name)
		f.report.Flags = append(f.report.Flags, text)
	}
	line := fmt.Sprintf("--for %s stands for: %s", f.name, strings.Join(f.report.Flags, " "))
	if len(own) > 0 {
		line += "; given: " + strings.Join(own, " ")
	}
	if len(later) > 0 {
		line += "; only when a model is written: " + strings.Join(later, " ")
	}
	a.Say("%s", line)
	return nil
}

// writtenFlags are flags of presets about models that are written.
var writtenFlags = []string{"cache", "past-length", "merge-products"}

// isBFloat16 reports whether the model has weights in bfloat16.
func (f *PresetFlag) isBFloat16(a *cli.App, path string) (bool, error) {
	m, err := a.Read(path, onnx.AllowMissingData())
	if err != nil {
		return false, err
	}
	defer m.Close()
	return slices.ContainsFunc(m.Graph.Initializers(), func(v *onnx.Value) bool {
		return v.Const.DataType == onnx.BFloat16
	}), nil
}

// stateOf returns the name of a state of fixed size that the model keeps beside keys and values, or "".
func stateOf(a *cli.App, path string) (string, error) {
	m, err := a.Read(path, onnx.AllowMissingData())
	if err != nil {
		return "", err
	}
	defer m.Close()
	s, err := generate.Describe(m)
	if err != nil { // not a decoder
		return "", nil
	}
	for _, c := range s.Caches {
		if c.Tokens < 0 {
			return c.Past.Value.Name, nil
		}
	}
	return "", nil
}

func (f *PresetFlag) leave(flags []string, reason string) {
	if last := len(f.report.LeftOut) - 1; last >= 0 && f.report.LeftOut[last].Reason == reason {
		f.report.LeftOut[last].Flags = append(f.report.LeftOut[last].Flags, flags...)
		return
	}
	f.report.LeftOut = append(f.report.LeftOut, rewrite.LeftOutReport{Flags: flags, Reason: reason})
}

// leaveOut leaves out the flags that failed with err, if the preset set them, and reports whether it did.
func (f *PresetFlag) leaveOut(c *cobra.Command, err error) bool {
	var step *rewrite.StepError
	if !errors.As(err, &step) {
		return false
	}
	names := []string{step.Flag}
	switch set := func(name string) bool { return slices.Contains(f.set, name) }; {
	case step.Flag == "cache" && errors.Is(err, staticcache.ErrNoCache) && set("cache"):
		names = writtenFlags
	case step.Flag == "cache" && set("past-length"):
		names = []string{"past-length"}
	case !set(step.Flag):
		return false
	}
	var texts []string
	for _, name := range names {
		i := slices.Index(f.set, name)
		if i < 0 {
			continue
		}
		fl := c.Flags().Lookup(name)
		texts = append(texts, f.report.Flags[i])
		f.set, f.report.Flags = slices.Delete(f.set, i, i+1), slices.Delete(f.report.Flags, i, i+1)
		if err := c.Flags().Set(name, fl.DefValue); err != nil {
			return false
		}
	}
	// One reason is enough if the caches cannot be kept without row lengths either.
	if last := len(f.report.LeftOut) - 1; step.Flag == "cache" && last >= 0 &&
		strings.HasPrefix(f.report.LeftOut[last].Flags[0], "--past-length") {
		texts = append(texts, f.report.LeftOut[last].Flags...)
		f.report.LeftOut = f.report.LeftOut[:last]
	}
	f.leave(texts, strings.TrimPrefix(step.Err.Error(), step.Flag+": "))
	return true
}

// say prints the flags that were left out.
func (f *PresetFlag) say(a *cli.App) {
	if f.report == nil {
		return
	}
	for _, x := range f.report.LeftOut {
		a.Say("left out %s: %s", strings.Join(x.Flags, " "), x.Reason)
	}
}

// SayNext prints the command that exports the model out, if the preset has one.
func (f *PresetFlag) SayNext(a *cli.App, out string) {
	for _, p := range presets {
		if p.name == f.name && p.next != "" && !a.JSON {
			a.Say("to export it: mojo-patch "+p.next, out)
		}
	}
}

// planned adds to the flags that a plan holds those that only apply has.
func (f *PresetFlag) planned(flags map[string][]string) map[string][]string {
	flags = maps.Clone(flags)
	for name, value := range f.absent {
		flags[name] = []string{value}
	}
	return flags
}
