package notation

import "sync/atomic"

// A Pattern is one parsed pattern.
type Pattern struct {
	Name    string
	Pos     Pos      // of its first word
	Params  []string // the names in parentheses: the values that it is a function of
	Results []string // the names after the arrow: the values that its target computes
	Anchors []string // ops that it is recognized by
	Body    []*Statement
	Where   []Condition // all must hold
	Target  Target      // replaces a match

	// Slots numbers the names that an attempt to match binds, Tags the names after "as".
	Slots, Tags map[string]int

	stmts map[string]*Statement
}

// Root returns the expression that a match of the pattern starts from: its first result.
func (pat *Pattern) Root() Expr {
	r := pat.Results[0]
	return &Name{Name: r, Slot: pat.Slots[r], Def: pat.stmts[r], Output: -1}
}

// A Target is the right side of a pattern: the nodes that replace a match.
type Target struct {
	// Domain and Op name the main call: the first one outside the standard's domain, or else the outermost.
	Domain, Op string

	Call *TargetCall // the outermost call, whose outputs are the pattern's results
	Main *TargetCall // the call named by Domain and Op
}

// A TargetCall is a node to create. Its operands are names, numbers, lists of integers, wildcards (omitted inputs) and
// other calls.
type TargetCall struct {
	Domain, Op string // the standard domain is empty
	Args       []Expr
	Attrs      []TargetAttr
	Function   *Definition // the function that it calls, if a pattern file defines it

	pos Pos
}

// A TargetAttr is an attribute of a node to create.
type TargetAttr struct {
	Name string
	Expr Cond // its value
}

// A Statement names the outputs of an expression.
type Statement struct {
	Names []string
	Expr  Expr

	pos Pos
}

// An Expr is a pattern of a value.
type Expr interface{ String() string }

type (
	// Name is a parameter, or a value that a statement defines.
	Name struct {
		Name   string
		Slot   int        // in Pattern.Slots
		Def    *Statement // of a defined value
		Output int        // its index among the names of Def, -1 if there is only one

		id int
	}
	// Call is a node, or a built-in view.
	Call struct {
		Domain, Op string // the standard domain is empty
		Attrs      []AttrPattern
		Optional   bool // Op?(…)
		Args       []Expr

		pos Pos
		id  int
	}
	// Number is a constant of one element that equals Value.
	Number struct{ Value float64 } // rounded to the constant's type
	// Ints is a constant list of exactly these integers.
	Ints struct{ Values []int64 } // as many
	// Capture binds a constant of one element.
	Capture struct {
		Name string
		Slot int // in Pattern.Slots
	}
	// Wildcard matches any value.
	Wildcard struct{}
	// Alternatives are expressions, one of which must match.
	Alternatives struct {
		Branches []Branch // in the order of attempts

		id int
	}
)

var expressions atomic.Int64

// identify numbers an expression.
func identify(id *int) { *id = int(expressions.Add(1)) }

// ID returns a number that identifies a name, a call or alternatives of a pattern. It is small, so that it can index
// tables; it is 0 for other expressions.
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

// A Branch is one of several alternatives.
type Branch struct {
	Expr Expr
	As   string // the name after "as", "" without one
	Tag  int    // its index in Pattern.Tags, -1 without one
}

// An AttrPattern is a demand on the attribute Name: that it equals the number, text or list of integers that is set, or
// that it is captured.
type AttrPattern struct {
	Name    string
	Number  *float64
	Text    *string // a string, or the name of a type
	Ints    []int64
	As      string // the name that captures it
	Capture int    // its index in Pattern.Slots, -1 without one
}
