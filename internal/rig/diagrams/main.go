// Command diagrams draws the pictures of the documentation from the texts beside it, each once
// for light pages and once for dark ones:
//
//	go run ./internal/rig/diagrams docs/images
//
// A line "A -> B: words" is a request, "A --> B: words" an answer, "A x B: words" one that is
// lost, and "A: words" is what A does.
package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed texts
var texts embed.FS

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "diagrams: name the directory of the pictures")
		os.Exit(2)
	}
	files, err := draw()
	for name, svg := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name), []byte(svg), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "diagrams:", err)
		os.Exit(1)
	}
}

// draw draws all texts, and returns the pictures by the names of their files.
func draw() (map[string]string, error) {
	names, err := fs.Glob(texts, "texts/*.txt")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := texts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		p, err := read(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		base := strings.TrimSuffix(filepath.Base(name), ".txt")
		files[base+"-light.svg"], files[base+"-dark.svg"] = p.svg(light), p.svg(dark)
	}
	return files, nil
}

// picture is a text that was read: either lanes with steps, or columns of boxes.
type picture struct {
	title, desc string
	lanes       []string
	steps       []step
	columns     [][]string
	arrows      []string // between the columns
	below, back string
}

// step is a message from a lane to another, or what one of them does: then to is from.
type step struct {
	from, to int
	kind     string
	words    string
}

func read(text string) (*picture, error) {
	p := &picture{}
	for line := range strings.Lines(text) {
		head, words, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			return nil, fmt.Errorf("%q has no colon", line)
		}
		parts := strings.Split(words, " | ")
		switch head {
		case "title":
			p.title = words
		case "desc":
			p.desc = words
		case "lanes":
			p.lanes = parts
		case "column":
			p.columns = append(p.columns, parts)
		case "arrow":
			p.arrows = append(p.arrows, words)
		case "below":
			p.below = words
		case "back":
			p.back = words
		default:
			s, err := p.step(head, words)
			if err != nil {
				return nil, err
			}
			p.steps = append(p.steps, s)
		}
	}
	return p, nil
}

func (p *picture) step(head, words string) (step, error) {
	s := step{kind: ":", from: -1, to: -1, words: words}
	from, to := head, head
	for _, kind := range []string{" --> ", " -> ", " x "} {
		if a, b, ok := strings.Cut(head, kind); ok {
			from, to, s.kind = a, b, strings.TrimSpace(kind)
			break
		}
	}
	for i, lane := range p.lanes {
		if lane == from {
			s.from = i
		}
		if lane == to {
			s.to = i
		}
	}
	if s.from < 0 || s.to < 0 {
		return s, fmt.Errorf("%q is between no lanes", head)
	}
	return s, nil
}
