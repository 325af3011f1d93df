package onig

import (
	"slices"
	"unicode"
)

// span is an inclusive interval of code points.
type span struct{ lo, hi rune }

// set is a set of code points: sorted spans with gaps between them.
type set []span

var anything = set{{0, unicode.MaxRune}}

func single(r rune) set { return set{{r, r}} }

// normal sorts spans and joins adjacent ones.
func normal(spans []span) set {
	slices.SortFunc(spans, func(a, b span) int { return int(a.lo - b.lo) })
	var out set
	for _, s := range spans {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
		} else {
			out = append(out, s)
		}
	}
	return out
}

func union(sets ...set) set { return normal(slices.Concat(sets...)) }

func (s set) complement() set {
	var out set
	next := rune(0)
	for _, p := range s {
		if next < p.lo {
			out = append(out, span{next, p.lo - 1})
		}
		next = p.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{next, unicode.MaxRune})
	}
	return out
}

func intersection(a, b set) set { return union(a.complement(), b.complement()).complement() }

func (s set) contains(r rune) bool {
	_, found := slices.BinarySearchFunc(s, r, func(p span, r rune) int {
		switch {
		case p.hi < r:
			return -1
		case p.lo > r:
			return 1
		}
		return 0
	})
	return found
}

func fromTables(tables ...*unicode.RangeTable) set {
	var spans []span
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			spans = append(spans, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			spans = append(spans, span{r, r})
		}
	}
	for _, t := range tables {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return normal(spans)
}
