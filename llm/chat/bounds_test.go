package chat

import (
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// TestRenderedBytes renders templates that make much of little, or work long on it. Each must end with an error and
// stay within the memory bound, allowing for Go's garbage.
func TestRenderedBytes(t *testing.T) {
	defer func(work int) { maxWork = work }(maxWork)
	maxWork = 5_000_000
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	const many, end = "{% for i in range(99999) %}", "{% endfor %}"
	const big = "{% set ns = namespace(s='abcdefgh', l=[]) %}{% for i in range(17) %}{% set ns.s = ns.s + ns.s %}" + end
	long := func(body string) string { return big + many + body + end }
	for name, source := range map[string]string{
		"upper":      long("{% set x = ns.s|upper %}"),
		"title":      long("{% set x = ns.s.title() %}"),
		"capitalize": long("{% set x = (ns.s ~ i)|capitalize %}"),
		"concat":     long("{% set ns.l = ns.l + [ns.s ~ i] %}"),
		"block":      long("{% set x %}{{ ns.s }}{% endset %}{% set ns.l = ns.l + [x] %}"),
		"replace":    long("{% set ns.l = ns.l + [ns.s|replace('a', 'b')] %}"),
		"join":       long("{% set ns.l = ns.l + [[ns.s, i]|join(' ')] %}"),
		"tojson":     long("{% set ns.l = ns.l + [ns.s|tojson] %}"),
		"text":       long("{% set ns.l = ns.l + [[ns.s]|string] %}"),
		"characters": long("{% for c in ns.s %}{% set x = c %}{% endfor %}"),
		"list":       long("{% set ns.l = ns.l + [ns.s|list] %}"),
		"reversed":   long("{% set x = ns.s[::-1] %}"),
		"split":      long("{% set ns.l = ns.l + [ns.s.split('a')] %}"),
		"fields":     long("{% set ns.l = ns.l + [ns.s.replace('a', ' ').split()] %}"),
		"strip":      long("{% set x = ns.s.strip(ns.s) %}"),
		"in":         long("{% if ('x' ~ i) in ns.s %}{% endif %}"),
		"select in":  big + "{% set l = range(99999)|map('string')|list %}{{ l|select('in', ns.s)|list|length }}",
		"ranges":     long("{% set ns.l = ns.l + [range(99999)] %}"),
		"lists":      "{% set ns = namespace(l=[]) %}" + many + "{% set ns.l = ns.l + [[i, i]] %}" + end,
		"wide":       "{% set l = [" + strings.Repeat("1,", 50_000) + "] %}" + many + "{% set x = l + l %}" + end,
		"literals":   many + "{% set x = [" + strings.Repeat("i,", 5_000) + "] %}" + end,
		"dicts":      many + "{% set x = {" + manyKeys(5_000) + "} %}" + end,
		"dictsort":   "{% set d = {" + manyKeys(5_000) + "} %}" + many + "{% set x = d|dictsort %}" + end,
		"items":      "{% set d = {" + manyKeys(5_000) + "} %}" + many + "{% set x = d.items()|list %}" + end,
		"scopes":     manyVariables(20_000) + "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"select":     "{% set l = range(99999)|list %}" + many + "{% set x = l|select|list %}" + end,
		"map":        "{% set l = range(99999)|list %}" + many + "{% set x = l|map('string')|list %}" + end,
		"arguments": big + "{% macro f(a) %}{% endmacro %}{% set l = [ns.s, ns.s] %}" + many +
			"{% for j in range(999) %}{{ f(l) }}{% endfor %}" + end,
		"comparisons": long("{% if ns.s == ns.s ~ '' %}{% endif %}"),
		"format":      big + "{{ strftime_now(ns.s) }}",
	} {
		tmpl, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		debug.FreeOSMemory()
		done, peak := make(chan bool), make(chan uint64)
		go func() { // measure the memory while the template renders
			var most uint64
			sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			for {
				metrics.Read(sample)
				most = max(most, sample[0].Value.Uint64())
				select {
				case <-done:
					peak <- most
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		_, err = tmpl.Render([]Message{hello}, Options{})
		close(done)
		n := <-peak >> 20
		if n > 700 {
			t.Errorf("%s: %d MiB are in use", name, n)
		}
		if err == nil || !strings.Contains(err.Error(), "may never "+
			"end") && !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongConversation renders 4 MB by the templates of real models. They must stay within the bounds.
func TestLongConversation(t *testing.T) {
	r := readRecorded(t)
	text := strings.Repeat("Some words, and a line.\n", 4<<20/24/200)
	var messages []Message
	for range 100 {
		messages = append(messages, Message{Role: "user", Content: text}, Message{Role: "assistant", Content: text})
	}
	for path := range r.Templates {
		tmpl, err := Read("testdata/" + path)
		if err != nil {
			t.Fatal(err)
		}
		tmpl.Tokens = r.Tokens
		got, err := tmpl.Render(messages, Options{Now: recordedTime})
		if err != nil && strings.Contains(err.Error(), "may never end") {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("'k" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) +
			string(rune('a'+i/676%26)) + "': 1,")
	}
	return b.String()
}

func manyVariables(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("{% set v" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)) +
			" = 1 %}")
	}
	return b.String()
}
