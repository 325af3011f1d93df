package notation

// Pattern is one parsed pattern.
type Pattern struct {
	Name    string
	Pos     Pos
	Params  []string
	Results []string
	Anchors []string
	Target  Target

	stmts map[string]*Statement
	Where []Condition // all must hold
	Slots map[string]int
	Tags  map[string]int // index of each "as" name
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
	Main *TargetCall
}

// String writes the target as in a pattern file.
func (t Target) String() string { return t.Call.String() }

// TargetCall is a node to be made. Its operands are names, numbers, lists of integers, wildcards (omitted inputs) and other
// calls.
type TargetCall struct {
	Domain, Op string
	Args       []Expr
	Attrs      []TargetAttr
	pos        Pos
	Function   *Definition // that it calls, if a pattern file defines it
}

type TargetAttr struct {
	Name string
	Expr Cond
}

type Statement struct {
	pos   Pos
	names []string
	Expr  Expr
}

// Expr is a pattern of a value.
type Expr interface{ String() string }

type (
	// Name is a parameter, or a value that a statement defines (def is set then, and output is its place).
	Name struct {
		Name   string
		Slot   int
		Def    *Statement
		Output int
	}
	// Call is a node.
	Call struct {
		Domain, Op string
		Attrs      []AttrPattern
		Optional   bool
		Args       []Expr
		pos        Pos
	}
	// Number is a constant of one element.
	Number struct{ Value float64 }
	// Ints is a constant list of integers.
	Ints struct{ Values []int64 }
	// Capture binds a constant of one element.
	Capture struct {
		Name string
		Slot int
	}
	Wildcard     struct{}
	Alternatives struct{ Branches []branch }
)

type branch struct {
	Expr Expr
	Tag  int // index of the name after "as", -1 without one
}

// AttrPattern is a demand on an attribute: exactly one of the fields is used.
type AttrPattern struct {
	Name    string
	Number  *float64
	Text    *string
	Ints    []int64
	Capture int // slot, -1 without one
}
