//go:build cgo

package ort

import (
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// Providers lists the available execution providers: those built into the onnxruntime library, then those of plugin
// libraries (see providers.FindLibraries), which it registers for that. A plugin that cannot be registered is listed
// with its error. For an empty library it searches; see Find.
func Providers(library string, given ...string) ([]ProviderFacts, error) {
	a, err := load(library)
	if err != nil {
		return nil, err
	}
	built, err := a.providers()
	if err != nil {
		return nil, err
	}
	libraries, err := providers.FindLibraries(a.path, given...)
	if err != nil {
		return nil, err
	}
	var failed []ProviderFacts
	registered := map[string]bool{}
	for _, l := range libraries {
		if !l.Named() && (registered[l.Provider] || providers.Find(built, l.Provider) != "") {
			continue // a duplicate, or a library that a built-in provider loads itself
		}
		if err := register(l, filepath.Base(l.Path)); err != nil {
			failed = append(failed, ProviderFacts{Name: l.Provider, Library: l.Path, Error: err})
			continue
		}
		registered[l.Provider] = true
	}
	devices, err := a.devices()
	if err != nil {
		return nil, err
	}
	var list []ProviderFacts
	for _, name := range built {
		list = append(list, ProviderFacts{Name: name})
	}
	for _, d := range devices {
		i := len(list) - 1
		for ; i >= 0 && (list[i].Name != d.Provider || list[i].Library != d.library()); i-- {
		}
		if i < 0 {
			i, list = len(list), append(list, ProviderFacts{Name: d.Provider, Library: d.library()})
		}
		list[i].Devices = append(list[i].Devices, d.Device)
	}
	return append(list, failed...), nil
}
