package chat

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// failed is what code panics with that meets an error of the template; Parse and Render return the error.
type failed struct{ error }

func failure(format string, args ...any) failed { return failed{fmt.Errorf(format, args...)} }

// require fails unless ok.
func require(ok bool, format string, args ...any) {
	if !ok {
		panic(failure(format, args...))
	}
}

// catch makes an error of a failure.
func catch(err *error) {
	switch e := recover().(type) {
	case nil:
	case failed:
		*err = e.error
	default:
		panic(e)
	}
}

// A RaisedError is what a template reports by raise_exception: that it is not made for this conversation.
type RaisedError struct {
	// Message is the template's own.
	Message string
}

// Error is the message.
func (e *RaisedError) Error() string { return "the chat template refuses the messages: " + e.Message }

// program is what Parse finds out about a template.
type program struct {
	source     string
	tokens     []token
	conditions map[int]int  // of x if c: from the first token to the if
	ends       map[int]int  // of bodies of tags: from the first token to the name of the tag that ends it
	callers    map[int]bool // the macros, by the first token of their parameters, that use caller
}

// runner runs a program: it parses as it runs, by jinja2's grammar (jinja2/parser.py). What is not to be run, as a
// branch that is not taken, is parsed with off set, and so is the whole program, by Parse.
type runner struct {
	program
	pos    int
	depth  int // of tags and expressions in each other
	calls  int // of macros in each other
	off    bool
	flow   string // break or continue, up to the end of the loop
	scope  *scope
	out    *strings.Builder
	at     int   // the first token of the operation that runs
	tag    token // the innermost tag
	loops  int   // the loops around, up to the macro
	caller bool  // the name caller was read

	written, work int
	now, deadline time.Time
}

type scope struct {
	vars   map[string]any
	parent *scope
}

func (s *scope) lookup(name string) any {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	if f, ok := globals[name]; ok {
		return function(func(r *runner, a arguments) any { return f.call(r, name, nil, a) })
	}
	return undefined{}
}

const (
	maxNesting = 100         // of tags and expressions in each other
	maxCalls   = 200         // of macros in each other
	maxWork    = 500_000_000 // tokens, items and pieces of text that a rendering goes through
	maxTime    = time.Minute
)

// spend counts work.
func (r *runner) spend(n int) {
	before := r.work
	r.work -= n
	late := before>>16 != r.work>>16 && time.Now().After(r.deadline)
	require(r.work >= 0 && !late, "too much work: the template runs away")
}

// bulk is the number of items or of 64 bytes of text.
func bulk(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) / 64
	case *sequence:
		return len(v.items)
	}
	return 0
}

func (r *runner) write(s string) {
	if !r.off {
		r.written += len(s)
		checkSize(r.written, 1, maxText)
		r.out.WriteString(s)
	}
}

// do runs an operation on v, which begins at start: an error says where that is.
func (r *runner) do(start int, f func() any, v ...any) any {
	if r.off {
		return nil
	}
	for _, v := range v {
		r.spend(bulk(v))
	}
	r.at = start
	result := f()
	r.spend(1 + bulk(result))
	return result
}

// skip runs f, without any effect if off.
func (r *runner) skip(off bool, f func()) {
	saved := r.off
	r.off = saved || off
	f()
	r.off = saved || r.flow != ""
}

// unless returns v if decided, and skips f, else what f returns.
func (r *runner) unless(decided bool, v any, f func() any) any {
	r.skip(decided, func() {
		if w := f(); !decided {
			v = w
		}
	})
	return v
}

// inScope runs f in a new scope.
func (r *runner) inScope(parent *scope, vars map[string]any, f func()) {
	outer := r.scope
	r.scope = &scope{vars, parent}
	f()
	r.scope = outer
}

// captured returns what f writes, in a new scope.
func (r *runner) captured(parent *scope, f func()) string {
	out := r.out
	r.out = &strings.Builder{}
	r.inScope(parent, map[string]any{}, f)
	text := r.out.String()
	r.out = out
	return text
}

// apart is captured at another place of the program.
func (r *runner) apart(pos int, parent *scope, f func()) string {
	saved := *r
	r.pos, r.at, r.depth, r.off, r.calls = pos, pos, 0, false, r.calls+1
	require(r.calls <= maxCalls, "macros call each other more than %d deep", maxCalls)
	text := r.captured(parent, f)
	saved.work, saved.written = r.work, r.written
	*r = saved
	return text
}

// try runs f, and returns the failure that ends it.
func (r *runner) try(f func()) (err error) {
	defer catch(&err)
	f()
	return nil
}

// place says where the operation stands that runs.
func (r *runner) place() string {
	at := r.tokens[r.at].start
	text := r.source[at:max(at, r.tokens[max(r.pos-1, 0)].end)]
	if text = strings.Join(strings.Fields(text), " "); len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return fmt.Sprintf("line %d: %s", 1+strings.Count(r.source[:at], "\n"), text)
}

// require fails, with the line of a place in the source, unless ok.
func (r *runner) require(ok bool, at int, format string, args ...any) {
	if !ok {
		panic(failure("line %d: %s", 1+strings.Count(r.source[:at], "\n"), fmt.Sprintf(format, args...)))
	}
}

// check is require for the current token.
func (r *runner) check(ok bool, format string, args ...any) {
	r.require(ok, r.peek().start, format, args...)
}

// nest counts how deep what is read is nested, up to the call of what it returns.
func (r *runner) nest() func() {
	r.depth++
	r.check(r.depth <= maxNesting, "expressions and tags are nested more than %d deep", maxNesting)
	return func() { r.depth-- }
}

func (r *runner) peek() token {
	r.spend(1)
	return r.tokens[r.pos]
}

func (r *runner) next() token {
	t := r.peek()
	if t.kind != tokenEnd {
		r.pos++
	}
	return t
}

func (r *runner) is(kind tokenKind, texts ...string) bool {
	t := r.peek()
	return t.kind == kind && slices.Contains(texts, t.text)
}

func (r *runner) skipToken(kind tokenKind, text string) bool {
	ok := r.is(kind, text)
	if ok {
		r.pos++
	}
	return ok
}

func (r *runner) op(op string) bool { return r.skipToken(tokenOperator, op) }

func (r *runner) word(name string) bool { return r.skipToken(tokenName, name) }

// expect reads a token of a kind, which what names.
func (r *runner) expect(kind tokenKind, what string) string {
	r.check(r.peek().kind == kind, "found %q, expected %s", r.peek().text, what)
	return r.next().text
}

func (r *runner) expectOp(op string) { r.check(r.op(op), "found %q, expected %q", r.peek().text, op) }

func (r *runner) close() { r.expect(tokenClose, "the end of the tag") }

// variable reads the name of a variable.
func (r *runner) variable() string {
	reserved := r.is(tokenName, "and", "or", "not", "in", "is", "if", "else", "elif")
	r.check(!reserved, "%q cannot be the name of a variable", r.peek().text)
	r.check(!r.is(tokenName, "self", "super", "varargs", "kwargs"), "%q is not supported", r.peek().text)
	r.caller = r.caller || r.is(tokenName, "caller")
	return r.expect(tokenName, "a name")
}
