package chat

import (
	"strconv"
	"strings"
)

// expression is jinja2's parse_expression; conditional says that x if c else y may stand here without brackets.
func (r *runner) expression(conditional bool) any {
	defer r.nest()()
	start := r.pos
	if at, ok := r.conditions[start]; ok && conditional {
		r.pos = at + 1
		holds := truth(r.or())
		var v any = undefined{}
		if r.word("else") {
			v = r.unless(holds, v, func() any { return r.expression(true) })
		}
		r.check(!r.is(tokenName, "if"), "a condition behind another one is not supported")
		if end := r.pos; holds {
			r.pos = start
			v = r.or()
			r.pos = end
		}
		return v
	}
	v := r.or()
	if conditional && r.is(tokenName, "if") { // this is Parse
		r.conditions[start] = r.pos
		r.pos = start
		return r.expression(true)
	}
	return v
}

func (r *runner) or() any {
	v := r.and()
	for r.word("or") {
		v = r.unless(truth(v), v, r.and)
	}
	return v
}

func (r *runner) and() any {
	v := r.not()
	for r.word("and") {
		v = r.unless(!truth(v), v, r.not)
	}
	return v
}

func (r *runner) not() any {
	n := 0
	for r.word("not") {
		n++
	}
	if v := r.comparison(); n == 0 {
		return v
	} else {
		return truth(v) == (n%2 == 0)
	}
}

func (r *runner) comparison() any {
	start := r.pos
	left := r.binary(0)
	result, holds := left, true
	for {
		op := r.peek().text
		switch next := r.tokens[min(r.pos+1, len(r.tokens)-1)]; {
		case r.is(tokenOperator, "==", "!=", "<", "<=", ">", ">=") || r.is(tokenName, "in"):
			r.next()
		case r.is(tokenName, "not") && next.kind == tokenName && next.text == "in":
			r.pos, op = r.pos+2, "not in"
		default:
			return result
		}
		right := r.unless(!holds, nil, func() any { return r.binary(0) })
		if holds {
			result = r.do(start, func() any { return r.compare(left, op, right) }, left, right)
			holds = truth(result)
		}
		left = right
	}
}

// levels are the operators, those that bind least first.
var levels = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

func (r *runner) binary(level int) any {
	if level == len(levels) {
		return r.unary(true)
	}
	start := r.pos
	v := r.binary(level + 1)
	for r.is(tokenOperator, levels[level]...) {
		op, w := r.next().text, r.binary(level+1)
		v = r.do(start, func() any { return arithmetic(v, op, w) }, v, w)
	}
	return v
}

func (r *runner) unary(filters bool) (v any) {
	defer r.nest()()
	start := r.pos
	if sign, ok := map[string]int64{"-": -1, "+": 1}[r.peek().text]; ok && r.peek().kind == tokenOperator {
		r.next()
		w := r.unary(false)
		v = r.do(start, func() any {
			needDefined(w)
			_, ok := number(w)
			require(ok, "the sign of a value of type %s", typeName(w))
			return arithmetic(w, "*", sign)
		})
	} else {
		v = r.primary()
	}
	v = r.postfix(start, v)
	for filters {
		switch {
		case r.op("|"):
			v = r.filter(start, v)
		case r.word("is"):
			v = r.test(start, v)
		case r.is(tokenOperator, "("):
			v = r.postfix(start, v)
		default:
			return v
		}
	}
	return v
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (r *runner) primary() any {
	start := r.pos
	switch t := r.peek(); {
	case t.kind == tokenName:
		name := r.variable()
		if v, ok := constants[name]; ok {
			return v
		}
		return r.do(start, func() any { return r.scope.lookup(name) })
	case t.kind == tokenString:
		s := ""
		for r.peek().kind == tokenString { // 'a' 'b' is 'ab'
			s += r.next().text
		}
		return s
	case t.kind == tokenNumber:
		return r.number()
	case r.op("("):
		v := r.tuple(true, true)
		r.expectOp(")")
		return v
	case r.op("["):
		items := []any{}
		r.list("]", func() { items = append(items, r.expression(true)) })
		return newList(items...)
	case r.op("{"):
		d := newDict()
		r.list("}", func() {
			key := r.expression(true)
			r.expectOp(":")
			v := r.expression(true)
			r.do(start, func() any { d.set(key, v); return nil })
		})
		return d
	}
	r.check(false, "found %q, expected an expression", r.peek().text)
	return nil
}

func (r *runner) number() any {
	t := r.next()
	if i, err := strconv.ParseInt(t.text, 0, 64); err == nil {
		return i
	}
	r.require(floatNumber.MatchString(t.text), t.start, "number %s: more than 64 bits: not supported", t.text)
	f, _ := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64) // out of range it is infinite, as in Python
	return f
}

// list has item read each item, up to close.
func (r *runner) list(close string, item func()) {
	for first := true; !r.op(close); first = false {
		if !first {
			r.expectOp(",")
			if r.op(close) {
				return
			}
		}
		item()
	}
}

