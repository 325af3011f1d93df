package chat

import (
	"fmt"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// tests are jinja2's tests (x is name).
var tests map[string]func(v value.Value, a arguments) (bool, error)

func init() {
	comparison := func(op string) func(value.Value, arguments) (bool, error) {
		return func(v value.Value, a arguments) (bool, error) {
			args, err := a.take("other")
			if err != nil {
				return false, err
			}
			return compare(v, op, args[0])
		}
	}
	kind := func(of func(v value.Value) bool) func(value.Value, arguments) (bool, error) {
		return func(v value.Value, a arguments) (bool, error) {
			_, err := a.take()
			return of(v), err
		}
	}
	remainder := func(by, want int64) func(value.Value, arguments) (bool, error) {
		return func(v value.Value, a arguments) (bool, error) {
			args, err := value.FromInt(by), error(nil)
			if by == 0 {
				var taken []value.Value
				if taken, err = a.take("num"); err == nil {
					args = taken[0]
				}
			} else {
				_, err = a.take()
			}
			if err != nil {
				return false, err
			}
			r, err := arithmetic(v, "%", args)
			if err != nil {
				return false, err
			}
			return equal(r, value.FromInt(want))
		}
	}
	isBool := func(v value.Value) bool { return v.Kind() == value.KindBool }
	isInt := func(v value.Value) bool { return v.Kind() == value.KindNumber && !v.IsActualFloat() }
	isString := func(v value.Value) bool { return v.Kind() == value.KindString }
	isDict := func(v value.Value) bool { _, ok := asDict(v); return ok }
	isList := func(v value.Value) bool { _, ok := items(v); return ok }
	isSequence := func(v value.Value) bool { return isString(v) || isDict(v) || isList(v) || v.IsUndefined() }
	isIterable := func(v value.Value) bool {
		o, _ := v.AsObject()
		_, isCollection := o.(*collection)
		return isSequence(v) || isCollection || typeName(v) == "generator"
	}
	tests = map[string]func(value.Value, arguments) (bool, error){
		"defined":     kind(func(v value.Value) bool { return !v.IsUndefined() }),
		"undefined":   kind(value.Value.IsUndefined),
		"none":        kind(value.Value.IsNone),
		"boolean":     kind(isBool),
		"true":        kind(func(v value.Value) bool { b, ok := v.AsBool(); return ok && b }),
		"false":       kind(func(v value.Value) bool { b, ok := v.AsBool(); return ok && !b }),
		"integer":     kind(isInt),
		"float":       kind(value.Value.IsActualFloat),
		"number":      kind(func(v value.Value) bool { return isBool(v) || v.Kind() == value.KindNumber }),
		"string":      kind(isString),
		"mapping":     kind(isDict),
		"iterable":    kind(isIterable),
		"sequence":    kind(isSequence),
		"callable":    kind(func(v value.Value) bool { return v.IsCallable() || v.IsUndefined() }), // as jinja2 has it
		"odd":         remainder(2, 1),
		"even":        remainder(2, 0),
		"divisibleby": remainder(0, 0),
		"in":          comparison("in"),
		"lower": func(v value.Value, a arguments) (bool, error) {
			s, err := str(v)
			return s == lower(s) && s != upper(s), err
		},
		"upper": func(v value.Value, a arguments) (bool, error) {
			s, err := str(v)
			return s == upper(s) && s != lower(s), err
		},
		"sameas": func(v value.Value, a arguments) (bool, error) {
			args, err := a.take("other")
			if err != nil {
				return false, err
			}
			if !isBool(args[0]) && !args[0].IsNone() {
				return false, fmt.Errorf("sameas a value of type %s: not supported", typeName(args[0]))
			}
			return v.SameAs(args[0]), nil
		},
	}
	for op, names := range map[string][]string{"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"},
		"<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"}} {
		for _, name := range names {
			tests[name] = comparison(op)
		}
	}
	for name := range map[string]bool{"filter": true, "test": true} {
		tests[name] = func(v value.Value, a arguments) (bool, error) {
			s, _ := v.AsString()
			if a.of == "filter" {
				return filters[s] != nil, nil
			}
			return tests[s] != nil, nil
		}
	}
}
