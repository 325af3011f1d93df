package notation

import "sync/atomic"

// Pattern is one parsed pattern.
type Pattern struct {
	Name    string
	Pos     Pos      // of its first word
	Params  []string // the names in parentheses: the values that it is a function of
	Results []string // the names behind the arrow: the values that its target makes
	Anchors []string // ops that it is recognised by
	Body    []*Statement
	Where   []Condition // all must hold
	Target  Target      // what takes the place of a match

	// Slots numbers the names that an attempt to match binds, Tags those behind "as".
	Slots, Tags map[string]int

	stmts map[string]*Statement
}

// Root is the expression that a match of the pattern starts from: its first result.
func (pat *Pattern) Root() Expr {
	r := pat.Results[0]
	return &Name{Name: r, Slot: pat.Slots[r], Def: pat.stmts[r], Output: -1}
}

// Target is the right side of a pattern: the nodes that take the place of a match.
type Target struct {
	// Domain and Op name the main call: the first one of a domain other than the standard's, else the outermost.
	Domain, Op string

	Call *TargetCall // the outermost, whose outputs are the pattern's results
	Main *TargetCall // that of Domain and Op
}

// TargetCall is a node to be made. Its operands are names, numbers, lists of integers, wildcards (omitted inputs) and
// other calls.
type TargetCall struct {
	Domain, Op string // the domain is empty for the standard's
	Args       []Expr
	Attrs      []TargetAttr
	Function   *Definition // that it calls, if a pattern file defines it

	pos Pos
}

// TargetAttr is an attribute of a node to be made.
type TargetAttr struct {
	Name string
	Expr Cond // what it is computed from
}

// Statement gives names to the outputs of what an expression matches.
type Statement struct {
	Names []string
	Expr  Expr

	pos Pos
}

// Expr is a pattern of a value.
type Expr interface{ String() string }

type (
	// Name is a parameter, or a value that a statement defines.
	Name struct {
		Name   string
		Slot   int        // in Pattern.Slots
		Def    *Statement // of a defined value
		Output int        // its place among the names of Def, -1 where it is the only one

		id int
	}
	// Call is a node, or a built-in view.
	Call struct {
		Domain, Op string // the domain is empty for the standard's
		Attrs      []AttrPattern
		Optional   bool // Op?(…)
		Args       []Expr

		pos Pos
		id  int
	}
	// Number is a constant of one element that holds Value.
	Number struct{ Value float64 } // rounded to the constant's type
	// Ints is a constant list of these integers.
	Ints struct{ Values []int64 } // as many
	// Capture binds a constant of one element.
	Capture struct {
		Name string
		Slot int // in Pattern.Slots
	}
	// Wildcard is any value.
	Wildcard struct{}
	// Alternatives are expressions of which one must match.
	Alternatives struct {
		Branches []Branch // in the order that they are tried

		id int
	}
)

var expressions atomic.Int64

// identify gives an expression a number.
func identify(id *int) { *id = int(expressions.Add(1)) }

// ID returns a number that tells a name, a call or alternatives in a pattern from all others. It is small, so that
// tables can be indexed by it, and 0 for other expressions.
func ID(e Expr) int {
	switch e := e.(type) {
	case *Call:
		return e.id
	case *Name:
		return e.id
	case *Alternatives:
		return e.id
	}
	return 0
}

// Branch is one of several alternatives.
type Branch struct {
	Expr Expr
	As   string // the name after "as", "" without one
	Tag  int    // its number in Pattern.Tags, -1 without one
}

// AttrPattern is a demand on the attribute Name: that it is a number, a text or a list of integers, whichever is set,
// or one to be captured.
type AttrPattern struct {
	Name    string
	Number  *float64
	Text    *string // a string, or the name of a type
	Ints    []int64
	As      string // the name that captures it
	Capture int    // its place in Pattern.Slots, -1 without one
}
