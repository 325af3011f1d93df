package match

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// Eval computes an expression of a condition or of a target. The result is a float64, a string, a bool, a list of
// integers ([]int64), or the value that is bound to a name. If s is nil, the expression must not contain names or
// functions. Eval returns an error if a name is not bound or an operand has the wrong type.
func (s *Attempt) Eval(e notation.Cond) (any, error) {
	switch e := e.(type) {
	case *notation.CondNumber:
		return e.Value, nil
	case *notation.CondString:
		return e.Value, nil
	case *notation.CondName:
		return s.evalName(e)
	case *notation.CondUnary:
		return s.evalUnary(e)
	case *notation.CondBinary:
		return s.evalBinary(e)
	case *notation.CondCall:
		args, err := s.evalAll(e.Args)
		if err != nil {
			return nil, err
		}
		return functions[e.Name].call(s.g, args)
	case *notation.CondList:
		return s.evalList(e)
	}
	return nil, fmt.Errorf("%s cannot be computed", e)
}

// evalName returns a capture's number or text, a tag's 0 or 1, or the value bound to a name.
func (s *Attempt) evalName(e *notation.CondName) (any, error) {
	if t, ok := s.Pattern.Tags[e.Name]; ok {
		return float64(s.tags[t]), nil
	}
	b := s.Slots[s.Pattern.Slots[e.Name]]
	switch {
	case b.Value != nil:
		return b.Value, nil
	case b.Captured != nil:
		return b.Captured, nil
	}
	return nil, fmt.Errorf("%s was not matched", e.Name)
}

func (s *Attempt) evalUnary(e *notation.CondUnary) (any, error) {
	x, err := s.Eval(e.X)
	if err != nil {
		return nil, err
	}
	switch v := x.(type) {
	case bool:
		if e.Op == "!" {
			return !v, nil
		}
	case float64:
		if e.Op == "-" {
			return -v, nil
		}
		return v == 0, nil
	}
	return nil, fmt.Errorf("%s cannot be applied in %s", e.Op, e)
}

func (s *Attempt) evalBinary(e *notation.CondBinary) (any, error) {
	x, err := s.Eval(e.X)
	if err != nil {
		return nil, err
	}
	if e.Op == "&&" && !truth(x) || e.Op == "||" && truth(x) {
		return truth(x), nil
	}
	y, err := s.Eval(e.Y)
	if err != nil {
		return nil, err
	}
	if e.Op == "&&" || e.Op == "||" {
		return truth(y), nil
	}
	if a, ok := x.(string); ok {
		b, ok := y.(string)
		switch {
		case ok && e.Op == "==":
			return a == b, nil
		case ok && e.Op == "!=":
			return a != b, nil
		}
		return nil, fmt.Errorf("%s compares a text with another type", e)
	}
	a, ok1 := x.(float64)
	b, ok2 := y.(float64)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s needs numbers", e)
	}
	return arithmetic(e.Op, a, b)
}

func (s *Attempt) evalAll(list []notation.Cond) ([]any, error) {
	values := make([]any, len(list))
	for i, e := range list {
		var err error
		if values[i], err = s.Eval(e); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (s *Attempt) evalList(e *notation.CondList) (any, error) {
	values, err := s.evalAll(e.Items)
	if err != nil {
		return nil, err
	}
	list := make([]int64, len(values))
	for i, x := range values {
		f, ok := x.(float64)
		if list[i] = int64(f); !ok || f != float64(list[i]) {
			return nil, fmt.Errorf("%s is %v, which is not an integer", e.Items[i], x)
		}
	}
	return list, nil
}

func arithmetic(op string, a, b float64) (any, error) {
	switch op {
	case "==":
		return a == b, nil
	case "!=":
		return a != b, nil
	case "<":
		return a < b, nil
	case "<=":
		return a <= b, nil
	case ">":
		return a > b, nil
	case ">=":
		return a >= b, nil
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	}
	if b == 0 || op == "%" && int64(b) == 0 {
		return nil, fmt.Errorf("division by zero")
	}
	if op == "/" {
		return a / b, nil
	}
	return float64(int64(a) % int64(b)), nil
}

func truth(x any) bool {
	switch v := x.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	}
	return false
}
