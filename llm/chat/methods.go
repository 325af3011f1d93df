package chat

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// methods are Python's methods that templates may call, by the type's name. None changes a value: transformers' sandbox
// forbids those that do.
var methods map[string]map[string]builtin

const intAttributes = "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer " +
	"numerator real to_bytes"

// otherAttributes are Python's that are not supported: they would hide items of that name, or be defined.
var otherAttributes = map[string]string{
	"str": "casefold center encode expandtabs format format_map isascii isidentifier isnumeric isprintable istitle " +
		"ljust maketrans rindex rjust swapcase translate zfill",
	"dict":        "clear copy fromkeys pop popitem setdefault update",
	"list":        "append clear copy count extend index insert pop remove reverse sort",
	"tuple":       "count index",
	"range":       "count index start step stop",
	"int":         intAttributes,
	"bool":        intAttributes,
	"float":       "as_integer_ratio conjugate fromhex hex imag is_integer real",
	"dict_keys":   "isdisjoint mapping",
	"dict_values": "mapping",
	"dict_items":  "isdisjoint mapping",
	"generator":   "close send throw",
	"function":    "arguments caller catch_kwargs catch_varargs explicit_caller name",
}

func init() {
	ofText := func(f func(s string) any) builtin {
		return def("", func(_ *runner, v any, _ []any) any { return f(v.(string)) })
	}
	withText := func(f func(s, t string) any) builtin {
		return def("s", func(_ *runner, v any, a []any) any { return f(v.(string), want[string](a[0])) })
	}
	// ifAll tests whether a string is not empty and all its characters pass.
	ifAll := func(f func(rune) bool) builtin {
		return ofText(func(s string) any { return s != "" && strings.TrimLeftFunc(s, f) == "" })
	}
	// place finds t by find; the place is one of characters.
	place := func(find func(s, t string) int, must bool) builtin {
		return withText(func(s, t string) any {
			i := find(s, t)
			require(i >= 0 || !must, "the text %q is not found", t)
			return int64(min(i, 0) + utf8.RuneCountInString(s[:max(i, 0)]))
		})
	}
	affix := func(has func(s, affix string) bool) builtin {
		return def("affix", func(_ *runner, v any, a []any) any {
			affixes := []any{a[0]}
			if typeName(a[0]) == "tuple" {
				affixes = iterate(a[0])
			}
			return slices.ContainsFunc(affixes, func(t any) bool { return has(v.(string), want[string](t)) })
		})
	}
	strip := func(left, right bool) builtin {
		return def("chars=none", func(_ *runner, v any, a []any) any { return trim(v.(string), a[0], left, right) })
	}
	methods = map[string]map[string]builtin{
		"str": {
			"strip":        strip(true, true),
			"lstrip":       strip(true, false),
			"rstrip":       strip(false, true),
			"split":        def("sep=none, maxsplit=-1", split),
			"rsplit":       def("sep=none, maxsplit=-1", rsplit),
			"splitlines":   ofText(func(s string) any { return textList(splitLines(s)) }),
			"partition":    withText(func(s, t string) any { return partition(s, t, strings.Index(s, t), 0) }),
			"rpartition":   withText(func(s, t string) any { return partition(s, t, strings.LastIndex(s, t), 2) }),
			"startswith":   affix(strings.HasPrefix),
			"endswith":     affix(strings.HasSuffix),
			"removeprefix": withText(func(s, t string) any { return strings.TrimPrefix(s, t) }),
			"removesuffix": withText(func(s, t string) any { return strings.TrimSuffix(s, t) }),
			"replace": def("old, new, count=-1", func(_ *runner, v any, a []any) any {
				return replace(v.(string), want[string](a[0]), want[string](a[1]), a[2])
			}),
			"find":  place(strings.Index, false),
			"rfind": place(strings.LastIndex, false),
			"index": place(strings.Index, true),
			"count": withText(func(s, t string) any { return int64(strings.Count(s, t)) }),
			"join": def("iterable", func(_ *runner, v any, a []any) any {
				return join(iterate(a[0]), v.(string), want[string])
			}),
			"upper":      ofText(func(s string) any { return upper(s) }),
			"lower":      ofText(func(s string) any { return lower(s) }),
			"title":      ofText(func(s string) any { return letters.ReplaceAllStringFunc(s, capitalize) }),
			"capitalize": ofText(func(s string) any { return capitalize(s) }),
			"isspace":    ifAll(isSpace),
			"isdigit":    ifAll(unicode.IsDigit),
			"isdecimal":  ifAll(unicode.IsDigit),
			"isalpha":    ifAll(unicode.IsLetter),
			"isalnum":    ifAll(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
			"islower":    ofText(func(s string) any { return isLower(s) }),
			"isupper":    ofText(func(s string) any { return isUpper(s) }),
		},
		"dict": {
			"get": def("key, default=none", func(_ *runner, v any, a []any) any {
				if found, ok := v.(*dict).lookup(a[0]); ok {
					return found
				}
				return a[1]
			}),
			"items": def("", func(_ *runner, v any, _ []any) any { return &sequence{"dict_items", v.(*dict).pairs()} }),
			"keys":  def("", func(_ *runner, v any, _ []any) any { return &sequence{"dict_keys", v.(*dict).keys} }),
			"values": def("", func(_ *runner, v any, _ []any) any {
				return &sequence{"dict_values", v.(*dict).items()}
			}),
		},
	}
}

// replace is str.replace; count is an int, or None for no bound.
func replace(s, old, with string, count any) string {
	n := int64(-1)
	if count != nil {
		n = max(wantInteger(count), -1)
	}
	if times := strings.Count(s, old); len(with) > 0 && (n < 0 || n > 0) {
		checkSize(len(with), int64(times), maxText-len(s))
	}
	return strings.Replace(s, old, with, int(n))
}

func trim(s string, chars any, left, right bool) string {
	of := isSpace
	if chars != nil {
		set := want[string](chars)
		of = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, of)
	}
	if right {
		s = strings.TrimRightFunc(s, of)
	}
	return s
}

