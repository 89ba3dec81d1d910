package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const images = "../../../docs/images"

// TestPicturesAreCurrent: each picture is what its text says, is well formed, and has a title and
// a description, which a page shows as its alternative.
func TestPicturesAreCurrent(t *testing.T) {
	files, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(images, "*.svg"))
	if err != nil || len(kept) != len(files) || len(files) != 14 {
		t.Errorf("%d pictures are kept, and %d drawn: %v", len(kept), len(files), err)
	}
	for name, svg := range files {
		text, err := os.ReadFile(filepath.Join(images, name))
		if err != nil || string(text) != svg {
			t.Errorf("%s is not current (%v): run go run ./internal/rig/diagrams docs/images", name, err)
		}
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if strings.Contains(svg, "<title id=\"title\"></title>") || strings.Contains(svg, "<desc id=\"desc\"></desc>") || strings.Contains(svg, "style") {
			t.Errorf("%s lacks a title or a description, or has a style, which a policy forbids", name)
		}
	}
}

// TestPicturesAreShown: a page shows each picture in the theme of who reads it, and says in words
// what it shows.
func TestPicturesAreShown(t *testing.T) {
	for page, names := range map[string][]string{"README.md": {"whole"}, "situations.md": {"in-flight", "other-payload", "crash-before", "crash-after", "answer-lost", "late"}} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			source, err := texts.ReadFile("texts/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			p, err := read(string(source))
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{`srcset="images/` + name + `-dark.svg"`, `<img alt="` + p.desc + `" src="images/` + name + `-light.svg">`} {
				if !strings.Contains(string(text), part) {
					t.Errorf("docs/%s lacks %s", page, part)
				}
			}
		}
	}
}

func TestBadTexts(t *testing.T) {
	for _, text := range []string{"lanes: A | B\nA -> C: words\n", "no colon\n"} {
		if _, err := read(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
