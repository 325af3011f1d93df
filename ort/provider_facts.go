//go:build cgo

package ort

import "path/filepath"

// Providers lists the available execution providers: those built into the onnxruntime library, then those of plugin
// libraries (see FindProviderLibraries), which it registers for that. A plugin that cannot be registered is listed with
// its error. For an empty library it searches; see Find.
func Providers(library string, given ...string) ([]ProviderFacts, error) {
	a, err := load(library)
	if err != nil {
		return nil, err
	}
	built, err := a.providers()
	if err != nil {
		return nil, err
	}
	libraries, err := FindProviderLibraries(a.path, given...)
	if err != nil {
		return nil, err
	}
	var failed []ProviderFacts
	registered := map[string]bool{}
	for _, l := range libraries {
		if !l.named() && (registered[l.Provider] || findProvider(built, l.Provider) != "") {
			continue // a duplicate, or a library that a built-in provider loads itself
		}
		if err := l.register(filepath.Base(l.Path)); err != nil {
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
