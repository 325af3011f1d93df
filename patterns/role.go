package patterns

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// Role is what an input of a match is to an op that chooses experts for tokens, sends tokens to experts, or attends.
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

// setRole gives an input of the match its role, unless it has one.
func (m *Match) setRole(v *onnx.Value, what Role) {
	if m.Roles == nil {
		m.Roles = map[*onnx.Value]Role{}
	}
	if m.Roles[v] == NoRole {
		m.Roles[v] = what
	}
}

// setRoles gives the values that a pattern's target hands to its main op their roles.
func (m *Match) setRoles(s *match.Attempt) {
	call := s.Pattern.Target.Main
	if call.Domain != "mojo" {
		return
	}
	for i, what := range RolesOf(call.Op) {
		if i < len(call.Args) {
			m.setRoleOf(s, call.Args[i], what)
		}
	}
}

// setRoleOf gives the role to what an operand is made of: the first arguments of calls, or all those of a Concat.
func (m *Match) setRoleOf(s *match.Attempt, e notation.Expr, what Role) {
	switch e := e.(type) {
	case *notation.Name:
		if v := s.Slots[e.Slot].Value; v != nil {
			m.setRole(v, what)
		}
	case *notation.TargetCall:
		if what == Weights && e.Op == "GatherElements" {
			what = Gates
		}
		for i, a := range e.Args {
			if i == 0 || e.Op == "Concat" {
				m.setRoleOf(s, a, what)
			}
		}
	}
}
