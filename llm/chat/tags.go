package chat

// body runs up to a tag of one of the names in ends, or to the end of the template, and returns that name.
func (r *runner) body(ends ...string) string {
	defer r.nest()()
	start := r.pos
	if end, ok := r.ends[start]; ok && r.off {
		r.pos = end
	}
	for {
		switch t := r.next(); {
		case t.kind == tokenText:
			r.write(t.text)
		case t.kind == tokenEnd:
			r.require(len(ends) == 0, r.tag.start, "{%% %s %%} has no end", r.tag.text)
			return ""
		case t.text == "{{":
			start := r.pos
			r.print(start, r.tuple(true, false))
			r.close()
		case r.is(tokenName, ends...):
			if _, known := r.ends[start]; !known { // this is Parse
				r.ends[start] = r.pos - 1
			}
			return r.next().text
		default:
			r.statement()
			r.close()
		}
	}
}

// print writes v, which begins at start.
func (r *runner) print(start int, v any) {
	r.do(start, func() any { r.write(str(v)); return nil }, v)
}

// statement runs one tag, but for its closing %}.
func (r *runner) statement() {
	defer func(outer token) { r.tag = outer }(r.tag)
	r.tag = r.peek()
	switch name := r.expect(tokenName, "a name"); name {
	case "if":
		r.ifTag()
	case "for":
		r.forTag()
	case "break", "continue":
		r.require(r.loops > 0, r.tag.start, "%s outside of a loop", name)
		if !r.off {
			r.flow, r.off = name, true
		}
	case "set":
		r.setTag()
	case "with":
		r.withTag()
	case "filter":
		start := r.pos
		v := r.block("endfilter", true)
		r.print(start, r.do(start, func() any { return want[string](v) }))
	case "generation":
		loops := r.loops
		r.loops = 0
		r.close()
		r.inScope(r.scope, map[string]any{"caller": undefined{}}, func() { r.body("endgeneration") })
		r.loops = loops
	case "macro":
		name := r.variable()
		params := r.pos
		r.skip(true, func() { r.parameters(name, noArguments, 0, nil) })
		if macro := r.macro(params, name, "endmacro"); !r.off {
			r.scope.vars[name] = macro
		}
	case "call":
		r.callTag()
	default:
		end := len(name) > 3 && name[:3] == "end" || name == "else" || name == "elif"
		r.require(!end, r.tag.start, "{%% %s %%} ends nothing", name)
		r.require(false, r.tag.start, "the tag %q is not supported", name)
	}
}

func (r *runner) ifTag() {
	taken := false
	for end := "if"; end != "endif"; {
		test, ends := true, []string{"elif", "else", "endif"}
		if end == "else" {
			ends = ends[2:]
		} else {
			test = truth(r.unless(taken, false, func() any { return r.tuple(false, false) }))
		}
		r.close()
		r.skip(taken || !test, func() { end = r.body(ends...) })
		taken = taken || test
	}
}

// target reads what a value is assigned to: a name, or several that it is unpacked to. assign returns a tuple of these,
// or the value.
func (r *runner) target() (assign func(v any) any) {
	bracketed, comma := r.op("("), false
	start := r.pos
	var names []string
	for len(names) == 0 || r.op(",") {
		if comma = len(names) > 0; comma && (r.peek().kind != tokenName || r.is(tokenName, "in")) {
			break
		}
		r.check(!r.is(tokenName, "loop"), "loop cannot be assigned to")
		names = append(names, r.variable())
	}
	if bracketed {
		r.expectOp(")")
	}
	return func(v any) any {
		return r.do(start, func() any {
			values := []any{v}
			if comma {
				values = iterate(v)
				v = newTuple(values...)
			}
			require(len(values) == len(names), "%d values for %d names", len(values), len(names))
			for i, name := range names {
				r.scope.vars[name] = values[i]
			}
			return v
		})
	}
}

