package session

import (
	"fmt"
	"os"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/spf13/cobra"
)

// backendVariable is the environment variable that replaces a missing --backend.
const backendVariable = "MOJO_BACKEND"

// DevicesHelp is the help about --backend.
const DevicesHelp = `Devices: --backend, or $` + backendVariable + `, lists devices by priority: apply uses their kernels,
and run and diff run on them. Write "+" and names separated by commas, such as "+CUDA,CPU".

  CPU   has kernels and is part of ALL.
  CUDA  has kernels, and is used only if it is named. A model runs on it if it is before CPU in the
        list, or with --provider cuda. It needs a GPU and an onnxruntime with the CUDA provider.
  NPU   has kernels for Huawei Ascend. It is used only if it is named, and only by apply; to run the
        model, use --provider cann.
  REF   has no kernels: fused ops run as their definitions, in the built-in evaluator.
  ALL   is the default: every device that has kernels. apply skips a device without kernels here and
        reports it; if the device is named, that is an error.`

// Devices: onnxruntime runs models on the first two here; NPU kernels are for an onnxruntime elsewhere.
const (
	DeviceCPU  = "CPU"
	DeviceCUDA = "CUDA"
	DeviceNPU  = "NPU"
)

// ProviderOf returns the provider for the first device of the backend that onnxruntime supports, or "". CUDA must be
// named: onnxruntime does not tell in advance whether its provider finds a GPU.
func ProviderOf(b registry.Backend) string {
	for _, d := range b.Devices() {
		switch {
		case d == DeviceCPU:
			return ProviderCPU
		case d == DeviceCUDA && b.Names(d):
			return ProviderCUDA
		}
	}
	return ""
}

// DeviceFlag is --backend as a pflag.Value, so that a wrong value fails before any work.
type DeviceFlag struct {
	given *registry.Backend
}

// AddTo adds --backend to a command.
func (f *DeviceFlag) AddTo(c *cobra.Command, what string) {
	c.Flags().Var(f, "backend", what+`, by priority: "+" and a list, such as "+CPU,REF" (default: $`+backendVariable+
		", or +ALL)")
	cli.Register(c, "backend", completeBackend)
}

// Set reads the value of the flag.
func (f *DeviceFlag) Set(s string) error {
	b, err := registry.ParseBackend(s)
	f.given = &b
	return err
}

// String returns the value of the flag, or "" if it is not set.
func (f *DeviceFlag) String() string {
	if f.given == nil {
		return ""
	}
	return f.given.String()
}

// Type returns the kind of value that the help shows.
func (f *DeviceFlag) Type() string { return "string" }

// Backend returns the requested devices: those of the flag, or else of the environment. It returns an error for a named
// device without kernels.
func (f *DeviceFlag) Backend() (registry.Backend, error) {
	var b registry.Backend
	if f.given != nil {
		b = *f.given
	} else if s := os.Getenv(backendVariable); s != "" {
		var err error
		if b, err = registry.ParseBackend(s); err != nil {
			return b, fmt.Errorf("$%s: %w", backendVariable, err)
		}
	}
	return b, b.Check()
}
