package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer changes text before it is split.
type normalizer func(string) string

// normalForm gives the normalizer of a Unicode normalization form.
func normalForm(form norm.Form) normalizer {
	return func(text string) string {
		if manyMarks(text) {
			return normalizeMarks(form, text)
		}
		return form.String(text)
	}
}

var forms = map[string]normalizer{
	"NFC": normalForm(norm.NFC), "NFD": normalForm(norm.NFD), "NFKC": normalForm(norm.NFKC), "NFKD": normalForm(norm.NFKD),
}

// manyMarks says whether text has so many marks in a row that package norm would put a U+034F among them (Stream-Safe Text Format,
// at 30 of them), which is not part of the normalization forms. One character decomposes into four at most.
func manyMarks(text string) bool {
	n := 0
	for _, r := range text {
		if r < 0x300 || !unicode.Is(unicode.M, r) {
			n = 0
		} else if n++; n > 6 {
			return true
		}
	}
	return false
}

// normalizeMarks normalizes by the definition: every character decomposed, marks sorted by combining class, then composed (Unicode Standard
// Annex 15). From package norm it takes the decomposition of single characters and the composition of pairs.
func normalizeMarks(form norm.Form, text string) string {
	decomposed := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decomposed = norm.NFKD
	}
	var runes []rune
	for _, r := range text {
		runes = append(runes, []rune(decomposed.String(string(r)))...)
	}
	for i := 0; i < len(runes); {
		k := i
		for k < len(runes) && combining(runes[k]) > 0 {
			k++
		}
		slices.SortStableFunc(runes[i:k], func(a, b rune) int { return combining(a) - combining(b) })
		i = k + 1
	}
	if form == norm.NFC || form == norm.NFKC {
		runes = compose(runes)
	}
	return string(runes)
}

func combining(r rune) int { return int(norm.NFD.PropertiesString(string(r)).CCC()) }

// compose joins starters with what follows and is not blocked.
func compose(runes []rune) []rune {
	var out []rune
	starter, before := -1, 0 // place of the last starter in out, and the class of the last one behind it
	for _, r := range runes {
		class := combining(r)
		if starter >= 0 && (before < class || before == 0 && starter == len(out)-1) {
			both := norm.NFC.String(string(out[starter]) + string(r))
			if c, n := utf8.DecodeRuneInString(both); n == len(both) {
				out[starter] = c
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		before = class
		out = append(out, r)
	}
	return out
}

// lowercase is char::to_lowercase of Rust for each character: unlike in str::to_lowercase a final sigma is no special case.
func lowercase(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == 'İ' {
			b.WriteString("i̇")
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// replacer puts content in the place of every match.
func replacer(p *pattern, content string) normalizer {
	return func(text string) string {
		var b strings.Builder
		for _, s := range p.spans(text) {
			if s.match {
				b.WriteString(content)
			} else {
				b.WriteString(text[s.start:s.end])
			}
		}
		return b.String()
	}
}
