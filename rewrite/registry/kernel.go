// Package registry lists the kernels that can be requested by id, and reports which of them can be used.
package registry

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
)

// Auto requests every available kernel, and None no kernel.
const (
	Auto = "auto"
	None = "none"
)

// A Kernel is a family of fused kernels that can be requested by its id.
type Kernel struct {
	// ID names the kernel, for example "cpu_fused_rmsnorm".
	ID string
	// Device is the kind of device that it runs on, for example "cpu", or DeviceAny for a standard op, which any
	// runtime has.
	Device string
	// Summary describes the fused nodes in a few words.
	Summary string
	// Ops are the fused ops that it implements. A kernel for a standard op has no Ops: it accepts the matches of
	// Patterns.
	Ops      []string
	Patterns []string
	// Available says why the kernel cannot be used in the environment, or returns nil.
	Available func(*Environment) error
}

// DeviceAny is the device of kernels that need no library of this toolkit. No backend excludes them.
const DeviceAny = "any"

// An Environment lets kernels determine their availability.
type Environment struct {
	libraries map[fused.Device]func() (string, error)
}

// Library returns the path of the library with the kernels for a device, and searches for it only once.
func (e *Environment) Library(d fused.Device) (string, error) { return e.libraries[d]() }

// NewEnvironment returns an environment whose kernels are in the library, a file or its folder; "" uses the search path
// of fused.FindLibrary.
func NewEnvironment(library string) *Environment {
	e := &Environment{libraries: map[fused.Device]func() (string, error){}}
	for _, d := range fused.Devices() {
		e.libraries[d] = sync.OnceValues(func() (string, error) { return d.FindLibrary(library) })
	}
	return e
}

// An UnavailableError reports that a kernel was requested by name and cannot be used.
type UnavailableError struct {
	ID  string
	Err error
}

// Error names the kernel and the problem.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("kernel %s is not available: %v", e.ID, e.Err)
}

// Unwrap returns the problem.
func (e *UnavailableError) Unwrap() error { return e.Err }

// An UnknownKernelError reports that no kernel has the id.
type UnknownKernelError struct {
	ID    string
	Known []string
}

// Error lists the known ids.
func (e *UnknownKernelError) Error() string {
	return fmt.Sprintf("unknown kernel %q%s; there are %s", e.ID, english.Suggestion(e.ID, e.Known),
		strings.Join(e.Known, ", "))
}

// registry holds the kernels in the order in which they are applied and reported: the catalogue's, then those for
// standard ops.
var registry = mustRegister(catalogue(false), &Kernel{ID: "onnx_layernorm", Device: DeviceAny,
	Summary:  "LayerNorm, by LayerNormalization of the standard (opset 17)",
	Patterns: []string{"LayerNorm"}}, &Kernel{ID: "onnx_softmax", Device: DeviceAny,
	Summary:  "softmax of scores less the greatest one, by Softmax of the standard",
	Patterns: []string{"ShiftedSoftmax"}}, &Kernel{ID: "onnx_transpose", Device: DeviceAny,
	Summary:  "keys of attention transposed as they are, by Transpose of the standard",
	Patterns: []string{"KeyTranspose"}},
)

// A KernelReport says whether a kernel can be used and how many sites it replaced.
type KernelReport struct {
	ID        string   `json:"id"`
	Device    string   `json:"device"`
	Ops       []string `json:"ops"`
	Available bool     `json:"available"`
	Reason    string   `json:"reason,omitempty"`
	Selected  bool     `json:"selected"`
	Sites     int      `json:"sites"`

	Unnamed bool `json:"-"` // the device must be named, and the backend does not name it
	Met     bool `json:"-"` // there is a site for it, if it were available and requested
}

// catalogue returns a kernel for each family of fused ops and each device with kernels for some of them: for families
// found in models, or for stored ones.
func catalogue(stored bool) []*Kernel {
	var list []*Kernel
	for _, device := range fused.Devices() {
		for _, family := range fused.Families() {
			k := &Kernel{ID: fmt.Sprintf("%s_fused_%s", device, family.Name), Device: string(device),
				Summary:   family.Summary,
				Available: func(e *Environment) error { _, err := e.Library(device); return err }}
			for _, op := range fused.OpsOf(family, device) {
				k.Ops = append(k.Ops, op.Name)
			}
			if k.Ops != nil && family.Stored == stored {
				list = mustRegister(list, k)
			}
		}
	}
	return list
}

// Selected returns the report on a selected kernel.
func (k *Kernel) Selected() KernelReport {
	r := k.available()
	r.Selected = true
	return r
}

