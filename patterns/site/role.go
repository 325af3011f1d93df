package site

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Roles holds the roles of the inputs that have one.
type Roles map[*onnx.Value]fused.Role

// Set sets the role of an input, unless it has one.
func (r *Roles) Set(v *onnx.Value, what fused.Role) {
	if *r == nil {
		*r = Roles{}
	}
	if (*r)[v] == fused.NoRole {
		(*r)[v] = what
	}
}
