package chat

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

func intFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?default", "?base")
	if err != nil {
		return v, err
	}
	otherwise := value.FromInt(0)
	if !args[0].IsUndefined() {
		otherwise = args[0]
	}
	if !args[1].IsUndefined() {
		if base, ok := integer(args[1]); !ok || base != 10 {
			return v, errors.New("int: other bases than 10 are not supported")
		}
	}
	if i, ok := integer(v); ok {
		return value.FromInt(i), nil
	}
	if s, ok := v.AsString(); ok {
		s = strings.TrimFunc(s, isSpace)
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return value.FromInt(i), nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<62 {
			return value.FromInt(int64(f)), nil
		}
		return otherwise, nil
	}
	if f, ok := v.AsFloat(); ok && math.Abs(f) < 1<<62 {
		return value.FromInt(int64(f)), nil
	}
	if v.IsUndefined() {
		return v, undefinedError(v)
	}
	return otherwise, nil
}

func floatFilter(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?default")
	if err != nil {
		return v, err
	}
	if f, ok := number(v); ok {
		return value.FromFloat(f), nil
	}
	if s, ok := v.AsString(); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return value.FromFloat(f), nil
		}
	}
	if v.IsUndefined() {
		return v, undefinedError(v)
	}
	if !args[0].IsUndefined() {
		return args[0], nil
	}
	return value.FromFloat(0), nil
}

func abs(v value.Value, a arguments) (value.Value, error) {
	if _, err := a.take(); err != nil {
		return v, err
	}
	negative, err := compare(v, "<", value.FromInt(0))
	if err != nil {
		return v, err
	}
	if negative {
		return arithmetic(value.FromInt(0), "-", v)
	}
	return arithmetic(value.FromInt(0), "+", v) // True is 1
}

func round(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?precision", "?method")
	if err != nil {
		return v, err
	}
	f, ok := number(v)
	if !ok {
		return v, fmt.Errorf("round: a value of type %s", typeName(v))
	}
	precision, _ := integer(args[0])
	method, given := args[1].AsString()
	switch {
	case precision < -300 || precision > 300:
		return v, errors.New("round: the precision is out of range")
	case given && method != "common":
		scale := math.Pow(10, float64(precision))
		switch method {
		case "ceil":
			return value.FromFloat(math.Ceil(f*scale) / scale), nil
		case "floor":
			return value.FromFloat(math.Floor(f*scale) / scale), nil
		}
		return v, fmt.Errorf("round: there is no method %q", method)
	}
	if precision < 0 {
		scale := math.Pow(10, float64(-precision))
		return value.FromFloat(math.RoundToEven(f/scale) * scale), nil
	}
	// Rounds the exact value, half to even, as Python does.
	r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
	if _, isInt := integer(v); isInt {
		return value.FromInt(int64(r)), err
	}
	return value.FromFloat(r), err
}

func sum(v value.Value, a arguments) (value.Value, error) {
	args, err := a.take("?attribute", "?start")
	if err != nil {
		return v, err
	}
	l, err := iterate(v)
	if err != nil {
		return v, err
	}
	total := args[1]
	if total.IsUndefined() {
		total = value.FromInt(0)
	}
	for _, item := range l {
		if item, err = attributeOf(item, args[0]); err != nil {
			return v, err
		}
		if total, err = arithmetic(total, "+", item); err != nil {
			return v, err
		}
	}
	return total, nil
}
