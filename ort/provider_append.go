//go:build cgo

package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/yalue/onnxruntime_go"

	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// cannGraph is the option that makes the CANN provider compile whole graphs.
const cannGraph = "enable_cann_graph"

// appendProvider adds a provider to a session's options: from a named plugin library, else a built-in one, else from a
// plugin library that is found.
func (c *config) appendProvider(o *onnxruntime_go.SessionOptions, p provider) error {
	full := providers.Full(p.name)
	if full == providers.CANN {
		options, err := cannOptions(p.options, c.findKernels || len(c.kernels) > 0)
		if err != nil {
			return err
		}
		p.options = options
	}
	a, err := load(c.library)
	if err != nil {
		return err
	}
	built, err := a.providers()
	if err != nil {
		return err
	}
	builtIn := providers.Find(built, full)
	if len(c.plugins) == 0 && builtIn != "" {
		return c.appendBuiltIn(a, o, builtIn, p.options)
	}
	devices, known, err := a.pluginDevices(full, c.plugins)
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		if builtIn != "" {
			return c.appendBuiltIn(a, o, builtIn, p.options)
		}
		return absent(a, full, built, known)
	}
	if devices, err = ofType(devices, c.deviceType); err != nil {
		return err
	}
	list := make([]onnxruntime_go.EpDevice, len(devices))
	for i, d := range devices {
		list[i] = d.raw
	}
	if err := o.AppendExecutionProviderV2(list, p.options); err != nil {
		return fmt.Errorf("the plugin %s does not take its options: %w", devices[0].library(), err)
	}
	return nil
}

// appendBuiltIn adds a built-in provider by its call in onnxruntime.
func (c *config) appendBuiltIn(a *api, o *onnxruntime_go.SessionOptions, full string, options map[string]string) error {
	if full == providers.CPU { // every session has it
		if len(options) > 0 {
			return fmt.Errorf("it does not support options, but got "+
				"%s", strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		}
		return nil
	}
	if c.deviceType != "" {
		return fmt.Errorf("it is built into onnxruntime: the type of device, %s, is only for plugins; use options "+
			"to choose the device here",
			c.deviceType)
	}
	switch full {
	case providers.CUDA:
		return appendUpdated(onnxruntime_go.NewCUDAProviderOptions, options, o.AppendExecutionProviderCUDA)
	case providers.TensorRT:
		return appendUpdated(onnxruntime_go.NewTensorRTProviderOptions, options, o.AppendExecutionProviderTensorRT)
	case providers.CANN:
		return a.appendCANN(o, options)
	case "Dml" + providers.Suffix:
		device, err := strconv.Atoi(options["device_id"])
		if _, given := options["device_id"]; given && err != nil || !given && len(options) > 0 || len(options) > 1 {
			return errors.New("its only option is device_id, a number")
		}
		return o.AppendExecutionProviderDirectML(device)
	}
	return o.AppendExecutionProvider(full, options)
}

// appendUpdated adds a provider with its own type of options.
func appendUpdated[T interface {
	Update(options map[string]string) error
	Destroy() error
}](make func() (T, error), options map[string]string, add func(T) error) error {
	t, err := make()
	if err != nil {
		return err
	}
	defer t.Destroy()
	if err := t.Update(options); err != nil {
		return err
	}
	return add(t)
}

// appendCANN makes the calls for CANN, which onnxruntime_go lacks.
func (a *api) appendCANN(o *onnxruntime_go.SessionOptions, options map[string]string) error {
	raw, err := rawOptions(o)
	if err != nil {
		return err
	}
	var keys, values []*C.char
	for _, key := range slices.Sorted(maps.Keys(options)) {
		keys, values = append(keys, C.CString(key)), append(values, C.CString(options[key]))
	}
	defer func() {
		for i := range keys {
			C.free(unsafe.Pointer(keys[i]))
			C.free(unsafe.Pointer(values[i]))
		}
	}()
	return take(C.mojo_append_cann(a.c, raw, unsafe.SliceData(keys), unsafe.SliceData(values), C.size_t(len(keys))))
}

// cannOptions completes the options of the CANN provider. By default CANN's compiler gets the whole graph and never
// calls a registered kernel.
func cannOptions(given map[string]string, kernels bool) (map[string]string, error) {
	if value, ok := given[cannGraph]; ok && value != "0" && kernels {
		return nil, fmt.Errorf("the option %s is %q: CANN then compiles the whole graph and does not call the kernels "+
			"that are registered; set it to 0, or register no kernels", cannGraph, value)
	}
	options := map[string]string{cannGraph: "0"}
	maps.Copy(options, given)
	return options, nil
}

// howToGet describes how to get an execution provider, for an error about a missing one.
func howToGet(full string) string {
	switch full {
	case "QNN" + providers.Suffix:
		return "the Python package onnxruntime-qnn brings its library"
	case "OpenVINO" + providers.Suffix:
		return "the Python package onnxruntime-ep-openvino brings its library"
	case providers.CUDA, providers.TensorRT:
		return "the Python package onnxruntime-gpu brings an onnxruntime that was built with it"
	case providers.CANN:
		return fmt.Sprintf("build onnxruntime 1.%d or newer with it; the Python package onnxruntime-cann is older",
			APILevel)
	}
	return "use an onnxruntime that was built with it, or a plugin library of it"
}

// absent is the error for a provider that neither onnxruntime nor a plugin has. known are the available devices.
func absent(a *api, full string, built []string, known []pluginDevice) error {
	text := fmt.Sprintf("onnxruntime %s of %s was built with %s", a.version, a.path, strings.Join(built, ", "))
	if len(known) == 0 {
		text += ", and its plugin library was not found"
	}
	for _, d := range known {
		text += fmt.Sprintf(", and the plugin library %s brings %s", d.library(), d)
	}
	return fmt.Errorf("%w: %s; %s ($%s names plugin libraries)", providers.ErrUnavailable, text, howToGet(full),
		providers.LibraryVariable)
}

// ofType keeps the devices of a hardware type; "" keeps all.
func ofType(devices []pluginDevice, hardware string) ([]pluginDevice, error) {
	if hardware == "" {
		return devices, nil
	}
	kept := slices.DeleteFunc(slices.Clone(devices), func(d pluginDevice) bool {
		return !strings.EqualFold(d.Type, hardware)
	})
	if len(kept) == 0 {
		return nil, fmt.Errorf("%w: it has no %s here, only %s", providers.ErrUnavailable, hardware,
			listDevices(describe(devices)))
	}
	return kept, nil
}

// listDevices formats devices for a message.
func listDevices(devices []providers.Device) string {
	if len(devices) == 0 {
		return "no device"
	}
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = d.String()
	}
	return strings.Join(list, ", ")
}