func join(items []any, separator string, str func(v any) string) string {
	parts, size := make([]string, len(items)), len(items)*len(separator)
	for i, item := range items {
		parts[i] = str(item)
		size += len(parts[i])
	}
	checkSize(size, 1, maxText)
	return strings.Join(parts, separator)
}

func textList(parts []string) any { return newList(toAny(parts)...) }

func split(_ *runner, v any, a []any) any {
	s, limit := v.(string), wantInteger(a[1])
	if limit < 0 || limit > int64(len(s)) {
		limit = int64(len(s)) + 1
	}
	if a[0] != nil {
		return textList(strings.SplitN(s, separator(a[0]), int(limit)+1))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || int64(len(parts)) >= limit {
			i = len(s)
		}
		parts, s = append(parts, s[:i]), s[i:]
	}
	return textList(parts)
}

func rsplit(r *runner, v any, a []any) any {
	limit := wantInteger(a[1])
	if limit < 0 {
		return split(r, v, a)
	}
	if a[0] == nil {
		panic(failure("rsplit with maxsplit alone is not supported"))
	}
	sep := separator(a[0])
	parts := strings.Split(v.(string), sep)
	if n := int64(len(parts)) - limit; n > 1 {
		parts = append([]string{strings.Join(parts[:n], sep)}, parts[n:]...)
	}
	return textList(parts)
}

func separator(v any) string {
	s := want[string](v)
	if s == "" {
		panic(failure("the separator is empty"))
	}
	return s
}

// splitLines is str.splitlines.
func splitLines(s string) []string {
	var lines []string
	for s != "" {
		i := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if i < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		lines, s = append(lines, s[:i]), s[i+n:]
	}
	return lines
}

// partition cuts s around sep, which is at i; where there is none, s is the part of the number whole.
func partition(s, sep string, i, whole int) any {
	parts := []any{"", "", ""}
	parts[whole] = s
	if separator(sep); i >= 0 {
		parts = []any{s[:i], sep, s[i+len(sep):]}
	}
	return newTuple(parts...)
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func isLower(s string) bool { return s == lower(s) && s != upper(s) }

func isUpper(s string) bool { return s == upper(s) && s != lower(s) }

// letters are what str.title capitalizes.
var letters = regexp.MustCompile(`\p{L}+`)

// capitalize is str.capitalize.
func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return toTitle(s[:n]) + lower(s[n:])
}

func toTitle(s string) string {
	if s == "ß" {
		return "Ss"
	}
	return strings.Map(unicode.ToTitle, s)
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
