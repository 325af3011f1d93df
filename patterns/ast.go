package patterns

// Pattern is one parsed pattern.
type Pattern struct {
	Name    string
	Pos     Pos
	Params  []string
	Results []string
	Anchors []string
	Target  Target

	form *goForm // of a pattern that has no text

	stmts map[string]*stmt
	where []cond // all must hold
	slots map[string]int
	tags  map[string]int // index of each "as" name
	roots map[string]bool
}

// Target is the right side of a pattern: the nodes that take the place of a match.
type Target struct {
	// Domain and Op name the main call: the first one of a domain other than the standard's, else the outermost.
	Domain, Op string

	call *targetCall // the outermost, whose outputs are the pattern's results
	main *targetCall
}

// String writes the target as in a pattern file.
func (t Target) String() string { return t.call.String() }

// targetCall is a node to be made. Its operands are names, numbers, lists of integers, wildcards (omitted inputs) and other
// calls.
type targetCall struct {
	domain, op string
	args       []expr
	attrs      []targetAttr
	pos        Pos
	function   *definition // that it calls, if a pattern file defines it
}

type targetAttr struct {
	name string
	expr condExpr
}

type stmt struct {
	pos   Pos
	names []string
	expr  expr
}

// expr is a pattern of a value.
type expr interface{ String() string }

type (
	// nameExpr is a parameter, or a value that a statement defines (def is set then, and output is its place).
	nameExpr struct {
		name   string
		slot   int
		def    *stmt
		output int
	}
	// callExpr is a node.
	callExpr struct {
		domain, op string
		attrs      []attrPat
		optional   bool
		args       []expr
		pos        Pos
	}
	// numberExpr is a constant of one element.
	numberExpr struct{ value float64 }
	// intsExpr is a constant list of integers.
	intsExpr struct{ values []int64 }
	// captureExpr binds a constant of one element.
	captureExpr struct {
		name string
		slot int
	}
	wildcardExpr struct{}
	altExpr      struct{ branches []branch }
)

type branch struct {
	expr expr
	tag  int // index of the name after "as", -1 without one
}

// attrPat is a demand on an attribute: exactly one of the fields is used.
type attrPat struct {
	name    string
	number  *float64
	text    *string
	ints    []int64
	capture int // slot, -1 without one
}
