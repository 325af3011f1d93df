// Package schemas has the JSON Schema of the files that are read again. Those of what commands print stand beside it.
package schemas

import _ "embed"

// Plan is the schema of plan files.
//
//go:embed plan.json
var Plan []byte
