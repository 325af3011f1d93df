package main

import (
	"strings"
	"testing"
)

func TestVet(t *testing.T) {
	for _, test := range []struct{ system, processor, want string }{
		{"windows", "amd64", "fmt.Printf format %d has arg \"a word\" of wrong type string"},
		{"darwin", "arm64", "types_darwin_test.go"},
		{"linux", "arm64", ""},
	} {
		found, err := vet("testdata/wrong", "GOOS="+test.system, "GOARCH="+test.processor, "CGO_ENABLED=0")
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(found, "\n"); (all == "") != (test.want == "") || !strings.Contains(all, test.want) {
			t.Errorf("%s/%s: found %q, want %q", test.system, test.processor, found, test.want)
		}
	}
}
