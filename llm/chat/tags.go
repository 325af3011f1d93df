package chat

import "slices"

// body reads from the end of a tag to a tag with a name in ends, which it returns. Without ends it reads the whole
// template.
func (p *parser) body(ends ...string) (node, string) {
	defer p.nest()()
	if ends != nil {
		p.expect("%}")
	}
	var parts []node
	all := func(r *renderer) any {
		for _, part := range parts {
			if r.spend(); r.leave == "" {
				part(r)
			}
		}
		return nil
	}
	for {
		switch t := p.next(); {
		case t.kind == tokenEnd:
			require(len(ends) == 0, "{%% %s %%} in line %d has no end", p.tag.text, p.tag.line)
			return all, ""
		case t.kind == tokenText:
			parts = append(parts, func(r *renderer) any { return r.write(t.text) })
		case t.text == "{{":
			parts = append(parts, p.operation(func(r *renderer, v []any) any { return r.write(v[0]) }, p.expression()))
			p.expect("}}")
		case p.is(ends...):
			return all, p.next().text
		default:
			parts = append(parts, p.statement())
			p.expect("%}")
		}
	}
}

// statement reads a tag with its body and closing tag, except the last %}.
func (p *parser) statement() node {
	defer func(outer token) { p.tag = outer }(p.tag)
	p.tag = p.peek()
	switch name := p.name(); name {
	case "if":
		return p.ifTag()
	case "for":
		return p.forTag()
	case "set":
		return p.setTag()
	case "macro":
		return p.macroTag()
	case "generation": // marks the assistant's text, only for training
		body := p.apart("endgeneration")
		return func(r *renderer) any { return r.within(r.vars, body) }
	case "break", "continue":
		require(p.loops > 0, "%s outside of a loop, or in a block within it, is not supported", name)
		return func(r *renderer) any { r.leave = name; return nil }
	default:
		panic(failure("the tag %q is not supported here", name))
	}
}

func (p *parser) apart(end string) node {
	defer func(loops int) { p.loops = loops }(p.loops)
	p.loops = 0
	body, _ := p.body(end)
	return body
}

func (p *parser) ifTag() node {
	defer p.nest()()
	test, otherwise := p.binary(0), constant(nil)
	then, end := p.body("elif", "else", "endif")
	switch end {
	case "elif":
		otherwise = p.ifTag()
	case "else":
		otherwise, _ = p.body("endif")
	}
	return choice(test, then, otherwise)
}

func (p *parser) setTag() node {
	name, attribute := p.name(), ""
	if p.skip(".") {
		attribute = p.name()
		require(attribute[0] != '_', "transformers rejects attributes that begin with _")
	}
	var value node
	if p.skip("=") {
		value = p.expression()
	} else {
		body := p.apart("endset")
		value = func(r *renderer) any { return r.captured(r.vars, body) }
	}
	return p.operation(func(r *renderer, v []any) any {
		if attribute == "" {
			r.vars[name] = v[0]
		} else {
			want[namespace](r.lookup(name))[attribute] = v[0]
		}
		return nil
	}, value)
}

func (p *parser) macroTag() node {
	name := p.name()
	p.expect("(")
	var params []string
	defaults, _ := p.list(")", func() node {
		params = append(params, p.name())
		if p.skip("=") {
			return p.expression()
		}
		return constant(undefined{params[len(params)-1]})
	})
	body := p.apart("endmacro")
	return func(r *renderer) any {
		outer := r.vars
		outer[name] = function(func(r *renderer, args []any) any {
			values := bind(name, params, args)
			return r.captured(outer, func(r *renderer) any {
				for i, v := range values {
					if v == missing {
						v = defaults[i](r)
					}
					r.vars[params[i]] = v
				}
				return body(r)
			})
		})
		return nil
	}
}

func (p *parser) forTag() node {
	names, line := []string{p.name()}, p.peek().line
	for p.skip(",") {
		names = append(names, p.name())
	}
	p.expect("in")
	items := p.operation(func(r *renderer, v []any) any { return newList(r.iterate(v[0])...) }, p.binary(0))
	var filter node
	if p.skip("if") {
		filter = p.expression()
	}
	p.loops++
	body, end := p.body("else", "endfor")
	p.loops--
	otherwise := constant(nil)
	if end == "else" {
		otherwise, _ = p.body("endfor")
	}
	assign := func(r *renderer, v any) {
		values := []any{v}
		if r.line = line; len(names) > 1 {
			values = r.iterate(v)
		}
		require(filter == nil || len(names) == 1 || typeName(v) == "tuple", "a condition on lists is not supported")
		require(len(values) == len(names), "%d values for %d names", len(values), len(names))
		for i, name := range names {
			r.vars[name] = values[i]
		}
	}
	return func(r *renderer) any {
		outer, items, rounds := r.vars, items(r).(*sequence).items, 0
		if filter != nil {
			r.filters++
			r.charge(itemBytes * len(items))
			items = slices.DeleteFunc(slices.Clone(items), func(v any) bool {
				return true == r.within(outer, func(r *renderer) any {
					assign(r, v)
					return !truth(filter(r))
				})
			})
			r.filters--
		}
		for i := 0; i < len(items) && r.leave != "break"; i++ {
			r.leave = ""
			r.within(outer, func(r *renderer) any {
				assign(r, items[i])
				r.vars["loop"] = loop{"index": int64(i + 1), "index0": int64(i), "length": int64(len(items)),
					"first": i == 0, "last": i == len(items)-1, "previtem": at(items[:i], -1),
					"nextitem": at(items[i:], 1)}
				return body(r)
			})
			if r.leave == "" { // as in jinja2, a round ended by break or continue does not count for else
				rounds++
			}
		}
		if r.leave = ""; rounds == 0 {
			r.within(outer, otherwise)
		}
		return nil
	}
}
