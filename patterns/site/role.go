package site

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Role is the role of a site's input for an op that chooses experts, computes experts, or attends.
type Role int

// The roles. NoRole is for inputs of other ops, and for numbers that become shapes.
const (
	NoRole     Role = iota
	Tokens          // a row for each token
	Weights         // of a token's experts
	IDs             // the numbers of a token's experts
	Gates           // the weights of all experts, zero for those that a token does not go to
	Matrix          // of an expert, or of all
	Bias            // of an expert, or of all
	Logits          // of a router, one for each expert
	Correction      // a bias that only affects the choice
	Base            // rows that the experts' results are added to
	Queries         // of attention
	Keys            // of attention, new or old
	Values          // of attention, new or old
	KeyExists       // 0 for keys of padding
	KeyHidden       // not 0 for keys of padding
	KeyLengths      // 0 for keys of padding, which only follows prompts
	ScoreBias       // added to the scores of attention
	ShapeAlone      // an input of the model with a dimension of the match: only its shape is read
)

// RolesOf returns the roles of the inputs of a fused op, in order, nil for most ops.
func RolesOf(op string) []Role { return roles[op] }

var roles = map[string][]Role{
	fused.MoEName:        {Tokens, Weights, IDs, Matrix, Matrix, Bias, Bias},
	fused.TopKRouterName: {Logits, Correction},
}

// Roles holds the roles of the inputs that have one.
type Roles map[*onnx.Value]Role

// Set sets the role of an input, unless it has one.
func (r *Roles) Set(v *onnx.Value, what Role) {
	if *r == nil {
		*r = Roles{}
	}
	if (*r)[v] == NoRole {
		(*r)[v] = what
	}
}