func (k *Kernel) available() KernelReport {
	return KernelReport{ID: k.ID, Device: k.Device, Ops: append([]string{}, k.Ops...), Available: true}
}

// needsNaming reports whether the kernel runs on a device that a backend must name.
func (k *Kernel) needsNaming() bool { return k.Device != string(fused.CPU) && k.Device != DeviceAny }

// Register adds a kernel after the built-in ones. It returns an error if the id is empty or taken, or if the catalogue
// lacks an op.
func Register(k *Kernel) error {
	r, err := register(registry, k)
	if err == nil {
		registry = r
	}
	return err
}

func register(list []*Kernel, k *Kernel) ([]*Kernel, error) {
	if k == nil || k.ID == "" || k.ID == Auto || k.ID == None || strings.ContainsAny(k.ID, ", \t") {
		return nil, fmt.Errorf("a kernel id must not contain commas or blanks, or be %q or %q", Auto, None)
	}
	if slices.ContainsFunc(list, func(other *Kernel) bool { return other.ID == k.ID }) {
		return nil, fmt.Errorf("kernel %q is registered twice", k.ID)
	}
	for _, op := range k.Ops {
		if fused.Lookup(op) == nil {
			return nil, fmt.Errorf("kernel %q implements the op %q, which is not in the catalogue", k.ID, op)
		}
	}
	return append(slices.Clip(list), k), nil
}

func mustRegister(list []*Kernel, kernels ...*Kernel) []*Kernel {
	for _, k := range kernels {
		var err error
		if list, err = register(list, k); err != nil {
			panic(err) // a mistake in a table of this program, found by any test
		}
	}
	return list
}

// ScanAllKernels lists the registered kernels, available or not, in the order they are applied.
func ScanAllKernels() []*Kernel { return slices.Clone(registry) }

// StoredKernels lists the kernels of ops that hold weights as stored. They are not registered: patterns do not find
// their sites, which the model's weights bring along.
func StoredKernels() []*Kernel { return catalogue(true) }

func Lookup(id string) (*Kernel, error) {
	var known []string
	for _, k := range registry {
		if k.ID == id {
			return k, nil
		}
		known = append(known, k.ID)
	}
	return nil, &UnknownKernelError{ID: id, Known: known}
}

// Choose returns the kernels in include, ranked by the backend, and a report on every registered one. Auto means all
// available kernels, None (or "") no kernel, and a comma-separated list of ids only those. With assume, the kernels of
// the CPU and of every device that the backend names count as available; ALL does not add devices. The error is an
// *UnknownKernelError, an *UnavailableError or a *DeviceError.
func Choose(include string, env *Environment, b Backend, assume bool) ([]*Kernel, []KernelReport, error) {
	chosen, reports, err := choose(include, env, b, func(k *Kernel) bool {
		return assume && (k.Device == "cpu" || k.Device == DeviceAny || b.Names(k.Device))
	})
	if err != nil {
		return nil, nil, err
	}
	return b.rank(strings.TrimSpace(include) == Auto, chosen, reports)
}

// choose returns the kernels in include, and a report on every registered one. Kernels for which assumed returns true
// are available. Auto includes kernels of devices other than the CPU only if the backend names the device, because a
// library does not show whether the device will exist.
func choose(include string, env *Environment, b Backend, assumed func(*Kernel) bool) ([]*Kernel, []KernelReport,
	error) {
	asked := map[string]bool{}
	include = strings.TrimSpace(include)
	auto := include == Auto
	if !auto && include != None {
		for _, id := range strings.Split(include, ",") {
			if id = strings.TrimSpace(id); id == "" {
				continue
			}
			if _, err := Lookup(id); err != nil {
				return nil, nil, err
			}
			asked[id] = true
		}
	}
	var chosen []*Kernel
	var reports []KernelReport
	for _, k := range registry {
		r := k.available()
		if auto && k.needsNaming() && !b.Names(k.Device) {
			device := strings.ToUpper(k.Device)
			r.Available, r.Unnamed = false, true
			r.Reason = fmt.Sprintf("the backend does not name %s: --backend +%s,CPU", device, device)
		} else if k.Available != nil && !assumed(k) {
			if err := k.Available(env); err != nil {
				if asked[k.ID] {
					return nil, nil, &UnavailableError{ID: k.ID, Err: err}
				}
				r.Available, r.Reason = false, err.Error()
			}
		}
		if asked[k.ID] || auto && r.Available {
			r.Selected = true
			chosen = append(chosen, k)
		}
		reports = append(reports, r)
	}
	return chosen, reports, nil
}
