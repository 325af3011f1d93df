package notation

// Bounds on pattern files, which may be hostile. A short text can mean any number of nodes: views are copied at each
// use, and names are followed at each use. The built-in patterns are below all bounds.
const (
	maxNesting    = 200     // of parentheses
	maxNames      = 1000    // in a list
	maxStatements = 4096    // in a pattern
	maxArgs       = 12      // of a product or sum, all subsets of which are tried
	maxOperators  = 1000    // in a condition
	maxMade       = 1 << 18 // expressions of a file, with views expanded
	maxPattern    = 1 << 18 // nodes of a pattern, with names followed; the largest built-in one has 109,936
	maxFollowed   = 1 << 20 // the same for all patterns of a file
)

// nested runs f one level deeper.
func (p *parser) nested(f func()) {
	if p.depth++; p.depth > maxNesting {
		p.failf(p.peek().pos, "it is nested more than %d deep", maxNesting)
	}
	f()
	p.depth--
}

// count counts a created expression.
func (p *parser) count(pos Pos) {
	if p.made++; p.made > maxMade {
		p.failf(pos, "the file makes more than %d expressions after its views are expanded", maxMade)
	}
}

// bound fails if a pattern has too many nodes. The size of a shared expression or statement is computed once, and
// counts at every use.
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
			p.failf(s.pos, "pattern %s has more than %d nodes here after its names are expanded", pat.Name, maxPattern)
		}
	}
	if p.followed += largest; p.followed > maxFollowed {
		p.failf(pat.Pos, "the patterns up to %s have more than %d nodes after their names are expanded", pat.Name,
			maxFollowed)
	}
}
