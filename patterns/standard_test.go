package patterns

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestIntroduced compares the table with the versions of the standard's ops.
func TestIntroduced(t *testing.T) {
	text, err := os.ReadFile("../rewrite/convert/versions.txt")
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] == "#" || fields[0] == "ir_version" {
			continue
		}
		if first[fields[0]], err = strconv.ParseInt(fields[1], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for op, since := range first {
		if since > 13 && introduced[op] != since {
			t.Errorf("%s appeared in opset %d, the table has %d", op, since, introduced[op])
		}
	}
	for op, since := range introduced {
		if first[op] != since {
			t.Errorf("%s is in the table with opset %d, and appeared in %d", op, since, first[op])
		}
	}
}
