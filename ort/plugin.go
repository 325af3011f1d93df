//go:build cgo

package ort

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/yalue/onnxruntime_go"

	"github.com/mojo-patch/mojo-patch/ort/internal/places"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// plugins are the libraries registered with the process's onnxruntime. They stay registered, because sessions use their
// devices.
var plugins struct {
	sync.Mutex
	registered []registeredPlugin
}

type registeredPlugin struct {
	path string
	err  error // from onnxruntime
}

// pluginDevice is a device of a plugin's provider.
type pluginDevice struct {
	providers.Device
	raw onnxruntime_go.EpDevice
}

// library returns the path of the plugin, "" for a built-in provider.
func (d pluginDevice) library() string { return d.ProviderMetadata[providers.LibraryMetadata] }

func describe(devices []pluginDevice) []providers.Device {
	list := make([]providers.Device, len(devices))
	for i, d := range devices {
		list[i] = d.Device
	}
	return list
}

// register registers a plugin library once. Some plugins name their provider by the registration name, so that is the
// provider in the file name, or else the requested one.
func register(l providers.Library, asked string) error {
	name := l.Provider
	if name == "" {
		name = providers.Full(asked)
	}
	plugins.Lock()
	defer plugins.Unlock()
	for _, r := range plugins.registered {
		if places.SameFile(r.path, l.Path) {
			return r.err
		}
	}
	err := onnxruntime_go.RegisterExecutionProviderLibrary(name, l.Path)
	if err != nil {
		err = fmt.Errorf("onnxruntime cannot register the plugin library %s: %w", l.Path, err)
	}
	plugins.registered = append(plugins.registered, registeredPlugin{l.Path, err})
	return err
}

// pluginDevices returns the devices that a plugin library offers for a provider, and the devices of all plugins. It
// registers libraries until one offers the provider: those of the given paths, or else those named in the environment,
// and those found whose file names contain the provider.
func (a *api) pluginDevices(full string, given []string) (of, all []pluginDevice, err error) {
	libraries, err := providers.FindLibraries(a.path, given...)
	if err != nil {
		return nil, nil, err
	}
	libraries = slices.DeleteFunc(libraries, func(l providers.Library) bool {
		return len(given) > 0 && l.Source != providers.Given || !l.Named() && !l.Brings(full)
	})
	// a named library may provide more than its name says
	slices.SortStableFunc(libraries, func(x, y providers.Library) int {
		switch brings := x.Brings(full); {
		case brings == y.Brings(full):
			return 0
		case brings:
			return -1
		}
		return 1
	})
	var failures []error
	for _, l := range libraries {
		if err := register(l, full); err != nil {
			failures = append(failures, err)
			continue
		}
		if all, err = a.devices(); err != nil {
			return nil, nil, err
		}
		all = slices.DeleteFunc(all, func(d pluginDevice) bool { return d.library() == "" })
		for _, d := range all {
			if providers.Same(d.Provider, full) && places.SameFile(d.library(), l.Path) {
				of = append(of, d)
			}
		}
		if len(of) > 0 {
			return of, all, nil
		}
	}
	return nil, all, errors.Join(failures...)
}

// devices lists the devices of all of onnxruntime's providers, plugins and built-in ones.
func (a *api) devices() ([]pluginDevice, error) {
	list, err := onnxruntime_go.GetEpDevices()
	if err != nil {
		return nil, fmt.Errorf("cannot list the devices of execution providers: %w", err)
	}
	devices := make([]pluginDevice, len(list))
	for i, raw := range list {
		d, err := rawDevice(&raw)
		if err != nil {
			return nil, err
		}
		var c C.mojo_device
		C.mojo_device_get(a.c, d, &c)
		devices[i] = pluginDevice{raw: raw, Device: providers.Device{Provider: raw.EpName(),
			ProviderVendor: raw.EpVendor(), ProviderMetadata: pairs(a, c.ep_metadata),
			Type: C.GoString(c._type), Vendor: C.GoString(c.vendor),
			VendorID: uint32(c.vendor_id), DeviceID: uint32(c.device_id), Metadata: pairs(a, c.metadata)}}
	}
	return devices, nil
}

// pairs copies a map of onnxruntime's.
func pairs(a *api, kv *C.OrtKeyValuePairs) map[string]string {
	var keys, values **C.char
	var n C.size_t
	C.mojo_pairs(a.c, kv, &keys, &values, &n)
	m := make(map[string]string, n)
	for i, key := range unsafe.Slice(keys, n) {
		m[C.GoString(key)] = C.GoString(unsafe.Slice(values, n)[i])
	}
	return m
}

// rawDevice gets the C device from onnxruntime_go's, which does not export it.
func rawDevice(d *onnxruntime_go.EpDevice) (*C.OrtEpDevice, error) {
	p, err := dig(d, "devices", "p")
	return (*C.OrtEpDevice)(p), err
}
