package dashboard_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var writePictures = flag.Bool("pictures", false, "take the pictures of README.md anew; see make pictures")

// images is where README's pictures are, and maxPicture how many bytes one may have, so that
// a page with all of them loads quickly.
const (
	images     = "../../docs/images"
	maxPicture = 200_000
)

// pictures are those of README.md, by the screens of the demo that they show.
var pictures = map[string]string{"overview": "#/overview", "record": "#/find/order:rush-1"}

// checkPictures takes README's pictures with -pictures. Without it, the pictures are current
// if whatever was named on their screens is still there: their bytes differ each time.
func checkPictures(t *testing.T, tb *tab) {
	file := filepath.Join(images, "dashboard.json")
	kept := map[string][]string{}
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
	} else if !*writePictures {
		t.Fatal(err)
	}
	for name, hash := range pictures {
		tb.visit(hash)
		tb.wait("document.querySelector('main canvas, main .mark') && !document.querySelector('main .loading')")
		shown := eval[[]string](tb, `[...new Set([...document.querySelectorAll('nav.side a, main h1, main h2, main th, main .legend span')].map((e) => e.innerText.trim()).filter(Boolean))]`)
		if !*writePictures {
			for _, words := range kept[name] {
				if !slices.Contains(shown, words) {
					t.Errorf("the %s shows no %q any more: run make pictures", name, words)
				}
			}
			continue
		}
		kept[name] = shown
		for _, theme := range []string{"light", "dark"} {
			tb.theme(theme)
			tb.wait("document.querySelector('main canvas, main .mark') && !document.querySelector('main .loading')")
			shot, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(images, "dashboard-"+name+"-"+theme+".png"), smaller(t, shot), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if *writePictures {
		text, err := json.MarshalIndent(kept, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// smaller is a PNG with the same pixels.
func smaller(t *testing.T, shot []byte) []byte {
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPicturesOfTheFirstPage: README shows each picture, in the theme of who reads it.
func TestPicturesOfTheFirstPage(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range pictures {
		light, dark := "docs/images/dashboard-"+name+"-light.png", "docs/images/dashboard-"+name+"-dark.png"
		for _, part := range []string{`<source media="(prefers-color-scheme: dark)" srcset="` + dark + `">`, `src="` + light + `"`} {
			if !strings.Contains(string(readme), part) {
				t.Errorf("README.md lacks %s", part)
			}
		}
		for _, file := range []string{light, dark} {
			data, err := os.ReadFile(filepath.Join("../..", file))
			if err != nil {
				t.Error(err)
				continue
			}
			if config, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || config.Width < 1000 || len(data) > maxPicture {
				t.Errorf("%s: %v, %d pixels wide, %d bytes", file, err, config.Width, len(data))
			}
		}
	}
}
