package page_test

import (
	"bytes"
	"encoding/json"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// shown is a browser's view of a page.
type shown struct {
	Width    int      // of the page, equal to the window's unless content overflows
	Text     string   // the visible text
	Headings []string // tags in order, such as H2
	Unnamed  int      // pictures without a text alternative
	Marks    int      // in the picture of differences
	Stuck    int      // scrollable parts that the keyboard cannot reach
	Boxes    int      // of drawings, with a size
}

// frame shows a page in a window of a given width, which may be below the browser's minimum, and describes it.
const frame = `<!doctype html><body style="margin:0">
<iframe src="/page" style="border:0;display:block;width:WIDTHpx;height:HEIGHTpx" onload="const d=this.contentDocument,all=s=>[...d.querySelectorAll(s)];
document.querySelector('pre').textContent=JSON.stringify({
Width:d.documentElement.scrollWidth,Text:d.body.innerText,Headings:all('h1,h2,h3,h4').map(h=>h.tagName),
Unnamed:all('[role=img]').filter(e=>
	!e.ariaLabel&&!d.getElementById(e.getAttribute('aria-labelledby'))).length,
Marks:all('.errors .structure,.errors .definition,.parts .fine,.parts .off').length,
Stuck:all('.scroll:not([tabindex])').length,
Boxes:all('svg.graph rect').filter(e=>e.getBoundingClientRect().width>20).length})"></iframe><pre hidden></pre>`

// opened opens a page in headless Chromium, and checks the rules for every page and the page's texts.
func opened(t *testing.T, html string, width, height int, dark bool, texts []string) shown {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not found")
	}
	if testing.Short() {
		t.Skip("a browser takes seconds")
	}
	s, picture := open(t, chromium, html, width, height, dark)
	if s.Width != width {
		t.Errorf("the page is %d pixels wide in a window of %d", s.Width, width)
	}
	for _, text := range texts {
		if !strings.Contains(s.Text, text) {
			t.Errorf("the page does not say %q:\n%s", text, s.Text)
		}
	}
	if s.Unnamed > 0 || s.Stuck > 0 {
		t.Errorf("%d pictures without a text, %d parts that the keyboard does not reach", s.Unnamed, s.Stuck)
	}
	level := byte('0')
	for i, h := range s.Headings {
		if h[1] > level+1 || (h == "H1") != (i == 0) {
			t.Errorf("headings are not in order: %q", s.Headings)
			break
		}
		level = h[1]
	}
	photographed(t, picture, dark)
	return s
}

// open opens a page in headless Chromium, and returns its contents and a screenshot.
func open(t *testing.T, chromium, html string, width, height int, dark bool) (shown, string) {
	t.Helper()
	var lock sync.Mutex
	var asked []string
	size := strings.NewReplacer("WIDTH", strconv.Itoa(width), "HEIGHT", strconv.Itoa(height))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		asked = append(asked, r.URL.Path)
		switch r.URL.Path {
		case "/frame":
			w.Write([]byte(size.Replace(frame)))
		case "/page":
			w.Write([]byte(html))
		}
	}))
	defer server.Close()
	scheme, dir := "1", t.TempDir()
	if dark {
		scheme = "0"
	}
	picture := filepath.Join(dir, "page.png")
	c := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--enable-logging=stderr", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--window-size="+strconv.Itoa(max(width, 500))+","+strconv.Itoa(height),
		"--blink-settings=preferredColorScheme="+scheme, "--screenshot="+picture, "--dump-dom",
		server.URL+"/frame")
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("on the console: %s", line)
		}
	}
	lock.Lock()
	defer lock.Unlock()
	if other := slices.DeleteFunc(asked, func(p string) bool {
		return p == "/frame" || p == "/page" || p == "/favicon.ico" // the frame's own
	}); len(other) > 0 {
		t.Errorf("the page asks for %q", other)
	}
	_, text, _ := strings.Cut(out.String(), `<pre hidden="">`)
	text, _, _ = strings.Cut(text, "</pre>")
	var s shown
	text = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", "&nbsp;", " ").Replace(text)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in %q of\n%s\n%s", err, text, out.String(), log.String())
	}
	return s, picture
}

// photographed checks a screenshot for the scheme's background and the accent color of fused ops.
func photographed(t *testing.T, path string, dark bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	background, accent := color.NRGBA{255, 255, 255, 255}, color.NRGBA{9, 105, 218, 255}
	if dark {
		background, accent = color.NRGBA{13, 17, 23, 255}, color.NRGBA{88, 166, 255, 255}
	}
	count := map[color.NRGBA]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			count[color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)]++
		}
	}
	all := img.Bounds().Dx() * img.Bounds().Dy()
	if count[background] < all/2 || count[accent] < 100 || len(count) < 50 {
		t.Errorf("%d pixels, %d of the background, %d of the accent, %d colors", all, count[background],
			count[accent], len(count))
	}
}
