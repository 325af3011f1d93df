package safetensors

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestLargeHeaders reads large headers full of one kind of entry. The memory must stay within a multiple of the
// header's bytes, and messages must be short.
func TestLargeHeaders(t *testing.T) {
	defer func(keys int) { maxKeys = keys }(maxKeys)
	maxKeys = 1 << 14
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	const size = 2 << 20
	many := func(begin, each, end string) string { return begin + strings.Repeat(each, size/len(each)) + end }
	counted := func(begin, key, value, end string) string {
		var b strings.Builder
		b.WriteString(begin)
		for i := 0; b.Len() < size; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + key + strconv.Itoa(i) + `":` + value)
		}
		return b.String() + end
	}
	for name, test := range map[string]struct{ header, want string }{
		"zeros":         {many("{", "\x00", "}"), "it is not JSON"},
		"spaces":        {many("{", " ", "}"), ""},
		"a long name":   {many(`{"`, "0", `":0}`), "bytes, more than the limit of 4096"},
		"an escaped":    {many(`{"`, `\u0000`, `":0}`), "bytes, more than the limit of 4096"},
		"a long type":   {many(`{"a":{"dtype":"`, "0", `"}}`), "bytes, more than the limit of 4096"},
		"a long number": {many(`{"a":{"shape":[1`, "0", `]}}`), "is not a whole number"},
		"a number":      {many(`{"a":1`, "0", `}`), `expected "{"`},
		"a long shape":  {many(`{"a":{"shape":[0`, ",0", `]}}`), "it has more than the limit of 256 numbers"},
		"metadata":      {counted(`{"__metadata__":{`, "", `""`, "}}"), "it has more than the limit of 16384 keys"},
		"keys":          {counted(`{"a":{`, "", `0`, "}}"), "it has more than the limit of 16384 keys"},
		"tensors": {counted("{", "", `{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, "}"),
			"it has more than the limit of 16384 keys"},
	} {
		debug.FreeOSMemory()
		peak := peakDuring(func() {
			_, err := parse(file(test.header, 0))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %.200v", name, err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
			}
		})
		if most := uint64(64 << 20); peak > most {
			t.Errorf("%s: %d MiB are in use, want %d at most", name, peak>>20, most>>20)
		}
		runtime.KeepAlive(test)
	}
}

// peakDuring returns the peak heap memory while f runs.
func peakDuring(f func()) (most uint64) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	done, ended := make(chan bool), make(chan bool)
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for tick := time.Tick(5 * time.Millisecond); ; {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-done:
				close(ended)
				return
			case <-tick:
			}
		}
	}()
	f()
	close(done)
	<-ended
	return most
}
