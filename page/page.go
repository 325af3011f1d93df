// Package page writes reports as HTML pages that need no network: Apply is about a patched model, Diff about a
// comparison of two models, Ranges about the magnitudes of a model's values.
package page

import (
	_ "embed"
	"html/template"
	"sync"
)

//go:embed shared.html
var sharedHTML string

//go:embed style.css
var style string

// parsed returns the template of a page, parsed at the first call: most commands write no page.
func parsed(text string) func() *template.Template {
	return sync.OnceValue(func() *template.Template {
		t := template.Must(template.New("page").Funcs(functions).Parse(sharedHTML))
		return template.Must(t.Parse(text))
	})
}
