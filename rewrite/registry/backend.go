package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
)

// DeviceREF is the device without fused kernels: an op runs by its definition in standard ops. The built-in evaluator
// runs such a model.
const DeviceREF = "REF"

// AllDevices is the name for every device with fused kernels in a backend.
const AllDevices = "ALL"

// devices are the known devices with fused kernels, in the order of ALL.
var devices = []string{"CUDA", "NPU", "CPU"}

// KnownDevices lists the device names for a backend.
func KnownDevices() []string { return append(slices.Clone(devices), DeviceREF) }

// A Backend is a list of devices in order of priority. A device that it names must have a usable kernel; a device that
// only ALL includes is skipped without one. The zero Backend is "+ALL".
type Backend struct {
	listed []string // devices as written, including ALL
}

// ParseBackend parses a backend from the command line or $MOJO_BACKEND: "+" and device names separated by commas, in
// any case, for example "+CUDA,CPU". Each device may have its own "+". ALL includes every device with fused kernels.
// REF has no kernels and must be named.
func ParseBackend(s string) (Backend, error) {
	const form = `write "+" and devices separated by commas, for example "+CPU" or "+ALL,REF"`
	list, ok := strings.CutPrefix(strings.TrimSpace(s), "+")
	if !ok {
		return Backend{}, fmt.Errorf("backend %q does not begin with +: %s", s, form)
	}
	var b Backend
	for _, name := range strings.Split(list, ",") {
		name = strings.ToUpper(strings.TrimPrefix(strings.TrimSpace(name), "+"))
		switch {
		case name == "":
			return Backend{}, fmt.Errorf("backend %q has an empty name: %s", s, form)
		case name != AllDevices && !slices.Contains(KnownDevices(), name):
			return Backend{}, fmt.Errorf(
				"backend %q: unknown device %q; the devices are %s, and %s for all with fused kernels", s, name,
				strings.Join(KnownDevices(), ", "), AllDevices)
		case slices.Contains(b.listed, name):
			return Backend{}, fmt.Errorf("backend %q names %s twice", s, name)
		}
		b.listed = append(b.listed, name)
	}
	return b, nil
}

// String formats the backend for ParseBackend.
func (b Backend) String() string {
	if len(b.listed) == 0 {
		return "+" + AllDevices
	}
	return "+" + strings.Join(b.listed, ",")
}

// Devices lists the devices in order of priority. ALL is replaced by its devices, except those named elsewhere.
func (b Backend) Devices() []string {
	if len(b.listed) == 0 {
		return slices.Clone(devices)
	}
	var list []string
	for _, name := range b.listed {
		if name != AllDevices {
			list = append(list, name)
			continue
		}
		for _, d := range devices {
			if !b.Names(d) {
				list = append(list, d)
			}
		}
	}
	return list
}

// Names reports whether the device itself is named. Then it must have a kernel.
func (b Backend) Names(device string) bool { return slices.Contains(b.listed, strings.ToUpper(device)) }

// PassedOver lists the devices included by ALL that have no available kernel, given the reports of all kernels. It
// excludes the CPU if it has a registered kernel: every machine has a CPU, so its kernels report problems separately.
func (b Backend) PassedOver(reports []KernelReport) []string {
	return slices.DeleteFunc(b.Devices(), func(d string) bool {
		return b.Names(d) || slices.ContainsFunc(reports, func(r KernelReport) bool {
			return strings.EqualFold(r.Device, d) && (r.Available || d == "CPU")
		})
	})
}

// A DeviceError reports that a named device has no usable kernel.
type DeviceError struct {
	Device string
	Err    error
}

// Error names the device and the problem.
func (e *DeviceError) Error() string { return fmt.Sprintf("no kernel for %s: %v", e.Device, e.Err) }

// Unwrap returns the problem.
func (e *DeviceError) Unwrap() error { return e.Err }

// Check returns a *DeviceError if a named device has no registered kernel.
func (b Backend) Check() error {
	for _, d := range b.listed {
		if have := registeredDevices(); d != AllDevices && d != DeviceREF && !slices.Contains(have, d) {
			return &DeviceError{d, fmt.Errorf("no kernel is registered; there are kernels for "+
				"%s", strings.Join(have, ", "))}
		}
	}
	return nil
}

func registeredDevices() []string {
	var list []string
	for _, k := range registry {
		if d := strings.ToUpper(k.Device); k.Device != DeviceAny && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// definition returns the kernel of the device REF: the fused node runs by its definition, and no kernel overrides it.
func definition() *Kernel {
	return &Kernel{ID: "definition", Device: strings.ToLower(DeviceREF), Ops: EveryOp(),
		Summary: "the op's definition in standard ops"}
}

func EveryOp() (names []string) {
	for _, op := range fused.Ops() {
		names = append(names, op.Name)
	}
	return names
}

func IsDefinition(k *Kernel) bool { return k != nil && strings.EqualFold(k.Device, DeviceREF) }

// rank selects the kernels of the backend's devices from the chosen ones, in the order of priority, and marks the
// others in the reports.
func (b Backend) rank(auto bool, chosen []*Kernel, reports []KernelReport) ([]*Kernel, []KernelReport, error) {
	if !auto && len(chosen) == 0 {
		return nil, reports, nil // no kernels were requested
	}
	if err := b.Check(); err != nil {
		return nil, nil, err
	}
	var ranked []*Kernel
	order := b.Devices()
	for _, d := range order {
		before := len(ranked)
		if d == DeviceREF && auto {
			k := definition()
			ranked = append(ranked, k)
			reports = append(reports, k.Selected())
		}
		for _, k := range chosen {
			if strings.EqualFold(k.Device, d) && !(auto && strands(k, ranked)) {
				ranked = append(ranked, k)
			}
		}
		if auto && b.Names(d) && len(ranked) == before {
			return nil, nil, &DeviceError{d, b.lacking(d, reports)}
		}
	}
	for _, k := range chosen {
		if k.Device == DeviceAny {
			ranked = append(ranked, k)
		}
		if slices.Contains(ranked, k) {
			continue
		}
		if !auto {
			return nil, nil, &UnavailableError{ID: k.ID,
				Err: fmt.Errorf("it runs on %s, which is not in the backend %s", strings.ToUpper(k.Device), b)}
		}
		for i := range reports {
			if reports[i].ID == k.ID {
				reports[i].Selected = false
			}
		}
	}
	return ranked, reports, nil
}

// strands reports whether k is a CPU kernel whose ops no ranked kernel covers, although some ranked kernels run on a
// device with its own memory. Between nodes on that device, a node on the CPU costs copies of all its inputs and
// outputs.
func strands(k *Kernel, ranked []*Kernel) bool {
	device, covered := false, false
	for _, other := range ranked {
		device = device || other.needsNaming() && !IsDefinition(other)
		covered = covered || slices.ContainsFunc(other.Ops, func(op string) bool { return slices.Contains(k.Ops, op) })
	}
	return device && !covered && strings.EqualFold(k.Device, string(fused.CPU))
}

// lacking returns the reason of the first unavailable kernel of a device.
func (b Backend) lacking(device string, reports []KernelReport) error {
	for _, r := range reports {
		if strings.EqualFold(r.Device, device) && r.Reason != "" {
			return errors.New(r.Reason)
		}
	}
	return errors.New("no kernel can be used")
}
