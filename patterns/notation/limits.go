package notation

// Bounds on pattern files, which may come from anybody. A short text can stand for any number of nodes: views are
// copied where they are used, and names are followed wherever they are read. The built-in patterns are below all of
// them.
const (
	maxNesting    = 200     // of parentheses
	maxNames      = 1000    // of a list
	maxStatements = 4096    // of a pattern
	maxArgs       = 12      // of a product or sum, whose subsets are tried
	maxOperators  = 1000    // of a condition
	maxMade       = 1 << 18 // expressions of a file, with those of views
	maxPattern    = 1 << 18 // nodes of a pattern, with its names followed; the largest built-in one has 109,936
	maxFollowed   = 1 << 20 // these of all patterns of a file
)

// nested runs f one level deeper.
func (p *parser) nested(f func()) {
	if p.depth++; p.depth > maxNesting {
		p.failf(p.peek().pos, "it is nested more than %d deep", maxNesting)
	}
	f()
	p.depth--
}

// count counts an expression that is made.
func (p *parser) count(pos Pos) {
	if p.made++; p.made > maxMade {
		p.failf(pos, "the file makes more than %d expressions, with its views written out", maxMade)
	}
}

// bound fails for a pattern that has too many nodes. Shared expressions and statements are counted once, and count for
// all places that have them.
func (p *parser) bound(pat *Pattern) {
	sizes := map[Expr]int{}
	var size func(e Expr) int
	sum := func(n int, list ...Expr) int {
		for _, e := range list {
			n = min(n+size(e), maxPattern+1)
		}
		return n
	}
	size = func(e Expr) int {
		switch e.(type) {
		case *Name, *Call, *Alternatives:
		default:
			return 1
		}
		if n, ok := sizes[e]; ok {
			return n
		}
		n := 1
		switch e := e.(type) {
		case *Name:
			if e.Def != nil {
				n = sum(1, e.Def.Expr)
			}
		case *Call:
			n = sum(1, e.Args...)
		case *Alternatives:
			for _, b := range e.Branches {
				n = sum(n, b.Expr)
			}
		}
		sizes[e] = n
		return n
	}
	largest := 0
	for _, s := range pat.Body {
		if largest = max(largest, size(s.Expr)); largest > maxPattern {
			p.failf(s.pos, "pattern %s has more than %d nodes here, with its names followed", pat.Name, maxPattern)
		}
	}
	if p.followed += largest; p.followed > maxFollowed {
		p.failf(pat.Pos, "the patterns up to %s have more than %d nodes, with their names followed", pat.Name,
			maxFollowed)
	}
}