func (r *runner) setTag() {
	start := r.pos
	var assign func(v any) any
	if r.tokens[r.pos+1].text == "." {
		name := r.variable()
		r.expectOp(".")
		attribute := r.expect(tokenName, "a name")
		assign = func(v any) any {
			return r.do(start, func() any {
				require(attribute[0] != '_', "transformers refuses attributes that begin with _")
				want[*namespace](r.scope.lookup(name)).set(attribute, v)
				return nil
			})
		}
	} else {
		assign = r.target()
	}
	if r.op("=") {
		assign(r.tuple(true, false))
	} else {
		assign(r.block("endset", false))
	}
}

// block returns what the body of a tag writes, filtered by the tag's filters; first says that one stands here without
// |.
func (r *runner) block(end string, first bool) any {
	start := r.pos
	filter := func(v any) any {
		for more := first; more || r.op("|"); more = false {
			v = r.filter(start, v)
		}
		return v
	}
	r.skip(true, func() { filter(nil) })
	r.close()
	text := r.captured(r.scope, func() { r.body(end) })
	defer func(pos int) { r.pos = pos }(r.pos)
	r.pos = start
	return filter(text)
}

func (r *runner) withTag() {
	vars := map[string]any{}
	for r.peek().kind != tokenClose {
		if len(vars) > 0 {
			r.expectOp(",")
		}
		name := r.variable()
		r.expectOp("=")
		vars[name] = r.expression(true)
	}
	r.close()
	r.inScope(r.scope, vars, func() { r.body("endwith") })
}

// parameters reads those of a macro or builtin, if there are any, and calls set with the arguments for them; found says
// whether there is an argument or a default. So many of the named arguments are used already.
func (r *runner) parameters(of string, a arguments, used int, set func(name string, v any, found bool)) {
	n := 0
	if r.op("(") {
		r.list(")", func() {
			r.check(!r.is(tokenName, "caller"), "a parameter caller is not supported")
			name, found := r.variable(), n < len(a.positional)
			var v any
			if found {
				v = a.positional[n]
			} else if v, found = a.named.lookup(name); found {
				used++
			}
			if n++; r.op("=") {
				v, found = r.unless(found, v, func() any { return r.expression(true) }), true
			}
			if !r.off {
				set(name, v, found)
			}
		})
	}
	require(r.off || len(a.positional) <= n, "%s: %d arguments, at most %d are supported", of, len(a.positional), n)
	require(r.off || used == a.named.size(), "%s: an argument is named twice, or one that is not supported", of)
}

// macro reads the body of a macro whose parameters are elsewhere.
func (r *runner) macro(params int, name, end string) function {
	caller, loops := r.caller, r.loops
	r.caller, r.loops = false, 0
	r.close()
	body, outer := r.pos, r.scope
	r.skip(true, func() { r.body(end) })
	if r.caller { // this is Parse
		r.callers[params] = true
	}
	r.caller, r.loops = r.caller || caller, loops
	return func(r *runner, a arguments) any {
		return r.apart(params, outer, func() {
			used := 0
			if r.callers[params] {
				v, found := a.named.lookup("caller")
				r.scope.vars["caller"], used = v, map[bool]int{true: 1}[found]
			}
			r.parameters(name, a, used, func(name string, v any, _ bool) { r.scope.vars[name] = v })
			r.pos = body
			r.body(end)
		})
	}
}

func (r *runner) callTag() {
	params := r.pos
	if r.is(tokenOperator, "(") {
		r.skip(true, func() { r.parameters("", noArguments, 0, nil) })
	}
	start := r.pos
	name := r.variable()
	r.expectOp("(")
	args := r.arguments()
	args.named.set("caller", r.macro(params, "caller", "endcall"))
	r.print(start, r.do(start, func() any { return r.call(r.scope.lookup(name), args) }))
}

