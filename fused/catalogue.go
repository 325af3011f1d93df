package fused

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/attention"
	"github.com/mojo-patch/mojo-patch/fused/collective"
	"github.com/mojo-patch/mojo-patch/fused/gelu"
	"github.com/mojo-patch/mojo-patch/fused/glu"
	"github.com/mojo-patch/mojo-patch/fused/layernorm"
	"github.com/mojo-patch/mojo-patch/fused/linear"
	"github.com/mojo-patch/mojo-patch/fused/linearattention"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/qmoe"
	"github.com/mojo-patch/mojo-patch/fused/rmsnorm"
	"github.com/mojo-patch/mojo-patch/fused/rotary"
	"github.com/mojo-patch/mojo-patch/fused/router"
	"github.com/mojo-patch/mojo-patch/fused/sample"
)

// Folder is a folder of this one with ops that share code.
type Folder struct {
	Name string
	Ops  []*Op
}

// folders is the catalogue, in the order of the documentation.
var folders = []Folder{
	{"rmsnorm", rmsnorm.Ops},
	{"glu", glu.Ops},
	{"rotary", rotary.Ops},
	{"router", router.Ops},
	{"moe", moe.Ops},
	{"attention", attention.Ops},
	{"layernorm", layernorm.Ops},
	{"gelu", gelu.Ops},
	{"linearattention", linearattention.Ops},
	{"linear", linear.Ops},
	{"qmoe", qmoe.Ops},
	{"collective", collective.Ops},
	{"sample", sample.Ops},
}

var ops = func() (list []*Op) {
	for _, f := range folders {
		list = append(list, f.Ops...)
	}
	return list
}()

// Folders lists the folders of the ops in the order of the documentation.
func Folders() []Folder { return slices.Clone(folders) }

// Ops lists the fused ops in the order of the documentation.
func Ops() []*Op { return slices.Clone(ops) }

// Lookup returns the op with a name, or nil if there is none.
func Lookup(name string) *Op {
	for _, o := range ops {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// Families lists the families in the order of their first ops.
func Families() []*Family {
	var list []*Family
	for _, o := range ops {
		if !slices.Contains(list, o.Family) {
			list = append(list, o.Family)
		}
	}
	return list
}

// OpsOf lists the family's ops that have a kernel for the device.
func OpsOf(f *Family, d Device) []*Op {
	var list []*Op
	for _, o := range ops {
		if o.Family == f && slices.Contains(o.Devices, d) {
			list = append(list, o)
		}
	}
	return list
}