// tuple is jinja2's parse_tuple: an expression, or several of them; bracketed allows none at all.
func (r *runner) tuple(conditional, bracketed bool) any {
	items, comma := []any{}, false
	for r.peek().kind != tokenClose && !r.is(tokenOperator, ")") {
		items = append(items, r.expression(conditional))
		if !r.op(",") {
			break
		}
		comma = true
	}
	r.check(len(items) > 0 || bracketed, "found %q, expected an expression", r.peek().text)
	if len(items) == 1 && !comma {
		return items[0]
	}
	return newTuple(items...)
}

// postfix reads attributes, subscripts and calls behind v, which begins at start.
func (r *runner) postfix(start int, v any) any {
	for {
		switch {
		case r.op("."):
			v = r.attribute(start, v)
		case r.op("["):
			v = r.subscript(start, v)
		case r.op("("):
			args := r.arguments()
			v = r.do(start, func() any { return r.call(v, args) })
		default:
			return v
		}
	}
}

// attribute reads a name, behind the dot, and a call of it.
func (r *runner) attribute(start int, v any) any {
	if r.peek().kind == tokenNumber {
		key := r.number()
		return r.do(start, func() any { return item(v, key) }, v)
	}
	ofLoop := r.tokens[start].kind == tokenName && r.tokens[start].text == "loop" && r.pos == start+2
	name := r.expect(tokenName, "a name")
	supported := !strings.HasPrefix(name, "__") && (!ofLoop || loopAttributes[name] != nil)
	r.require(supported, r.tokens[r.pos-1].start, "attribute %q is not supported", name)
	if !r.op("(") {
		return r.do(start, func() any { return attribute(v, name) }, v)
	}
	args := r.arguments()
	return r.do(start, func() any {
		f := attribute(v, name)
		require(!isUndefined(f), "a value of type %s has no method %q that is supported", typeName(v), name)
		return r.call(f, args)
	}, v)
}

func (r *runner) call(f any, a arguments) any {
	needDefined(f)
	if l, ok := f.(*loop); ok {
		require(l.again != nil && len(a.positional) == 1,
			"loop is called, which is not recursive, or not with one argument")
		return l.again(iterate(a.positional[0]))
	}
	return want[function](f)(r, a)
}

// subscript reads what stands between [ and ].
func (r *runner) subscript(start int, v any) any {
	var bounds [3]any
	colons, found := 0, false
	for !r.op("]") {
		if r.op(":") {
			colons, found = colons+1, false
			r.check(colons < 3, "a slice has at most two colons")
			continue
		}
		r.check(!found, "found %q, expected %q", r.peek().text, "]")
		bounds[colons], found = r.expression(true), true
	}
	r.check(found || colons > 0, "a subscript is empty")
	return r.do(start, func() any {
		if colons > 0 {
			return slice(v, bounds[0], bounds[1], bounds[2])
		}
		return item(v, bounds[0])
	}, v)
}

// arguments are those of a call.
type arguments struct {
	positional []any
	named      *dict
}

var noArguments = arguments{named: newDict()}

// arguments reads those of a call, behind the opening bracket.
func (r *runner) arguments() arguments {
	a := arguments{named: newDict()}
	named := false
	r.list(")", func() {
		start := r.pos
		switch next := r.tokens[r.pos+1]; {
		case r.op("*"):
			v := r.expression(true)
			r.do(start, func() any { a.positional = append(a.positional, iterate(v)...); return nil })
		case r.op("**"):
			v := r.expression(true)
			r.do(start, func() any { a.named.update(want[*dict](v)); return nil })
			named = true
		case r.peek().kind == tokenName && next.kind == tokenOperator && next.text == "=":
			r.pos += 2
			a.named.set(r.tokens[start].text, r.expression(true))
			named = true
		default:
			r.check(!named, "an argument without a name behind one with a name")
			a.positional = append(a.positional, r.expression(true))
		}
	})
	return a
}

// builtin reads the name of a filter or test, which is one of table.
func (r *runner) builtin(what string, table map[string]builtin) (string, builtin) {
	start := r.pos
	name := r.expect(tokenName, "a name")
	b, ok := table[name]
	r.require(ok, r.tokens[start].start, "there is no %s %q, or it is not supported", what, name)
	return name, b
}

// filter reads one filter, behind |.
func (r *runner) filter(start int, v any) any {
	name, b := r.builtin("filter", filters)
	args := noArguments
	if r.op("(") {
		args = r.arguments()
	}
	return r.do(start, func() any { return b.call(r, name, v, args) }, v)
}

// test reads one test, behind "is".
func (r *runner) test(start int, v any) any {
	negated := r.word("not")
	name, b := r.builtin("test", tests)
	args := noArguments
	r.check(!r.is(tokenName, "is"), "tests cannot be chained with is")
	switch kind := r.peek().kind; {
	case r.op("("):
		args = r.arguments()
	case kind == tokenName && !r.is(tokenName, "else", "or", "and"), kind == tokenString, kind == tokenNumber,
		r.is(tokenOperator, "[", "{"):
		args.positional = []any{r.postfix(r.pos, r.primary())}
	}
	return r.do(start, func() any { return truth(b.call(r, name, v, args)) != negated }, v)
}
