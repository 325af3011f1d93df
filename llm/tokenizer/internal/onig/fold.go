package onig

import (
	"fmt"
	"strings"
	"unicode"
)

// several are the characters that equal several others without case (status F in CaseFolding.txt), with the others.
var several = func() map[rune]string {
	m := map[rune]string{
		'ß': "ss", 'ẞ': "ss", 'ŉ': "ʼn", 'ǰ': "ǰ", 'ΐ': "ΐ", 'ΰ': "ΰ", 'և': "եւ", 'ẖ': "ẖ", 'ẗ': "ẗ", 'ẘ': "ẘ",
		'ẙ': "ẙ",
		'ẚ': "aʾ", 'İ': "i̇", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl", 'ﬅ': "st", 'ﬆ': "st", 'ﬓ': "մն",
		'ﬔ': "մե", 'ﬕ': "մի", 'ﬖ': "վն", 'ﬗ': "մխ",
	}
	// Greek with breathings, accents and iota subscripts: their equivalents are not listed.
	for r := rune(0x1F50); r <= 0x1FFC; r++ {
		if r <= 0x1F56 || r >= 0x1F80 {
			m[r] = ""
		}
	}
	return m
}()

// ignoringCase returns all characters that equal one of s without case.
func ignoringCase(s set) (set, error) {
	if len(intersection(s, properties()["l"])) == len(properties()["l"]) { // all letters, nothing to add
		return s, nil
	}
	for r := range several {
		if s.contains(r) {
			return nil, fmt.Errorf("%q, which equals several characters without case, is not supported under (?i)", r)
		}
	}
	var more []span
	for _, p := range intersection(s, cased()) {
		for r := p.lo; r <= p.hi; r++ {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				more = append(more, span{f, f})
			}
		}
	}
	return union(s, normal(more)), nil
}

// cased are the characters that SimpleFold may change.
func cased() set {
	p := properties()
	return union(p["l"], p["m"], p["nl"], p["so"])
}

// checkFolds rejects consecutive letters of a case-insensitive pattern if part of them equals one character.
func checkFolds(text string) error {
	lower := strings.ToLower(text)
	for r, equal := range several {
		if equal != "" && strings.Contains(lower, equal) {
			return fmt.Errorf("%q, which equals %q without case, is not supported under (?i)", equal, r)
		}
	}
	return nil
}
