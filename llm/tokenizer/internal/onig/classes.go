package onig

import (
	"slices"
	"sort"
	"strings"
)

// classes partitions all characters into classes that no set of a pattern distinguishes.
type classes struct {
	starts []rune     // the start of each interval
	class  []int32    // the class of each interval
	low    [2048]rune // the letters of the first characters
}

// firstLetter represents class 0. The letters after it have no case and no meaning in patterns.
const firstLetter = '\u4e00'

// newClasses partitions characters by sets.
func newClasses(sets []set) *classes {
	type edge struct {
		at  rune
		set int
	}
	var edges []edge
	for i, s := range sets {
		for _, p := range s {
			edges = append(edges, edge{p.lo, i}, edge{p.hi + 1, i})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.at - b.at) })
	c := &classes{}
	in := make([]byte, len(sets))
	known := map[string]int32{}
	record := func(at rune) {
		id, ok := known[string(in)]
		if !ok {
			id = int32(len(known))
			known[string(in)] = id
		}
		c.starts, c.class = append(c.starts, at), append(c.class, id)
	}
	at := rune(0)
	for _, e := range edges {
		if e.at > at {
			record(at)
			at = e.at
		}
		in[e.set] ^= 1
	}
	record(at)
	for r := range c.low {
		c.low[r] = c.search(rune(r))
	}
	return c
}

// letter returns the character that represents the class of r.
func (c *classes) letter(r rune) rune {
	if int(r) < len(c.low) {
		return c.low[r]
	}
	return c.search(r)
}

func (c *classes) search(r rune) rune {
	i := sort.Search(len(c.starts), func(i int) bool { return c.starts[i] > r })
	return firstLetter + c.class[i-1]
}

// expression writes a set of the pattern as a set of letters.
func (c *classes) expression(s set) string {
	in := map[rune]bool{}
	for i, start := range c.starts {
		if s.contains(start) {
			in[firstLetter+c.class[i]] = true
		}
	}
	if len(in) == 0 {
		return "(?!)"
	}
	var letters []rune
	for r := range in {
		letters = append(letters, r)
	}
	slices.Sort(letters)
	if len(letters) == 1 {
		return string(letters)
	}
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; i < len(letters); {
		k := i
		for k+1 < len(letters) && letters[k+1] == letters[k]+1 {
			k++
		}
		b.WriteRune(letters[i])
		if k > i {
			b.WriteByte('-')
			b.WriteRune(letters[k])
		}
		i = k + 1
	}
	b.WriteByte(']')
	return b.String()
}
