package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// stripper takes characters off the ends, white space where none are given.
func stripper(trims ...func(string, func(rune) bool) string) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		chars, given, err := a.strings("?chars")
		if err != nil {
			return v, err
		}
		s, _ := v.AsString()
		of := isSpace
		if given[0] {
			of = func(r rune) bool { return strings.ContainsRune(chars[0], r) }
		}
		for _, trim := range trims {
			s = trim(s, of)
		}
		return value.FromString(s), nil
	}
}

// affix is startswith or endswith: of one string or any of a tuple.
func affix(has func(s, affix string) bool) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		args, err := a.take("prefix")
		if err != nil {
			return v, err
		}
		s, _ := v.AsString()
		of := []value.Value{args[0]}
		if typeName(args[0]) == string(tupleKind) {
			of, _ = items(args[0])
		}
		for _, one := range of {
			t, ok := one.AsString()
			if !ok {
				return v, fmt.Errorf("%s: the argument is of type %s, expected str", a.of, typeName(one))
			}
			if has(s, t) {
				return value.True(), nil
			}
		}
		return value.False(), nil
	}
}

func withString(param string, f func(s, t string) value.Value) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		args, given, err := a.strings(param)
		if err == nil && !given[0] {
			err = fmt.Errorf("%s: the argument is None, expected str", a.of)
		}
		if err != nil {
			return v, err
		}
		s, _ := v.AsString()
		return f(s, args[0]), nil
	}
}

// runeIndex turns an index of bytes into one of characters.
func runeIndex(s string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(utf8.RuneCountInString(s[:i]))
}

func index(v value.Value, a arguments) (value.Value, error) {
	found, err := methods["str"]["find"](v, a)
	if i, _ := integer(found); err == nil && i < 0 {
		err = errors.New("index: the text is not found")
	}
	return found, err
}

func replace(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("old", "new", "?count")
	if err != nil {
		return v, err
	}
	s, _ := v.AsString()
	old, ok1 := args[0].AsString()
	with, ok2 := args[1].AsString()
	n := int64(-1)
	ok3 := true
	if !args[2].IsUndefined() && !args[2].IsNone() {
		n, ok3 = integer(args[2])
	}
	if !ok1 || !ok2 || !ok3 {
		return v, fmt.Errorf("%s: arguments must be str, str and int", a.of)
	}
	if times := strings.Count(s, old); len(with) > 0 && times > (maxText-len(s))/len(with) {
		return v, errTooLong
	}
	return value.FromString(strings.Replace(s, old, with, int(max(n, -1)))), nil
}

func joinMethod(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("iterable")
	if err != nil {
		return v, err
	}
	l, err := iterate(args[0])
	if err != nil {
		return v, err
	}
	sep, _ := v.AsString()
	parts := make([]string, len(l))
	for i, part := range l {
		var ok bool
		if parts[i], ok = part.AsString(); !ok {
			return v, fmt.Errorf("join: item %d is of type %s, expected str", i, typeName(part))
		}
	}
	return joinText(parts, sep)
}

func joinText(parts []string, sep string) (value.Value, error) {
	total := len(parts) * len(sep)
	for _, part := range parts {
		total += len(part)
	}
	if total > maxText {
		return value.Undefined(), errTooLong
	}
	return value.FromString(strings.Join(parts, sep)), nil
}

func mapped(f func(string) string) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		_, err := a.take()
		s, _ := v.AsString()
		return value.FromString(f(s)), err
	}
}

func mappedTest(f func(string) bool) func(value.Value, arguments) (value.Value, error) {
	return func(v value.Value, a arguments) (value.Value, error) {
		_, err := a.take()
		s, _ := v.AsString()
		return value.FromBool(f(s)), err
	}
}

// tested is true where the text is not empty and every character passes.
func tested(f func(rune) bool) func(value.Value, arguments) (value.Value, error) {
	return mappedTest(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0
	})
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return titleOf(s[:n]) + lower(s[n:])
}

func titleOf(s string) string {
	if s == "ß" {
		return "Ss"
	}
	return strings.Map(unicode.ToTitle, s)
}

// titleMethod is str.title: a letter behind none is large, others are small.
func titleMethod(s string) string {
	var b strings.Builder
	inWord := false
	for _, r := range s {
		letter := unicode.IsLetter(r)
		switch {
		case letter && !inWord:
			b.WriteString(titleOf(string(r)))
		case letter:
			b.WriteString(lower(string(r)))
		default:
			b.WriteRune(r)
		}
		inWord = letter
	}
	return b.String()
}
