package site

import "github.com/mojo-patch/mojo-patch/onnx"

// Role is what an input of a site is to an op that chooses experts for tokens, sends tokens to experts, or attends.
type Role int

// The roles. NoRole is that of inputs of other ops, and of numbers that shapes are made of.
const (
	NoRole     Role = iota
	Tokens          // a row for each token
	Weights         // of a token's experts
	IDs             // the numbers of a token's experts
	Gates           // the weights of all experts, zero for those that a token does not go to
	Matrix          // of an expert, or of all
	Bias            // of an expert, or of all
	Logits          // of a router, one for each expert
	Correction      // a bias that the choice alone reads
	Base            // rows that what the experts make is added to
	Queries         // of attention
	Keys            // of attention, new or old
	Values          // of attention, new or old
	KeyExists       // 0 for keys of padding
	KeyHidden       // not 0 for keys of padding
	KeyLengths      // 0 for keys of padding, which stands behind prompts alone
	ScoreBias       // added to the scores of attention
	ShapeAlone      // an input of the model as long as what the match reads: its elements are not read
)

// RolesOf returns the roles of the inputs of a fused op, in their order, nil for most ops.
func RolesOf(op string) []Role { return roles[op] }

var roles = map[string][]Role{
	"MoE":        {Tokens, Weights, IDs, Matrix, Matrix, Bias, Bias},
	"TopKRouter": {Logits, Correction},
}

// Roles are the roles of the inputs that have one.
type Roles map[*onnx.Value]Role

// Set gives an input its role, unless it has one.
func (r *Roles) Set(v *onnx.Value, what Role) {
	if *r == nil {
		*r = Roles{}
	}
	if (*r)[v] == NoRole {
		(*r)[v] = what
	}
}
