package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/diagnose"
	"github.com/mojo-patch/mojo-patch/ort/providers"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
	"github.com/spf13/cobra"
)

type modelFlags struct{ model, target string }

func (f *modelFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.model, "model", "",
		"a patched model: report which of its fused ops each target with kernels supports")
	c.Flags().StringVar(&f.target, "target", "",
		"check only this target; exit with 1 if it does not support a fused op")
	cli.Rules(c, "target requires model")
	cli.CompleteFile(c, "model", "onnx")
	cli.CompleteValues(c, "target", fusedTargetNames, false)
}

func fusedTargets() []*target.Target {
	return slices.DeleteFunc(target.All(), func(t *target.Target) bool { return t.Device == "" })
}

func fusedTargetNames() []string {
	var names []string
	for _, t := range fusedTargets() {
		names = append(names, t.Name)
	}
	return names
}

// findings returns a line for each target; wrong is true if the named target leaves out a fused op.
func (f *modelFlags) findings(a *cli.App) (list []finding, wrong bool, err error) {
	if f.model == "" {
		return nil, false, nil
	}
	targets := fusedTargets()
	if f.target != "" {
		t, err := target.Lookup(f.target)
		if err == nil && (t == nil || t.Device == "") {
			err = fmt.Errorf("%s does not run the fused ops; the targets that do are %s", f.target,
				strings.Join(fusedTargetNames(), ", "))
		}
		if err != nil {
			return nil, false, fmt.Errorf("--target: %w", err)
		}
		targets = []*target.Target{t}
	}
	m, err := a.Read(f.model, onnx.AllowMissingData())
	if err != nil {
		return nil, false, err
	}
	defer m.Close()
	sites, err := rewrite.CheckFused(m, targets...)
	if err != nil {
		return nil, false, err
	}
	for i, t := range targets {
		line := f.finding(t, sites[i])
		wrong = wrong || f.target != "" && line.Error != ""
		list = append(list, line)
	}
	return list, wrong, nil
}

// finding counts the sites that a target takes, and lists the others by reason.
func (f *modelFlags) finding(t *target.Target, sites []rewrite.SiteReport) finding {
	open := map[string][]string{}
	var reasons []string
	taken := 0
	for _, s := range sites {
		if s.Status == rewrite.Fused {
			taken++
			continue
		}
		reason := s.Op + ": " + s.Reason
		if open[reason] == nil {
			reasons = append(reasons, reason)
		}
		open[reason] = append(open[reason], s.Node)
	}
	text := fmt.Sprintf("%s: it supports %d of %d fused ops", f.model, taken, len(sites))
	if len(reasons) == 0 {
		return finding{What: t.Name, Found: text}
	}
	for _, r := range reasons {
		nodes := open[r]
		text += fmt.Sprintf("\n%s, at %s", r, nodes[0])
		if len(nodes) > 1 {
			text += fmt.Sprintf(" and %d more", len(nodes)-1)
		}
	}
	return finding{What: t.Name, Error: text, Advice: "mojo-patch apply --target " + t.Name + " leaves these open",
		open: true, unusable: f.target == ""}
}

// providerReport is doctor's result for one execution provider.
type providerReport struct {
	Name    string             `json:"name"`
	Library string             `json:"library,omitempty"` // of the plugin; without one onnxruntime was built with it
	Opens   bool               `json:"opens"`             // it opens a model of one node
	OnCPU   bool               `json:"on_cpu,omitempty"`  // that node runs on the CPU provider
	Error   string             `json:"error,omitempty"`
	Devices []providers.Device `json:"devices"`
}

// providers tries every available execution provider. A provider that was not requested may fail: an onnxruntime with
// CUDA is fine on a machine without a GPU. The error is about the provider that --provider names.
func (f *doctorFlags) providers() ([]providerReport, error) {
	facts, err := ort.Providers(f.onnxruntime, f.provider.Libraries...)
	if err != nil {
		return nil, err
	}
	options, err := f.provider.Options()
	if err != nil {
		return nil, err
	}
	var list []providerReport
	asked := f.provider.Provider
	for _, fact := range facts {
		r := providerReport{Name: fact.Name, Library: fact.Library, Devices: fact.Devices}
		if r.Devices == nil {
			r.Devices = []providers.Device{}
		}
		err := fact.Error
		if err == nil {
			more := []ort.Option{ort.WithLibrary(f.onnxruntime)}
			if fact.Library != "" {
				more = append(more, ort.WithProviderLibrary(fact.Library))
			}
			if providers.Same(fact.Name, asked) {
				err = diagnose.TryProvider(fact.Name, options,
					append(more, ort.WithProviderDevice(f.provider.Device))...)
			} else {
				err = diagnose.TryProvider(fact.Name, nil, more...)
			}
		}
		r.OnCPU = errors.Is(err, diagnose.ErrOnCPU)
		r.Opens = err == nil || r.OnCPU
		if err != nil && !r.OnCPU {
			r.Error = err.Error()
		}
		list = append(list, r)
	}
	if asked == "" {
		return list, nil
	}
	i := slices.IndexFunc(list, func(r providerReport) bool { return providers.Same(r.Name, asked) })
	if i < 0 {
		// the error names the searched places
		return list, diagnose.TryProvider(asked, options, ort.WithLibrary(f.onnxruntime))
	}
	if list[i].OnCPU {
		return list, fmt.Errorf("%s: %w", list[i].Name, diagnose.ErrOnCPU)
	}
	if !list[i].Opens {
		return list, errors.New(list[i].Error)
	}
	return list, nil
}

// finding puts the report into a line, with one line more for the plugin and for each device.
func (r providerReport) finding() finding {
	f := finding{What: providers.Short(r.Name), Found: "runs a product of two matrices"}
	if r.Name == "" {
		f.What = "plugin"
	}
	f.provider = true
	switch {
	case r.OnCPU:
		f.Found = diagnose.ErrOnCPU.Error()
	case !r.Opens:
		f.Found, f.unusable = "does not open without options: "+r.Error, true
	}
	if r.Library != "" {
		f.Found += "\nplugin " + r.Library
	}
	for _, d := range r.Devices {
		f.Found += fmt.Sprintf("\ndevice %s of %s (vendor 0x%x, device 0x%x), offered by %s",
			d.Type, d.Vendor, d.VendorID, d.DeviceID, d.ProviderVendor)
		for _, m := range []map[string]string{d.Metadata, d.ProviderMetadata} {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				if m[key] != "" && m[key] != r.Library {
					f.Found += "\n  " + key + ": " + m[key]
				}
			}
		}
	}
	return f
}

// oneLine keeps only the first line, for output that is not verbose.
func (f finding) oneLine() finding {
	f.Found, _, _ = strings.Cut(f.Found, "\n")
	return f
}
