// Package schemas embeds the JSON Schema of plan files. The schemas of reports are files in the same folder.
package schemas

import _ "embed"

// Plan is the schema of plan files.
//
//go:embed plan.json
var Plan []byte
