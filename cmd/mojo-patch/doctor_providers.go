package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/ort"
)

// providerReport is what doctor says of one execution provider.
type providerReport struct {
	Name    string       `json:"name"`
	Library string       `json:"library,omitempty"` // of the plugin; without one onnxruntime was built with it
	Opens   bool         `json:"opens"`             // a model of one node
	OnCPU   bool         `json:"on_cpu,omitempty"`  // that node is left to the CPU's provider
	Error   string       `json:"error,omitempty"`
	Devices []ort.Device `json:"devices"`
}

// providers tries every execution provider that is here. Those that were not asked for may fail: an onnxruntime with
// CUDA is no mistake on a machine without a GPU. The error is about the one that --provider names.
func (f *doctorFlags) providers() ([]providerReport, error) {
	facts, err := ort.Providers(f.onnxruntime, f.provider.libraries...)
	if err != nil {
		return nil, err
	}
	options, err := f.provider.options()
	if err != nil {
		return nil, err
	}
	var list []providerReport
	asked := f.provider.provider
	for _, fact := range facts {
		r := providerReport{Name: fact.Name, Library: fact.Library, Devices: fact.Devices}
		if r.Devices == nil {
			r.Devices = []ort.Device{}
		}
		err := fact.Error
		if err == nil {
			more := []ort.Option{ort.WithLibrary(f.onnxruntime)}
			if fact.Library != "" {
				more = append(more, ort.WithProviderLibrary(fact.Library))
			}
			if ort.SameProvider(fact.Name, asked) {
				err = ort.TryProvider(fact.Name, options, append(more, ort.WithProviderDevice(f.provider.device))...)
			} else {
				err = ort.TryProvider(fact.Name, nil, more...)
			}
		}
		r.OnCPU = errors.Is(err, ort.ErrOnCPU)
		r.Opens = err == nil || r.OnCPU
		if err != nil && !r.OnCPU {
			r.Error = err.Error()
		}
		list = append(list, r)
	}
	if asked == "" {
		return list, nil
	}
	i := slices.IndexFunc(list, func(r providerReport) bool { return ort.SameProvider(r.Name, asked) })
	if i < 0 {
		// which says where it was looked for
		return list, ort.TryProvider(asked, options, ort.WithLibrary(f.onnxruntime))
	}
	if list[i].OnCPU {
		return list, fmt.Errorf("%s: %w", list[i].Name, ort.ErrOnCPU)
	}
	if !list[i].Opens {
		return list, errors.New(list[i].Error)
	}
	return list, nil
}

// finding puts the report into a line, with one more for the plugin and for each device.
func (r providerReport) finding() finding {
	f := finding{What: ort.ShortProvider(r.Name), Found: "runs a product of two matrices"}
	if r.Name == "" {
		f.What = "plugin"
	}
	f.provider = true
	switch {
	case r.OnCPU:
		f.Found = ort.ErrOnCPU.Error()
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

// oneLine keeps the first line, which says enough where nobody asked for more.
func (f finding) oneLine() finding {
	f.Found, _, _ = strings.Cut(f.Found, "\n")
	return f
}