func (r *runner) forTag() {
	assign := r.target()
	r.check(r.word("in"), "found %q, expected %q", r.peek().text, "in")
	start := r.pos
	items := r.tuple(false, false)
	list := r.do(start, func() any { return newList(iterate(items)...) })
	test := 0
	if r.word("if") {
		test = r.pos
		r.skip(true, func() { r.expression(true) })
	}
	recursive := r.word("recursive")
	r.close()
	body, outer, otherwise, end := r.pos, r.scope, 0, ""
	r.loops++
	r.skip(true, func() { end = r.body("else", "endfor") })
	if r.loops--; end == "else" {
		r.close()
		otherwise = r.pos
		loops := r.loops
		if recursive { // its else is within a function of Python's
			r.loops = 0
		}
		r.skip(true, func() { r.body("endfor") })
		r.loops = loops
	}
	defer func(pos int) { r.pos = pos }(r.pos)
	var run func(items []any)
	run = func(items []any) {
		l := &loop{rest: items, item: undefined{}, passes: func(v any) (any, bool) {
			passes := true
			if test > 0 {
				defer func(pos int) { r.pos = pos }(r.pos)
				r.inScope(outer, map[string]any{}, func() {
					v, r.pos = assign(v), test
					passes = truth(r.expression(true))
				})
			}
			return v, passes
		}}
		if recursive {
			l.again = func(items []any) any { return r.apart(body, outer, func() { run(items) }) }
		}
		completed, broken := 0, false // as in jinja2, what break or continue ends is no round when it comes to else
		for r.loops++; !broken && l.next(); r.flow, r.off = "", false {
			r.pos = body
			r.inScope(outer, map[string]any{"loop": l}, func() {
				assign(l.item)
				r.body("else", "endfor")
			})
			if broken = r.flow == "break"; r.flow == "" {
				completed++
			}
		}
		r.loops--
		if completed == 0 && otherwise > 0 {
			r.pos = otherwise
			r.inScope(outer, map[string]any{}, func() { r.body("endfor") })
		}
	}
	if !r.off {
		run(list.(*sequence).items)
	}
}

// loop is the variable loop.
type loop struct {
	rest             []any
	passes           func(v any) (any, bool) // v as the loop has it, and whether its condition holds
	again            func(items []any) any   // of a recursive loop
	index            int
	prev, item, peek any // peek is the item behind, if peeked
	peeked           bool
}

// next goes on to the next item that passes.
func (l *loop) next() bool {
	more := l.look()
	if more {
		l.prev, l.item, l.peeked = l.item, l.peek, false
		l.index++
	}
	return more
}

// look looks for the item behind this one.
func (l *loop) look() bool {
	for !l.peeked && len(l.rest) > 0 {
		l.peek, l.peeked = l.passes(l.rest[0])
		l.rest = l.rest[1:]
	}
	return l.peeked
}

// length looks at all items.
func (l *loop) length() int64 {
	var rest []any
	for ; l.look(); l.peeked = false {
		rest = append(rest, l.peek)
	}
	l.rest, l.passes = rest, func(v any) (any, bool) { return v, true }
	return int64(l.index + len(rest))
}

// loopAttributes are those of loop that are supported.
var loopAttributes = map[string]func(l *loop) any{
	"index":     func(l *loop) any { return int64(l.index) },
	"index0":    func(l *loop) any { return int64(l.index - 1) },
	"revindex":  func(l *loop) any { return l.length() - int64(l.index) + 1 },
	"revindex0": func(l *loop) any { return l.length() - int64(l.index) },
	"first":     func(l *loop) any { return l.index == 1 },
	"last":      func(l *loop) any { return !l.look() },
	"length":    func(l *loop) any { return l.length() },
	"previtem":  func(l *loop) any { return l.prev },
	"nextitem": func(l *loop) any {
		if l.look() {
			return l.peek
		}
		return undefined{}
	},
	"cycle": func(l *loop) any {
		return function(func(_ *runner, a arguments) any {
			require(len(a.positional) > 0, "cycle: there is nothing to cycle")
			return a.positional[(l.index-1)%len(a.positional)]
		})
	},
}

func (l *loop) attribute(name any) any {
	f := loopAttributes[want[string](name)]
	require(f != nil, "attribute %q of loop is not supported", name)
	return f(l)
}
