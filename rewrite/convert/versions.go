package convert

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// oldest is the opset from which on the versions of ops are known.
const oldest = 13

//go:embed versions.txt
var versionsText string

// version is one version of an op.
type version struct {
	since int64
	// same says that nothing but types were added to the version before, and its text changed.
	same bool
}

// standard is what versions.txt says: the versions of every op, oldest first, and the IR version of every opset.
type standard struct {
	ops       map[string][]version
	irVersion map[int64]int64
	newest    int64
}

var known = sync.OnceValue(func() *standard {
	s, err := parseVersions(versionsText)
	if err != nil {
		panic(err) // of a file that is compiled in, and read by every test
	}
	return s
})

func parseVersions(text string) (*standard, error) {
	s := &standard{ops: map[string][]version{}, irVersion: map[int64]int64{}}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		for _, w := range words[1:] {
			if words[0] == "ir_version" {
				opset, ir, _ := strings.Cut(w, ":")
				o, err1 := strconv.ParseInt(opset, 10, 64)
				r, err2 := strconv.ParseInt(ir, 10, 64)
				if err1 != nil || err2 != nil {
					return nil, fmt.Errorf("versions.txt:%d: %q is no pair of an opset and an IR version", i+1, w)
				}
				s.irVersion[o] = r
				s.newest = max(s.newest, o)
				continue
			}
			number, same := strings.CutSuffix(w, "=")
			since, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("versions.txt:%d: %q is no version of %s", i+1, w, words[0])
			}
			s.ops[words[0]] = append(s.ops[words[0]], version{since, same})
		}
	}
	return s, nil
}
