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

// normalForm returns the normalizer of a Unicode normalization form.
func normalForm(form norm.Form) normalizer {
	return func(text string) string {
		if form.IsNormalString(text) && !strings.ContainsFunc(text, isAfter9) {
			return text
		}
		var b strings.Builder
		for text != "" {
			i := strings.IndexFunc(text, isAfter9)
			if i < 0 {
				i = len(text)
			}
			b.WriteString(normalizePart(form, text[:i]))
			_, n := utf8.DecodeRuneInString(text[i:])
			b.WriteString(text[i : i+n])
			text = text[i+n:]
		}
		return b.String()
	}
}

func isAfter9(r rune) bool { return r >= 0x7FD && unicode.Is(after9, r) }

// normalizePart normalizes text without characters of after9.
func normalizePart(form norm.Form, text string) string {
	if manyMarks(text) {
		return normalizeMarks(form, text)
	}
	return form.String(text)
}

var forms = map[string]normalizer{
	"NFC": normalForm(norm.NFC), "NFD": normalForm(norm.NFD), "NFKC": normalForm(norm.NFKC),
	"NFKD": normalForm(norm.NFKD),
}

// manyMarks reports whether text has so many consecutive marks that package norm would insert a U+034F (Stream-Safe
// Text Format, at 30 marks), which is not part of the normalization forms. One character decomposes into at most four.
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

// normalizeMarks normalizes by definition: it decomposes every character, sorts marks by combining class, then composes
// (Unicode Standard Annex 15). Package norm decomposes the single characters and composes the pairs.
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

// compose joins starters with the following characters that are not blocked.
func compose(runes []rune) []rune {
	var out []rune
	starter, before := -1, 0 // index of the last starter in out, and the class of the last mark after it
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

// lowercase is Rust's char::to_lowercase (Unicode 17.0) for each character. Unlike str::to_lowercase it does not treat
// a final sigma specially.
func lowercase(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == 'İ' {
			b.WriteString("i\u0307")
		} else {
			b.WriteRune(capitals17.ToLower(r))
		}
	}
	return b.String()
}

// capitals17 are the capital letters that Unicode 15.1 to 17.0 add to Go's tables or pair with a small letter.
var capitals17 = unicode.SpecialCase{
	lowers(0x1C89, 0x1C89, 1), lowers(0xA7CB, 0xA7CB, 0x264-0xA7CB), lowers(0xA7CC, 0xA7CC, 1),
	lowers(0xA7CE, 0xA7CE, 1), lowers(0xA7D2, 0xA7D2, 1),
	lowers(0xA7D4, 0xA7D4, 1), lowers(0xA7DA, 0xA7DA, 1), lowers(0xA7DC, 0xA7DC, 0x19B-0xA7DC),
	lowers(0x10D50, 0x10D65, 0x20), lowers(0x16EA0, 0x16EB8, 0x1B),
}

func lowers(first, last uint32, by rune) unicode.CaseRange {
	return unicode.CaseRange{Lo: first, Hi: last, Delta: [unicode.MaxCase]rune{unicode.LowerCase: by}}
}

// replacer replaces every match by content.
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
