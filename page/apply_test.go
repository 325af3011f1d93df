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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/page"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// written makes the page about a bundled model, as apply does.
func written(t *testing.T, model string) string {
	t.Helper()
	m, err := onnx.Read(filepath.Join("..", "models", model+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := page.Begin(m, "test")
	patcher, err := rewrite.New(rewrite.Auto, rewrite.AssumeAvailable())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := patcher.Plan(m)
	if err != nil {
		t.Fatal(err)
	}
	p.AddSites(plan.Report)
	if err := plan.Replace(); err != nil {
		t.Fatal(err)
	}
	p.End(m)
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRepeatable demands the same page of the same model, but for the times, and nothing that a page has to fetch.
func TestRepeatable(t *testing.T) {
	times := regexp.MustCompile(`[0-9]+ ms`)
	once, again := written(t, "llama-ts-fp32"), written(t, "llama-ts-fp32")
	if times.ReplaceAllString(once, "") != times.ReplaceAllString(again, "") {
		t.Error("two pages about one model differ")
	}
	fetches := regexp.MustCompile(`(?i)<script|@import|url\((?:[^#])|(?:src|href)="[^#d]`)
	if found := fetches.FindString(once); found != "" {
		t.Errorf("the page has %q", found)
	}
}

// shown is what a browser says of a page.
type shown struct {
	Width    int      // of the page, which is the window's where nothing sticks out
	Text     string   // that can be seen
	Headings []string // tags in order, such as H2
	Unnamed  int      // pictures without a text alternative
	Marks    int      // in the picture of differences
	Boxes    int      // of drawings, with a size
}

// frame shows a page in a window of some width, which may be smaller than the browser's least, and describes it.
const frame = `<!doctype html><body style="margin:0">
<iframe src="/page" style="border:0;display:block;width:WIDTHpx;height:HEIGHTpx" onload="const d=this.contentDocument,all=s=>[...d.querySelectorAll(s)];
document.querySelector('pre').textContent=JSON.stringify({
Width:d.documentElement.scrollWidth,Text:d.body.innerText,Headings:all('h1,h2,h3,h4').map(h=>h.tagName),
Unnamed:all('[role=img]').filter(e=>
	!e.ariaLabel&&!d.getElementById(e.getAttribute('aria-labelledby'))).length,
Marks:all('.errors .structure,.errors .definition').length,
Boxes:all('svg.graph rect').filter(e=>e.getBoundingClientRect().width>20).length})"></iframe><pre hidden></pre>`

// open opens a page in headless Chromium, and returns what it shows and a screenshot.
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
		return p == "/frame" || p == "/page" || p == "/favicon.ico" // of the frame
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

// TestShown opens pages in a browser, on a telephone and on a desk, light and dark.
func TestShown(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not found")
	}
	if testing.Short() {
		t.Skip("a browser takes seconds")
	}
	for _, c := range []struct {
		model         string
		width, height int
		dark          bool
		texts         []string
	}{
		{"qwen3-dynamo-fp32", 390, 2000, false, []string{"qwen3-dynamo-fp32.onnx", "13 blocks of this model became",
			"both ways agree", "215 → 51", "NormRotary × 4", "mojo.AddRMSNorm", "Nothing: every block"}},
		{"near/moe-before-ts-fp32", 1280, 1400, true, []string{"2 blocks of this model", "1 site refused", "MoE",
			"Why: differs from the matched nodes", "What helps: on hard inputs"}},
		{"near/moe-absent-ts-fp32", 390, 1400, true, []string{"4 near misses", "Near misses", "What helps:"}},
	} {
		t.Run(filepath.Base(c.model), func(t *testing.T) {
			t.Parallel()
			s, picture := open(t, chromium, written(t, c.model), c.width, c.height, c.dark)
			if s.Width != c.width {
				t.Errorf("the page is %d pixels wide in a window of %d", s.Width, c.width)
			}
			for _, text := range c.texts {
				if !strings.Contains(s.Text, text) {
					t.Errorf("the page does not say %q:\n%s", text, s.Text)
				}
			}
			if s.Unnamed > 0 || s.Boxes < 10 || s.Marks < 2 {
				t.Errorf("%d pictures without a text, %d boxes, %d marks", s.Unnamed, s.Boxes, s.Marks)
			}
			level := byte('0')
			for i, h := range s.Headings {
				if h[1] > level+1 || (h == "H1") != (i == 0) {
					t.Errorf("headings are not in order: %q", s.Headings)
					break
				}
				level = h[1]
			}
			photographed(t, picture, c.dark)
		})
	}
}

// photographed looks at a screenshot: the background of the scheme, and the accent colour of what is fused.
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
		t.Errorf("%d pixels, %d of the background, %d of the accent, %d colours", all, count[background],
			count[accent], len(count))
	}
}
