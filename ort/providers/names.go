// Package providers knows the names of onnxruntime's execution providers, their devices, and the plugin libraries that
// bring more of them.
package providers

import (
	"fmt"
	"slices"
	"strings"
)

// Suffix ends onnxruntime's names of execution providers.
const Suffix = "ExecutionProvider"

// The providers with special handling.
const (
	CPU      = "CPU" + Suffix
	CUDA     = "CUDA" + Suffix
	TensorRT = "Tensorrt" + Suffix
	CANN     = "CANN" + Suffix
)

// known are the short names of onnxruntime's providers, in onnxruntime's spelling.
var known = []string{"ACL", "Azure", "CANN", "CPU", "CUDA", "CoreML", "Dml", "Dnnl", "Js", "MIGraphX", "Nnapi",
	"NvTensorRTRTX", "OpenVINO", "QNN", "SNPE", "Tensorrt", "VSINPU", "VitisAI", "WebGpu", "WebNN", "Xnnpack"}

// Known lists the execution providers that exist for onnxruntime, by the names of Short.
func Known() []string { return slices.Clone(known) }

// Full returns onnxruntime's own name of an execution provider: "QNNExecutionProvider" for "qnn", "QNN", or
// itself. An unknown name keeps its spelling.
func Full(name string) string {
	short := name
	if n := len(name) - len(Suffix); n >= 0 && strings.EqualFold(name[n:], Suffix) {
		short = name[:n]
	} else if strings.Contains(name, Suffix) { // "OpenVINOExecutionProvider.AUTO"
		return name
	}
	for _, k := range known {
		if strings.EqualFold(k, short) {
			return k + Suffix
		}
	}
	return short + Suffix
}

// Short returns the name of an execution provider without its suffix: "QNN".
func Short(name string) string { return strings.TrimSuffix(Full(name), Suffix) }

// Same reports whether two names mean the same execution provider, in any spelling.
func Same(a, b string) bool { return strings.EqualFold(Full(a), Full(b)) }

// Find returns the name of the provider in the list, or "".
func Find(list []string, name string) string {
	if i := slices.IndexFunc(list, func(n string) bool { return Same(n, name) }); i >= 0 {
		return list[i]
	}
	return ""
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

// LibraryMetadata is the key of the library path in a device's provider metadata.
const LibraryMetadata = "library_path"

// String names the provider and its device: "QNNExecutionProvider on a CPU of Intel".
func (d Device) String() string { return fmt.Sprintf("%s on a %s of %s", d.Provider, d.Type, d.Vendor) }
