package main

import (
	"regexp"

	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// hint is what is generally known about a reason without a code. It is found by the words of the reason: of a miss of routers and experts.
type hint struct {
	when string // a regular expression
	text string
}

// hints are tried in order; the first one that fits is given.
var hints = []hint{
	// Experts of a mixture.
	{`experts, the graph holds .* absent$`, "the trace followed the experts that its sample tokens went to: export with a sample that reaches all, or with an implementation that has no " +
		"loop over them (experts_implementation=\"batched_mm\" in transformers)"},
	{`splits the rows of the experts by the sizes`, "the trace took the numbers of tokens for constants: export with an implementation that does not read them " +
		"(experts_implementation=\"batched_mm\" in transformers), or by dynamo"},
	{`not known`, reason.Unknown.Hint()},
}

var compiledHints = func() []*regexp.Regexp {
	list := make([]*regexp.Regexp, len(hints))
	for i, h := range hints {
		list[i] = regexp.MustCompile(h.when)
	}
	return list
}()

// hintOf returns the hint of a reason: that of its code, or by its text where it has none.
func hintOf(r *reason.Reason) string {
	if r.Code != "" {
		return r.Code.Hint()
	}
	return hintFor(r.Error())
}

func hintFor(reason string) string {
	for i, h := range hints {
		if compiledHints[i].MatchString(reason) {
			return h.text
		}
	}
	return ""
}
