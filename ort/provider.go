package ort

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// providerSuffix ends onnxruntime's names of execution providers.
const providerSuffix = "ExecutionProvider"

// The providers with special handling.
const (
	cpuProvider      = "CPU" + providerSuffix
	cudaProvider     = "CUDA" + providerSuffix
	tensorrtProvider = "Tensorrt" + providerSuffix
	cannProvider     = "CANN" + providerSuffix
)

// cannGraph is the option that makes the CANN provider compile whole graphs.
const cannGraph = "enable_cann_graph"

// knownProviders are the short names of onnxruntime's providers, in onnxruntime's spelling.
var knownProviders = []string{"ACL", "Azure", "CANN", "CPU", "CUDA", "CoreML", "Dml", "Dnnl", "Js", "MIGraphX", "Nnapi",
	"NvTensorRTRTX", "OpenVINO", "QNN", "SNPE", "Tensorrt", "VSINPU", "VitisAI", "WebGpu", "WebNN", "Xnnpack"}

// KnownProviders lists the execution providers that exist for onnxruntime, by the names of ShortProvider.
func KnownProviders() []string { return slices.Clone(knownProviders) }

// FullProvider returns onnxruntime's own name of an execution provider: "QNNExecutionProvider" for "qnn", "QNN", or
// itself. An unknown name keeps its spelling.
func FullProvider(name string) string {
	short := name
	if n := len(name) - len(providerSuffix); n >= 0 && strings.EqualFold(name[n:], providerSuffix) {
		short = name[:n]
	} else if strings.Contains(name, providerSuffix) { // "OpenVINOExecutionProvider.AUTO"
		return name
	}
	for _, known := range knownProviders {
		if strings.EqualFold(known, short) {
			return known + providerSuffix
		}
	}
	return short + providerSuffix
}

// ShortProvider returns the name of an execution provider without its suffix: "QNN".
func ShortProvider(name string) string { return strings.TrimSuffix(FullProvider(name), providerSuffix) }

// SameProvider reports whether two names mean the same execution provider, in any spelling.
func SameProvider(a, b string) bool { return strings.EqualFold(FullProvider(a), FullProvider(b)) }

// findProvider returns the name of the provider in the list, or "".
func findProvider(list []string, name string) string {
	if i := slices.IndexFunc(list, func(n string) bool { return SameProvider(n, name) }); i >= 0 {
		return list[i]
	}
	return ""
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
	case "QNN" + providerSuffix:
		return "the Python package onnxruntime-qnn brings its library"
	case "OpenVINO" + providerSuffix:
		return "the Python package onnxruntime-ep-openvino brings its library"
	case cudaProvider, tensorrtProvider:
		return "the Python package onnxruntime-gpu brings an onnxruntime that was built with it"
	case cannProvider:
		return fmt.Sprintf("build onnxruntime 1.%d or newer with it; the Python package onnxruntime-cann is older",
			APILevel)
	}
	return "use an onnxruntime that was built with it, or a plugin library of it"
}

// Device is a device that an execution provider offers.
type Device struct {
	Provider       string `json:"provider"`        // "QNNExecutionProvider"
	ProviderVendor string `json:"provider_vendor"` // "Qualcomm"
	// the provider's version, properties of the device, …
	ProviderMetadata map[string]string `json:"provider_metadata,omitempty"`
	Type             string            `json:"type"`   // of the hardware: CPU, GPU or NPU
	Vendor           string            `json:"vendor"` // of the hardware
	VendorID         uint32            `json:"vendor_id"`
	DeviceID         uint32            `json:"device_id"`
	Metadata         map[string]string `json:"metadata,omitempty"` // of the hardware
}

// libraryMetadata is the key of the library path in a device's provider metadata.
const libraryMetadata = "library_path"

// String names the provider and its device: "QNNExecutionProvider on a CPU of Intel".
func (d Device) String() string { return fmt.Sprintf("%s on a %s of %s", d.Provider, d.Type, d.Vendor) }

// listDevices formats devices for a message.
func listDevices(devices []Device) string {
	if len(devices) == 0 {
		return "no device"
	}
	list := make([]string, len(devices))
	for i, d := range devices {
		list[i] = d.String()
	}
	return strings.Join(list, ", ")
}
