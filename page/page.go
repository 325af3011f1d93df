// Package page writes reports as pages of HTML that need nothing from a network: Apply is about a model that was
// patched, Diff about two models that were compared, Ranges about the numbers that a model's values take.
package page

import (
	_ "embed"
	"html/template"
)

//go:embed shared.html
var sharedHTML string

//go:embed style.css
var style string

// parsed returns the template of a page.
func parsed(text string) *template.Template {
	t := template.Must(template.New("page").Funcs(functions).Parse(sharedHTML))
	return template.Must(t.Parse(text))
}
